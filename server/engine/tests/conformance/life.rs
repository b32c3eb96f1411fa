//! How nodes come and go: orderly, by a crash, or standing still for a while without knowing it.

use std::sync::mpsc;
use std::time::Duration;

use domain::Span;
use domain::lease::{Acquire, Command, LeaseReading, Outcome, Refusal, Wait};
use engine::timeline::Line;
use engine::{Engine, Fault};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::fixture::{Fixture, call, delivered, lease_key, options, refusal, terms};
use crate::nodes::{grants, soon, take, two_nodes};

/// A node whose tasks can be stopped, or killed, without its knowing: as if it were a process of its own.
struct Elsewhere {
    engine: Engine,
    runtime: Option<Runtime>,
}

impl Elsewhere {
    async fn beside(fixture: &Fixture) -> Self {
        let options = fixture.options();
        let opened = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            let engine = runtime.block_on(Engine::open(options)).unwrap();
            (engine, runtime)
        });
        let (engine, runtime) = opened.await.unwrap();
        Self { engine, runtime: Some(runtime) }
    }

    fn wait(&self, key: &str, owner: &str) -> JoinHandle<Result<LeaseReading, Fault>> {
        let (engine, key) = (self.engine.clone(), lease_key(key));
        let command = Command::Acquire { request: terms(owner), wait: Some(Wait::lasting(Span::millis(60_000))) };
        let runtime = self.runtime.as_ref().unwrap();
        runtime.spawn(async move { engine.run(call(), key, command).await.map(delivered) })
    }

    /// It stands still until what is answered is dropped.
    fn stop(&self) -> mpsc::Sender<()> {
        let (go_on, stopped) = mpsc::channel();
        // On its only thread.
        self.runtime.as_ref().unwrap().spawn(async move {
            let _ = stopped.recv();
        });
        go_on
    }

    /// It ends, with all its connections, in the middle of whatever it does.
    fn kill(mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Lets time pass as slowly as it takes for nodes to show, each real second, that they live.
async fn pass_slowly(fixture: &Fixture, millis: i64) {
    for _ in 0..millis / 500 {
        fixture.hands.pass(500).await;
        sleep(Duration::from_millis(800)).await;
    }
}

fn outages(lines: &[Line]) -> usize {
    lines.iter().filter(|line| line.body.contains("service.outage")).count()
}

#[tokio::test]
async fn who_waits_at_a_node_that_stops_is_told_so_and_passed_over_at_once() {
    let (here, there) = two_nodes().await;
    let holder = here.acquire("a", "one").await.unwrap();
    let gone = there.wait("a", "gone", 60_000);
    here.until_waiting("a", 1).await;
    let next = here.wait("a", "next", 60_000);
    here.until_waiting("a", 2).await;
    there.engine.close().await;
    assert_eq!(soon(gone).await.unwrap(), Err(Fault::Stopping));
    here.release(&holder).await.unwrap();
    assert_eq!(soon(next).await.unwrap().unwrap().lease.owner.as_str(), "next");
    assert_eq!(grants(&here.lines().await, "a"), 2);
}

#[tokio::test]
async fn who_waits_at_a_node_that_dies_is_passed_over_three_seconds_later() {
    let here = Fixture::new().await;
    let there = Elsewhere::beside(&here).await;
    let holder = here.acquire("a", "one").await.unwrap();
    the_dead_are_passed_over(&here, there, &holder).await;
    let lines = here.lines().await;
    assert_eq!((grants(&lines, "a"), outages(&lines)), (2, 0));
}

#[tokio::test]
async fn while_the_databases_clock_is_behind_who_waits_at_a_node_that_dies_is_passed_over_as_ever() {
    let here = Fixture::new().await;
    let there = Elsewhere::beside(&here).await;
    let holder = here.acquire("a", "one").await.unwrap();
    here.database.set_back(3_600_000).await;
    the_dead_are_passed_over(&here, there, &holder).await;
    assert_eq!(grants(&here.lines().await, "a"), 2);
}

/// Somebody waits at a node that dies then; the next in the queue is granted the key when it is given back.
async fn the_dead_are_passed_over(here: &Fixture, there: Elsewhere, holder: &LeaseReading) {
    let _gone = there.wait("a", "gone");
    here.until_waiting("a", 1).await;
    let next = here.wait("a", "next", 60_000);
    here.until_waiting("a", 2).await;
    there.kill();
    pass_slowly(here, 4_500).await;
    here.release(holder).await.unwrap();
    assert_eq!(soon(next).await.unwrap().unwrap().lease.owner.as_str(), "next");
}

#[tokio::test]
async fn a_node_that_starts_while_the_databases_clock_is_behind_goes_by_the_time_of_those_that_live() {
    let here = Fixture::new().await;
    here.database.set_back(3_600_000).await;
    // A moment after its last sign of life, and before the next.
    let mark = here.database.mark().await;
    here.hands.pass(1).await;
    while here.database.mark().await == mark {
        sleep(Duration::from_millis(5)).await;
    }
    here.hands.pass(700).await;
    let now = here.engine.now();
    let there = here.another().await;
    assert!(there.engine.now() >= now, "{} {now}", there.engine.now());
    let lease = there.acquire("a", "one").await.unwrap();
    assert!(lease.lease.acquired_at >= now);
}

#[tokio::test]
async fn a_node_that_stands_still_beside_a_living_one_is_no_outage_and_goes_on_afterwards() {
    let here = Fixture::new().await;
    let there = Elsewhere::beside(&here).await;
    let short = Acquire { ttl: Span::millis(3_000), ..terms("one") };
    let command = Command::Acquire { request: short, wait: None };
    let lease = soon(there.engine.run(call(), lease_key("b"), command)).await.map(delivered).unwrap();
    let holder = here.acquire("a", "one").await.unwrap();
    let _still = there.wait("a", "still");
    here.until_waiting("a", 1).await;
    let next = here.wait("a", "next", 60_000);
    here.until_waiting("a", 2).await;
    let go_on = there.stop();
    pass_slowly(&here, 4_500).await;
    // It does not live as far as anybody can see: nobody waits for it.
    here.release(&holder).await.unwrap();
    assert_eq!(soon(next).await.unwrap().unwrap().lease.owner.as_str(), "next");
    drop(go_on);
    // The lease that it had granted was not prolonged by anything.
    let renew = Command::Renew { lease_id: lease.lease.id(), ttl: None, shorten: false };
    let renewed = soon(there.engine.run(call(), lease_key("b"), renew)).await.map(|done| done.value);
    assert_eq!(refusal(renewed), Refusal::LeaseLost { reason: Outcome::Expired, holder: None });
    soon(there.engine.run(call(), lease_key("c"), take())).await.map(delivered).unwrap();
    refusal(here.acquire("c", "two").await);
    assert_eq!(outages(&here.lines().await), 0);
}

#[tokio::test]
async fn an_outage_of_all_nodes_is_recorded_once() {
    let (here, there) = two_nodes().await;
    let lease = here.acquire("a", "one").await.unwrap();
    here.hands.pass(60_000).await;
    tokio::join!(here.touch(), there.touch(), here.touch(), there.touch());
    there.renew(&lease).await.unwrap();
    assert_eq!(outages(&here.lines().await), 1);
    here.hands.pass(60_000).await;
    tokio::join!(here.touch(), there.touch());
    here.renew(&lease).await.unwrap();
    assert_eq!(outages(&there.lines().await), 2);
}

#[tokio::test]
async fn nodes_may_be_the_first_at_the_same_time() {
    let (database, hands) = Fixture::unopened().await;
    let open = || Engine::open(options(&database, &hands));
    let (one, two, three) = tokio::join!(open(), open(), open());
    let mut last = 0;
    for engine in [one.unwrap(), two.unwrap(), three.unwrap()] {
        let lease = delivered(engine.run(call(), lease_key("a"), take()).await.unwrap());
        assert!(lease.lease.token.get() > last);
        last = lease.lease.token.get();
        engine.run(call(), lease_key("a"), Command::Release { lease_id: lease.lease.id() }).await.unwrap();
    }
}

#[tokio::test]
async fn a_node_starts_although_another_stands_still_in_the_middle_of_a_change() {
    let here = Fixture::new().await;
    let holding = here.database.stand_still().await;
    let there = here.another().await;
    let lease = there.acquire("a", "one").await.unwrap();
    here.renew(&lease).await.unwrap();
    drop(holding);
}

#[tokio::test]
async fn the_last_node_leaves_all_that_the_next_first_needs() {
    let (mut here, there) = two_nodes().await;
    let lease = here.acquire("a", "one").await.unwrap();
    there.renew(&lease).await.unwrap();
    there.engine.close().await;
    here.reopen().await;
    let renewed = here.renew(&lease).await.unwrap();
    assert_eq!(renewed.lease.renewals, 2);
    assert_eq!(here.lines().await.len(), 3);
    refusal(here.acquire("a", "two").await);
}
