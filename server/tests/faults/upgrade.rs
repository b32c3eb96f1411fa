//! A node whose version a newer one has left behind on the same database.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::history::Call;
use crate::postgres::Postgres;
use crate::process::{IN_TURN, PATIENCE, Place};
use crate::wire::{Connection, post};

#[tokio::test]
async fn a_node_that_a_newer_version_has_left_behind_ends_and_says_why() {
    let _alone = IN_TURN.lock().await;
    let database = Postgres::new().await;
    let place = Place::on(database.url());
    let server = place.start().await;
    let mut waiter = Connection::open(server.address).await.unwrap();
    let wanted = json!({"lease_key": "k", "owner": "one", "ttl_ms": 600_000, "wait_ms": 60_000});
    waiter.send(&post(Call::Acquire.path(), &wanted, "takes", None)).await.unwrap();
    assert_eq!(timeout(PATIENCE, waiter.receive()).await.unwrap().unwrap().status, 200);
    waiter.send(&post(Call::Acquire.path(), &wanted, "waits", None)).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    database.leave_behind().await;
    let began = Instant::now();
    assert_eq!(timeout(PATIENCE, waiter.receive()).await.unwrap().unwrap().status, 503);
    let status = timeout(PATIENCE, server.ended()).await.unwrap();
    assert!(!status.success() && began.elapsed() < Duration::from_secs(15), "{status} after {:?}", began.elapsed());
    let log = place.log();
    assert!(log.contains("this node serves no more") && log.contains("newer version"), "{log}");
    let refused = place.try_start().await.err().unwrap();
    assert!(refused.contains("newer version of Job Leases"), "{refused}");
}
