//! Nodes of two versions on one database: those of the older go on as long as they can, and stop when they cannot.

use std::time::Duration;

use domain::lease::{Command, Refusal, Reply};
use engine::timeline::{Position, Record};
use engine::{Engine, Fault, OpenError};
use tokio::time::{sleep, timeout};

use crate::fixture::{call, lease_key, refusal};
use crate::nodes::{soon, take, two_nodes};

/// Beats come once a second.
const BEATS: Duration = Duration::from_secs(3);

#[tokio::test]
async fn nodes_go_on_and_come_back_while_a_newer_version_adds_to_the_database() {
    let (here, mut there) = two_nodes().await;
    let lease = here.acquire("a", "one").await.unwrap();
    let waiter = there.wait("a", "two", 60_000);
    here.until_waiting("a", 1).await;
    here.database.be_newer(1).await;
    here.release(&lease).await.unwrap();
    let second = soon(waiter).await.unwrap().unwrap();
    assert!(second.lease.token > lease.lease.token);
    // Well past what a node may need to notice.
    assert!(timeout(BEATS, async { tokio::join!(here.engine.over(), there.engine.over()) }).await.is_err());
    assert!(here.engine.is_healthy() && there.engine.is_healthy());
    there.reopen().await;
    there.renew(&second).await.unwrap();
    assert!(matches!(refusal(here.acquire("a", "three").await), Refusal::Held(_)));
    there.release(&second).await.unwrap();
    let third = here.acquire("a", "three").await.unwrap();
    assert!(third.lease.token > second.lease.token);
    here.head().await;
    there.head().await;
    here.database.verify().await.unwrap();
}

#[tokio::test]
async fn what_newer_nodes_write_besides_is_passed_over_and_passed_on() {
    let (here, there) = two_nodes().await;
    let lease = here.acquire("a", "one").await.unwrap();
    here.head().await;
    let newer = r#"UPDATE job_leases.keys SET state = left(state, -1) || ',"colour":"red"}' WHERE lease_key = 'a'"#;
    here.database.change(newer).await;
    there.renew(&lease).await.unwrap();
    let body = r#"{"at":"2027-01-15T08:00:00.000001Z","kind":"gate.opened","gate":{"name":"x"},"actor":{"kind":"system","id":"x","name":"x"}}"#;
    here.database.append(body).await;
    here.renew(&lease).await.unwrap();
    for node in [&here, &there] {
        node.head().await;
        let lines = node.lines().await;
        let unknown: Vec<_> = lines.iter().filter(|line| line.record.kind() == "unknown").collect();
        let [line] = &unknown[..] else { panic!("{unknown:?}") };
        assert_eq!(&*line.body, body);
        assert!(matches!(&*line.record, Record::Other(_)));
        let Reply::Key(key) = node.run("a", Command::Get).await else { panic!() };
        assert_eq!(key.state.lease.unwrap().renewals, 2);
    }
    here.database.verify().await.unwrap();
}

#[tokio::test]
async fn nodes_stop_writing_when_a_newer_version_makes_the_database_unusable_for_them() {
    let (here, there) = two_nodes().await;
    let lease = here.acquire("a", "one").await.unwrap();
    let waiter = there.wait("a", "two", 60_000);
    here.until_waiting("a", 1).await;
    here.head().await;
    here.database.be_newer(9999).await;
    let reasons = timeout(BEATS, async { tokio::join!(here.engine.over(), there.engine.over()) }).await.unwrap();
    for reason in [&reasons.0, &reasons.1] {
        assert!(reason.contains("newer version") && reason.contains("9999"), "{reason}");
    }
    assert!(matches!(soon(waiter).await.unwrap(), Err(Fault::Unavailable { .. })), "who waits is told");
    let head = here.engine.timeline().head();
    for node in [&here, &there] {
        assert!(!node.engine.is_healthy());
        let answer = node.engine.run(call(), lease_key("b"), take()).await.map(|done| done.value);
        assert!(matches!(answer, Err(Fault::Unavailable { .. })), "{answer:?}");
        node.renew(&lease).await.unwrap_err();
    }
    sleep(BEATS / 2).await;
    assert_eq!(here.database.verify().await.unwrap().head, head);
    assert!(head > Position(0));
    let error = Engine::open(here.options()).await.err().unwrap();
    assert!(matches!(error, OpenError::Newer { oldest: 9999, .. }), "{error}");
    here.engine.close().await;
    there.engine.close().await;
}
