//! A pooler that is killed in the middle of the work, and comes back.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::Engine;
use tokio::time::{sleep, timeout};

use crate::connections::{take_once, until_available};
use crate::fixture::{Fixture, options};
use crate::nodes::{grants, soon};
use crate::programs::Pooler;
use crate::server::named_server;

/// How often it is killed.
const KILLS: usize = 12;

/// Two nodes that share a pooler, one of which listens round it.
async fn two_nodes() -> (Fixture, Fixture, Pooler) {
    let (database, hands) = Fixture::unopened().await;
    let server = named_server();
    let pooler = Pooler::start(server.get_host(), server.get_port());
    let open = |node| {
        let by = database.options_by(SocketAddr::from((Ipv4Addr::LOCALHOST, pooler.port())), node).database;
        Engine::open(engine::Options { database: by, ..options(&database, &hands) })
    };
    let (here, there) = (open(0).await.unwrap(), open(1).await.unwrap());
    let node = |engine| Fixture { engine, hands: Arc::clone(&hands), database: Arc::clone(&database) };
    (node(here), node(there), pooler)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_again_after_the_pooler_was_killed_is_done_once_whenever_that_was() {
    let (here, there, mut pooler) = two_nodes().await;
    let (here, there) = (Arc::new(here), Arc::new(there));
    let is_over = Arc::new(AtomicBool::new(false));
    let caller = |n: usize| {
        let node = Arc::clone(if n.is_multiple_of(2) { &here } else { &there });
        let is_over = Arc::clone(&is_over);
        tokio::spawn(async move {
            let mut keys = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let key = format!("k{n}/{}", keys.len());
                let lease = until_available(|| take_once(&node, &key)).await.unwrap();
                let again = until_available(|| take_once(&node, &key)).await.unwrap();
                assert_eq!(again, lease);
                keys.push(key);
            }
            keys
        })
    };
    let callers: Vec<_> = (0..6).map(caller).collect();
    for n in 0..KILLS {
        sleep(Duration::from_millis(150 + 10 * n as u64)).await;
        pooler.kill();
        sleep(Duration::from_millis(n as u64 % 3 * 40)).await;
        pooler.go_on();
    }
    is_over.store(true, Ordering::Relaxed);
    let mut keys = Vec::new();
    for caller in callers {
        keys.extend(timeout(Duration::from_secs(20), caller).await.unwrap().unwrap());
    }
    assert!(keys.len() >= KILLS, "{}", keys.len());
    let lines = here.lines().await;
    for key in keys {
        assert_eq!(grants(&lines, &key), 1, "{key}");
    }
}

#[tokio::test]
async fn who_waits_is_granted_across_nodes_after_the_pooler_was_killed_with_a_hint_or_without() {
    let (here, there, mut pooler) = two_nodes().await;
    for (waits, releases) in [(&here, &there), (&there, &here)] {
        let holder = until_available(|| releases.acquire("a", "one")).await.unwrap();
        let waiter = waits.wait("a", "two", 60_000);
        releases.until_waiting("a", 1).await;
        pooler.kill();
        sleep(Duration::from_millis(100)).await;
        pooler.go_on();
        until_available(|| releases.release(&holder)).await.unwrap();
        let lease = soon(waiter).await.unwrap().unwrap();
        assert_eq!(lease.lease.owner.as_str(), "two");
        until_available(|| waits.release(&lease)).await.unwrap();
    }
}
