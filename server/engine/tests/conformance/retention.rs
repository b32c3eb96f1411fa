//! Taking away what has been kept long enough.

use std::sync::Arc;

use domain::lease::{Acquire, Command, KeyState, LeaseReading, Refusal, Reply, Verdict};
use domain::{JobKey, Metadata, Reason, Span, Subject};
use engine::Engine;
use engine::reading::{GrantRow, HistoryQuery};
use engine::timeline::{Position, ReadError};

use crate::fixture::{Fixture, call, call_once, keeping_no_lines, lease_key, refusal, terms};

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
    fixture.hands.pass(31 * DAY).await;
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
    fixture.hands.pass(91 * DAY).await;
    fixture.acquire("new", "one").await.unwrap();
    fixture.engine.retain(call()).await.unwrap();
    fixture.reopen().await;
    fixture.head().await;
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
    fixture.hands.pass(6 * DAY).await;
    fixture.engine.retain(call()).await.unwrap();
    let other = fixture.engine.run(call_once("k", 2), lease_key("b"), take.clone()).await;
    assert_eq!(other.unwrap_err(), engine::Fault::IdempotencyMismatch);
    fixture.hands.pass(2 * DAY).await;
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
    fixture.hands.pass(8 * DAY).await;
    fixture.engine.retain(call()).await.unwrap();
    let again = Command::Acquire { request: terms("one"), wait: None };
    for n in [0, 2_050, 4_099] {
        let key = lease_key(&format!("b{n}"));
        let done = fixture.engine.run(call_once(&format!("k{n}"), 2), key, again.clone()).await.unwrap();
        assert!(!done.replayed);
    }
}

/// An engine that keeps no line of the timeline for longer than a millisecond.
async fn forgetful() -> Fixture {
    let mut fixture = Fixture::new().await;
    reopen_forgetful(&mut fixture).await;
    fixture
}

async fn reopen_forgetful(fixture: &mut Fixture) {
    fixture.engine.close().await;
    fixture.engine = Engine::open(keeping_no_lines(fixture.options())).await.unwrap();
}

/// Takes away all lines there are.
async fn retain_all(fixture: &Fixture) {
    let head = fixture.head().await;
    // Lines go only as far as the read models have come.
    fixture.engine.list(crate::lists::all()).await.unwrap();
    fixture.hands.pass(2).await;
    fixture.engine.retain(call()).await.unwrap();
    let Err(ReadError::Compacted { oldest }) = fixture.engine.timeline().read_after(Position(0), 1).await else {
        panic!("lines were taken away")
    };
    assert!(oldest >= head, "{oldest:?} and {head:?}");
}

const KEYS: [&str; 9] = ["held", "ended", "breaking", "cooling", "quarantined", "shut", "lifted", "never", "again"];

/// All that is known of these keys: their states, their place in lists, what there is in numbers.
async fn known(fixture: &Fixture) -> (Vec<Option<KeyState>>, Vec<GrantRow>, i64, i64) {
    let mut states = Vec::new();
    for key in KEYS {
        states.push(match fixture.engine.run(call(), lease_key(key), Command::Get).await.map(|done| done.value) {
            Ok(Reply::Key(reading)) => Some(reading.state),
            unknown => {
                assert_eq!(refusal(unknown), Refusal::KeyUnknown, "{key}");
                None
            }
        });
    }
    let rows = fixture.engine.list(crate::lists::all()).await.unwrap().page.rows;
    let counters = fixture.engine.counters(&[]).await.unwrap();
    (states, rows, counters.keys, counters.held)
}

async fn verdict(fixture: &Fixture, lease: &LeaseReading) -> Verdict {
    let validate = Command::Validate { token: lease.lease.token };
    let Reply::Verdict { verdict, .. } = fixture.run(lease.lease_key.as_str(), validate).await else { panic!() };
    verdict
}

#[tokio::test]
async fn what_is_known_of_keys_whose_lines_are_gone_outlives_the_read_models() {
    let mut fixture = forgetful().await;
    let reason = || Reason::parse("test").unwrap();
    let long = |owner: &str| Acquire { ttl: Span::millis(3_600_000), ..terms(owner) };
    let held = Acquire {
        job_key: Some(JobKey::parse("nightly").unwrap()),
        subjects: Arc::from([Subject::parse("customer:acme").unwrap()]),
        metadata: Metadata::parse(r#"{"n":1.50}"#).unwrap(),
        ..long("one")
    };
    let held = fixture.acquire_with("held", held).await.unwrap();
    let ended = fixture.acquire("ended", "one").await.unwrap();
    fixture.release(&ended).await.unwrap();
    let breaking = fixture.acquire_with("breaking", long("two")).await.unwrap();
    let grace = Span::millis(1_800_000);
    fixture.run("breaking", Command::Break { reason: reason(), grace, lease_id: None }).await;
    let cooling = Acquire { min_hold: Span::millis(1_800_000), max_hold: None, ..long("three") };
    let cooling = fixture.acquire_with("cooling", cooling).await.unwrap();
    fixture.release(&cooling).await.unwrap();
    let quarantined = fixture.acquire_with("quarantined", long("four")).await.unwrap();
    for key in ["quarantined", "shut", "lifted"] {
        fixture.run(key, Command::Quarantine { reason: reason() }).await;
    }
    fixture.run("lifted", Command::Lift { reason: reason() }).await;
    let first = fixture.acquire("again", "five").await.unwrap();
    fixture.release(&first).await.unwrap();
    let again = fixture.acquire("again", "six").await.unwrap();

    // The first outage finds these leases in the lines themselves, the second in what was kept of lines taken before.
    for round in 0..2 {
        fixture.hands.pass(9_000).await;
        fixture.touch().await;
        retain_all(&fixture).await;
        let before = known(&fixture).await;
        assert!(before.1.iter().any(|row| row.lease.is_alive(fixture.engine.now())));
        fixture.lose_views().await;
        assert_eq!(known(&fixture).await, before, "in round {round}");
        reopen_forgetful(&mut fixture).await;
    }
    // What came after the lines that are gone is applied to what was kept.
    let renewed = fixture.renew(&held).await.unwrap();
    fixture.hands.pass(4_000).await;
    let before = known(&fixture).await;
    fixture.lose_views().await;
    assert_eq!(known(&fixture).await, before);

    assert!(matches!(refusal(fixture.acquire("held", "thief").await), Refusal::Held(_)));
    assert!(matches!(refusal(fixture.acquire("breaking", "thief").await), Refusal::Breaking(_)));
    assert!(matches!(refusal(fixture.acquire("cooling", "thief").await), Refusal::Cooling(_)));
    for key in ["quarantined", "shut"] {
        assert!(matches!(refusal(fixture.acquire(key, "thief").await), Refusal::Quarantined(_)));
    }
    assert_eq!(fixture.renew(&renewed).await.unwrap().lease.renewals, 2);
    for current in [&held, &breaking, &quarantined, &again] {
        assert_eq!(verdict(&fixture, current).await, Verdict::Current, "{}", current.lease_key);
    }
    for stale in [&ended, &cooling, &first] {
        assert_eq!(verdict(&fixture, stale).await, Verdict::Stale, "{}", stale.lease_key);
    }
    assert!(fixture.acquire("ended", "next").await.unwrap().lease.token > again.lease.token);
}
