//! The timeline, and what follows it.

use domain::lease::{KeyState, Reply};
use engine::timeline::{GENESIS, Position, Record, chain};

use crate::fixture::{Fixture, call, lease_key};

/// What is done to a line.
enum Change {
    Rewritten,
    Removed,
}

#[tokio::test]
async fn positions_are_dense_and_every_line_is_chained_to_the_one_before() {
    let mut fixture = Fixture::new().await;
    for n in 0..20 {
        let lease = fixture.acquire(&format!("k{n}"), "one").await.unwrap();
        fixture.renew(&lease).await.unwrap();
    }
    for from_disk in [false, true] {
        if from_disk {
            fixture.reopen().await;
        }
        let mut hash = GENESIS;
        let all = fixture.lines().await;
        assert_eq!(all.len(), 40);
        for (index, line) in all.iter().enumerate() {
            assert_eq!(line.position.0, i64::try_from(index).unwrap() + 1);
            hash = chain(&hash, line.position, &line.body);
            assert_eq!(line.hash, hash);
            assert_eq!(&serde_json::from_str::<Record>(&line.body).unwrap(), &*line.record);
        }
    }
}

#[tokio::test]
async fn every_state_is_the_replay_of_its_events() {
    let fixture = Fixture::new().await;
    for n in 0..30 {
        let key = format!("k{}", n % 4);
        if let Ok(lease) = fixture.acquire(&key, &format!("w{n}")).await {
            fixture.renew(&lease).await.unwrap();
            if n % 3 == 0 {
                fixture.release(&lease).await.unwrap();
            }
        }
        fixture.pass(2_000).await;
    }
    for n in 0..4 {
        let key = lease_key(&format!("k{n}"));
        let Reply::Key(now) = fixture.engine.run(call(), key.clone(), domain::lease::Command::Get).await.unwrap().value
        else {
            panic!()
        };
        let mut replayed = KeyState::new(key.clone());
        for line in fixture.lines().await {
            match &*line.record {
                Record::Lease(event) if event.lease_key == key => replayed.apply(event),
                _ => {}
            }
        }
        assert_eq!(replayed, now.state);
    }
}

#[tokio::test]
async fn read_models_are_rebuilt_when_they_are_deleted() {
    let mut fixture = Fixture::new().await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    let other = fixture.acquire("b", "one").await.unwrap();
    fixture.release(&other).await.unwrap();
    fixture.acquire("a", "two").await.unwrap_err();
    let before = fixture.engine.list(crate::lists::all()).await.unwrap().page.rows;
    fixture.lose_views().await;
    let after = fixture.engine.list(crate::lists::all()).await.unwrap().page.rows;
    assert_eq!(after, before);
    assert_eq!(fixture.engine.counters(&[]).await.unwrap().collisions, 1);
    fixture.renew(&lease).await.unwrap();
}

#[tokio::test]
async fn a_timeline_verifies_until_a_line_is_changed_or_taken_away() {
    for (change, position, wrong) in [
        (Change::Rewritten, 3, "line 3 does not follow"),
        (Change::Removed, 2, "line 2 is missing"),
        (Change::Removed, 5, "line 5 is missing"),
    ] {
        let fixture = Fixture::new().await;
        for n in 0..5 {
            fixture.acquire(&format!("k{n}"), "one").await.unwrap();
        }
        // Also while it is being served.
        assert_eq!(fixture.head().await, Position(5));
        let good = fixture.database.verify().await.unwrap();
        assert_eq!((good.base, good.head), (Position(0), Position(5)));
        fixture.engine.close().await;
        match change {
            Change::Rewritten => fixture.database.rewrite_line(position).await,
            Change::Removed => fixture.database.remove_line(position).await,
        }
        let error = fixture.database.verify().await.unwrap_err().to_string();
        assert!(error.contains(wrong), "{error}");
    }
}
