//! The timeline, and what follows it.

use domain::lease::{KeyState, Reply};
use engine::timeline::{GENESIS, Line, Position, Record, chain};

use crate::fixture::{Fixture, call, lease_key};

async fn lines(fixture: &Fixture) -> Vec<Line> {
    let mut all = Vec::new();
    loop {
        let after = all.last().map_or(Position(0), |line: &Line| line.position);
        let more = fixture.engine.timeline().read_after(after, 7).await.unwrap();
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
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
        let all = lines(&fixture).await;
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
        for line in lines(&fixture).await {
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
async fn read_models_of_another_timeline_are_not_believed() {
    let mut fixture = Fixture::new().await;
    let stranger = Fixture::new().await;
    stranger.acquire("strange", "one").await.unwrap();
    fixture.acquire("a", "one").await.unwrap();
    let views = format!("{}-views", stranger.path().display());
    stranger.engine.close().await;
    let swap = |path: &std::path::Path| {
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}-views{suffix}", path.display()));
        }
        std::fs::copy(&views, format!("{}-views", path.display())).unwrap();
    };
    fixture.reopen_after(swap).await;
    let rows = fixture.engine.list(crate::lists::all()).await.unwrap().page.rows;
    let names: Vec<&str> = rows.iter().map(|row| row.lease_key.as_str()).collect();
    assert_eq!(names, ["a"]);
}

#[tokio::test]
async fn a_second_process_is_refused_with_a_clear_message() {
    let fixture = Fixture::new().await;
    let second = engine::Engine::open(engine::Options::sqlite(fixture.path())).await;
    let message = second.err().unwrap().to_string();
    assert!(message.contains("served by another process"), "{message}");
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused() {
    let mut fixture = Fixture::new().await;
    fixture.reopen().await;
    fixture.engine.close().await;
    let url = format!("sqlite:{}", fixture.path().display());
    let mut db = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.unwrap();
    sqlx::query("INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES (9999, 'later', 1, x'00', 0)")
        .execute(&mut db)
        .await
        .unwrap();
    let opened = engine::Engine::open(engine::Options::sqlite(fixture.path())).await;
    let message = opened.err().unwrap().to_string();
    assert!(message.contains("newer version"), "{message}");
}

#[tokio::test]
async fn a_timeline_verifies_until_a_line_is_changed_or_taken_away() {
    for (change, wrong) in [
        ("UPDATE timeline SET body = replace(body, 'one', 'two') WHERE position = 3", "line 3 does not follow"),
        ("DELETE FROM timeline WHERE position = 2", "line 2 is missing"),
    ] {
        let fixture = Fixture::new().await;
        for n in 0..5 {
            fixture.acquire(&format!("k{n}"), "one").await.unwrap();
        }
        // Also while it is being served.
        let good = engine::verify(&fixture.path()).await.unwrap();
        assert_eq!((good.base, good.head), (Position(0), Position(5)));
        fixture.engine.close().await;
        let url = format!("sqlite:{}", fixture.path().display());
        let mut db = <sqlx::SqliteConnection as sqlx::Connection>::connect(&url).await.unwrap();
        sqlx::query(change).execute(&mut db).await.unwrap();
        let error = engine::verify(&fixture.path()).await.unwrap_err().to_string();
        assert!(error.contains(wrong), "{error}");
    }
}
