//! Taking away what has been kept long enough.

use domain::lease::{Command, Refusal, Reply, Verdict};
use engine::reading::HistoryQuery;
use engine::timeline::{Position, ReadError};

use crate::fixture::{Fixture, call, call_once, lease_key, refusal, terms};

const DAY: i64 = 24 * 60 * 60 * 1000;

async fn grants_of(fixture: &Fixture, key: &str) -> usize {
    let query = HistoryQuery { lease_key: lease_key(key), before: None, limit: 100 };
    fixture.engine.history(query).await.unwrap().page.rows.len()
}

#[tokio::test]
async fn old_grants_go_but_the_greatest_token_of_a_key_is_never_forgotten() {
    let mut fixture = Fixture::new().await;
    let mut leases = Vec::new();
    for n in 0..5 {
        let lease = fixture.acquire("a", &format!("w{n}")).await.unwrap();
        fixture.release(&lease).await.unwrap();
        leases.push(lease);
    }
    fixture.hands.pass(31 * DAY);
    fixture.engine.retain(call()).await.unwrap();
    assert_eq!(grants_of(&fixture, "a").await, 1);
    assert_eq!(refusal(fixture.release(&leases[0]).await), Refusal::LeaseUnknown);
    fixture.release(&leases[4]).await.unwrap();
    fixture.reopen().await;
    let validate = Command::Validate { token: leases[0].lease.token };
    let Reply::Verdict { verdict, current_token } =
        fixture.engine.run(call(), lease_key("a"), validate).await.unwrap().value
    else {
        panic!()
    };
    assert_eq!((verdict, current_token), (Verdict::Stale, Some(leases[4].lease.token)));
    assert!(fixture.acquire("a", "next").await.unwrap().lease.token > leases[4].lease.token);
}

#[tokio::test]
async fn old_lines_go_and_the_rest_is_still_chained() {
    let mut fixture = Fixture::new().await;
    let held = fixture.acquire("quarantined later", "one").await.unwrap();
    for n in 0..5 {
        fixture.acquire(&format!("k{n}"), "one").await.unwrap();
    }
    fixture.hands.pass(91 * DAY);
    fixture.acquire("new", "one").await.unwrap();
    fixture.engine.retain(call()).await.unwrap();
    fixture.reopen().await;
    let timeline = fixture.engine.timeline();
    let Err(ReadError::Compacted { oldest }) = timeline.read_after(Position(0), 10).await else { panic!() };
    assert!(oldest >= Position(6));
    let lines = timeline.read_after(oldest, 100).await.unwrap();
    assert_eq!(lines[0].position, oldest.next());
    assert!(lines.iter().any(|line| line.body.contains("timeline.retained")));
    for pair in lines.windows(2) {
        assert_eq!(engine::timeline::chain(&pair[0].hash, pair[1].position, &pair[1].body), pair[1].hash);
    }
    // Keys whose lines are gone are still known.
    let Reply::Key(key) = fixture.engine.run(call(), lease_key("quarantined later"), Command::Get).await.unwrap().value
    else {
        panic!()
    };
    assert_eq!(key.state.lease.unwrap().token, held.lease.token);
}

#[tokio::test]
async fn idempotency_records_are_kept_for_a_week() {
    let fixture = Fixture::new().await;
    let take = Command::Acquire { request: terms("one"), wait: None };
    fixture.engine.run(call_once("k", 1), lease_key("a"), take.clone()).await.unwrap();
    fixture.hands.pass(6 * DAY);
    fixture.engine.retain(call()).await.unwrap();
    let other = fixture.engine.run(call_once("k", 2), lease_key("b"), take.clone()).await;
    assert_eq!(other.unwrap_err(), engine::Fault::IdempotencyMismatch);
    fixture.hands.pass(2 * DAY);
    fixture.engine.retain(call()).await.unwrap();
    let done = fixture.engine.run(call_once("k", 2), lease_key("b"), take).await.unwrap();
    assert!(!done.replayed);
}

#[tokio::test]
async fn however_many_old_idempotency_records_there_are_none_is_left() {
    let fixture = Fixture::new().await;
    let take_once = |n: i32| {
        let fixture = &fixture;
        async move {
            let take = Command::Acquire { request: terms("one"), wait: None };
            fixture.engine.run(call_once(&format!("k{n}"), 1), lease_key(&format!("a{n}")), take).await.unwrap();
        }
    };
    // More than are taken away in one piece.
    for from in (0..4_100).step_by(100) {
        futures::future::join_all((from..from + 100).map(take_once)).await;
    }
    fixture.hands.pass(8 * DAY);
    fixture.engine.retain(call()).await.unwrap();
    let again = Command::Acquire { request: terms("one"), wait: None };
    for n in [0, 2_050, 4_099] {
        let key = lease_key(&format!("b{n}"));
        let done = fixture.engine.run(call_once(&format!("k{n}"), 2), key, again.clone()).await.unwrap();
        assert!(!done.replayed);
    }
}
