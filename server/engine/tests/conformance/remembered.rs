//! What a node decides by what it wrote last: only as long as nobody else came between.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use domain::lease::{Command, LeaseReading, Refusal, Reply};
use domain::{Reason, Role, Timestamp};
use engine::{Call, Fault};
use prometheus_client::registry::Registry;

use crate::fixture::{Fixture, call, lease_key, refusal, terms};
use crate::nodes::{grants, scope, soon, take, two_nodes};

/// How many batches of a node were decided so, by what came of it.
fn remembered(fixture: &Fixture) -> HashMap<String, u64> {
    let (mut registry, mut text) = (Registry::default(), String::new());
    fixture.engine.metrics().register(&mut registry);
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let counted =
        text.lines().filter_map(|line| line.strip_prefix("remembered_batches_total{result=\"")?.split_once("\"} "));
    counted.map(|(result, count)| (result.to_owned(), count.parse().unwrap())).collect()
}

fn came_to(fixture: &Fixture, result: &str) -> u64 {
    remembered(fixture).get(result).copied().unwrap_or(0)
}

/// Takes a key and gives it back, so that the node wrote it last.
async fn know(fixture: &Fixture, key: &str) -> LeaseReading {
    let lease = fixture.acquire(key, "one").await.unwrap();
    fixture.release(&lease).await.unwrap();
    lease
}

/// Lets the node go by its memory again, which it does not for a while after it was wrong.
async fn trust(fixture: &Fixture) {
    soon(async {
        for n in 0.. {
            let right = came_to(fixture, "right");
            know(fixture, &format!("trusted/{n}")).await;
            if came_to(fixture, "right") > right {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_key_that_comes_again_is_not_read_again() {
    let fixture = Fixture::new().await;
    let mut last = know(&fixture, "a").await;
    let before = came_to(&fixture, "right");
    for _ in 0..50 {
        let next = fixture.acquire("a", "two").await.unwrap();
        assert!(next.lease.token > last.lease.token);
        assert!(matches!(refusal(fixture.acquire("a", "three").await), Refusal::Held(_)));
        fixture.renew(&next).await.unwrap();
        fixture.release(&next).await.unwrap();
        last = next;
    }
    // All four of each round, but for what a slow machine let grow cold.
    assert!(came_to(&fixture, "right") > before + 150, "{:?}", remembered(&fixture));
    assert_eq!(came_to(&fixture, "stale"), 0);
    fixture.database.verify().await.unwrap();
}

#[tokio::test]
async fn a_lease_that_another_node_gave_meanwhile_is_not_given_again() {
    let (here, there) = two_nodes().await;
    for n in 0..5 {
        let key = format!("k{n}");
        trust(&here).await;
        let mine = know(&here, &key).await;
        let theirs = there.acquire(&key, "two").await.unwrap();
        assert!(theirs.lease.token > mine.lease.token);
        match refusal(here.acquire(&key, "three").await) {
            Refusal::Held(held) => assert_eq!(held.owner, theirs.lease.owner),
            other => panic!("{other:?}"),
        }
    }
    assert!(came_to(&here, "stale") >= 3, "{:?}", remembered(&here));
}

#[tokio::test]
async fn nobody_is_refused_for_a_lease_that_another_node_has_ended_meanwhile() {
    let (here, there) = two_nodes().await;
    for n in 0..5 {
        let key = format!("k{n}");
        trust(&here).await;
        let mine = here.acquire(&key, "one").await.unwrap();
        there.release(&mine).await.unwrap();
        let next = here.acquire(&key, "two").await.unwrap();
        assert!(next.lease.token > mine.lease.token);
        // And what is over is not prolonged.
        assert!(here.renew(&mine).await.is_err());
    }
    assert!(came_to(&here, "stale") >= 3, "{:?}", remembered(&here));
}

#[tokio::test]
async fn what_an_operator_did_at_another_node_holds_here() {
    let (here, there) = two_nodes().await;
    let reason = || Reason::parse("because").unwrap();
    for n in 0..10 {
        let key = format!("k{n}");
        trust(&here).await;
        know(&here, &key).await;
        there.run(&key, Command::Quarantine { reason: reason() }).await;
        assert!(matches!(refusal(here.acquire(&key, "two").await), Refusal::Quarantined(_)));
        there.run(&key, Command::Lift { reason: reason() }).await;
        here.acquire(&key, "two").await.unwrap();
    }
}

#[tokio::test]
async fn a_batch_is_decided_anew_as_a_whole_if_another_node_had_one_of_its_keys() {
    let (here, there) = two_nodes().await;
    let keys: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
    let take_all = async || {
        let take = |key: &String| (lease_key(key), Command::Acquire { request: terms("three"), wait: None });
        let done = here.engine.batch(call(), keys.iter().map(take).collect()).await.unwrap();
        done.delivery.expect("a grant").delivered();
        done.value
    };
    // Twice, so that tokens for so many are at hand.
    for _ in 0..2 {
        for result in take_all().await {
            match result {
                Ok(Reply::Lease(lease)) => here.release(&lease).await.unwrap(),
                other => panic!("{other:?}"),
            };
        }
    }
    let theirs = there.acquire("k7", "two").await.unwrap();
    for (n, result) in take_all().await.into_iter().enumerate() {
        match result {
            Ok(Reply::Lease(_)) if n != 7 => {}
            Err(Refusal::Held(held)) if n == 7 => assert_eq!(held.owner, theirs.lease.owner),
            other => panic!("{n}: {other:?}"),
        }
    }
    assert_eq!(came_to(&here, "stale"), 1, "{:?}", remembered(&here));
    let lines = here.lines().await;
    for key in &keys {
        assert_eq!(grants(&lines, key), 3, "{key}");
    }
}

#[tokio::test]
async fn who_waits_here_is_served_by_memory_and_who_waits_elsewhere_too() {
    let (here, there) = two_nodes().await;
    trust(&here).await;
    know(&here, "a").await;
    let first = here.acquire("a", "one").await.unwrap();
    let second = here.wait("a", "two", 60_000);
    here.until_waiting("a", 1).await;
    let third = there.wait("a", "three", 60_000);
    here.until_waiting("a", 2).await;
    let fourth = here.wait("a", "four", 60_000);
    here.until_waiting("a", 3).await;
    here.release(&first).await.unwrap();
    let second = soon(second).await.unwrap().unwrap();
    here.release(&second).await.unwrap();
    let third = soon(third).await.unwrap().unwrap();
    there.release(&third).await.unwrap();
    let fourth = soon(fourth).await.unwrap().unwrap();
    let tokens = [first, second, third, fourth].map(|lease| lease.lease.token);
    assert!(tokens.is_sorted(), "{tokens:?}");
}

#[tokio::test]
async fn time_that_passed_unseen_ends_leases_although_they_are_remembered() {
    let fixture = Fixture::new().await;
    trust(&fixture).await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    fixture.pass(10_100).await;
    fixture.acquire("a", "two").await.unwrap();
    assert!(matches!(fixture.renew(&lease).await, Err(Fault::Refused(_))));
}

#[tokio::test]
async fn whose_token_another_node_has_revoked_is_given_nothing_that_is_remembered() {
    let (here, there) = two_nodes().await;
    for n in 0..5 {
        let made = here.engine.create_token(call(), "worker", scope(Role::Worker), None).await.unwrap().value;
        let known = here.engine.authenticate(&made.secret.unwrap()).await.unwrap().unwrap();
        let caller = Call { actor: Arc::clone(&known.actor), ..call() };
        let key = format!("k{n}");
        trust(&here).await;
        know(&here, &key).await;
        there.engine.revoke_token(call(), &made.token.token_id).await.unwrap();
        let answer = here.engine.run(caller, lease_key(&key), take()).await.map(|done| done.value);
        assert_eq!(answer, Err(Fault::NotGoodAnyMore));
    }
}

#[tokio::test]
async fn an_outage_that_another_node_has_recorded_extends_leases_that_are_remembered_here() {
    let (here, there) = two_nodes().await;
    trust(&here).await;
    here.acquire("a", "one").await.unwrap();
    // Nobody shows that the service lives.
    here.hands.pass(9_000).await;
    there.acquire("b", "two").await.unwrap();
    // Without it the lease would be over by now.
    here.hands.pass(1_500).await;
    assert!(matches!(refusal(here.acquire("a", "three").await), Refusal::Held(_)));
}

#[tokio::test]
async fn nothing_is_written_by_a_time_that_is_not_the_databases() {
    let fixture = Fixture::new().await;
    trust(&fixture).await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    let (right, stale) = (came_to(&fixture, "right"), came_to(&fixture, "stale"));
    fixture.database.set_back(1_000).await;
    let renewed = fixture.renew(&lease).await.unwrap();
    assert!(renewed.lease.expires_at >= lease.lease.expires_at);
    assert_eq!((came_to(&fixture, "right"), came_to(&fixture, "stale")), (right, stale + 1));
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "it is real time in which the database waits")]
async fn what_is_decided_a_little_before_its_time_is_written_when_the_database_has_come_to_it() {
    const BEFORE: u64 = 4;
    let fixture = Fixture::new().await;
    trust(&fixture).await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    fixture.database.set_back(i64::try_from(BEFORE).unwrap()).await;
    for _ in 0..10 {
        let right = came_to(&fixture, "right");
        let began = tokio::time::Instant::now();
        fixture.renew(&lease).await.unwrap();
        let took = began.elapsed();
        if came_to(&fixture, "right") > right {
            assert!(took >= Duration::from_millis(BEFORE), "{took:?}");
            return;
        }
    }
    panic!("nothing was decided by memory: {:?}", remembered(&fixture));
}

/// Reads a key; as of what time.
async fn look(fixture: &Fixture, key: &str) -> Timestamp {
    fixture.engine.run(call(), lease_key(key), Command::Get).await.unwrap().server_time
}

#[tokio::test]
async fn nothing_happens_to_a_key_before_the_time_as_of_which_another_node_has_told_of_it() {
    let (here, there) = two_nodes().await;
    for n in 0..6 {
        let key = format!("k{n}");
        trust(&here).await;
        know(&here, &key).await;
        // What this node takes for the time is a little earlier than the database's, and than what the other one tells by that.
        here.database.set_back(-100).await;
        let told = look(&there, &key).await;
        let lease = here.acquire(&key, "two").await.unwrap().lease;
        assert!(lease.acquired_at >= told, "{n}: {:?} {told:?}", lease.acquired_at);
        here.hands.pass(200).await;
    }
}

#[tokio::test]
async fn a_key_that_another_node_is_at_is_not_told_of_by_memory() {
    let fixture = Fixture::new().await;
    trust(&fixture).await;
    know(&fixture, "a").await;
    let held = fixture.database.hold_key("a").await;
    let engine = fixture.engine.clone();
    let reading = tokio::spawn(async move { engine.run(call(), lease_key("a"), Command::Get).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!reading.is_finished());
    held.let_go().await;
    soon(reading).await.unwrap().unwrap();
    // Who was at it and is not any more does not matter.
    trust(&fixture).await;
    know(&fixture, "a").await;
    fixture.database.hold_key("a").await.let_go().await;
    let right = came_to(&fixture, "right");
    look(&fixture, "a").await;
    assert_eq!(came_to(&fixture, "right"), right + 1);
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "it is real time in which the node waits")]
async fn a_key_that_is_read_is_kept_until_the_database_has_come_to_the_time_as_of_which_it_is_told() {
    const BEFORE: u64 = 4;
    let (here, there) = two_nodes().await;
    know(&there, "a").await;
    here.database.set_back(i64::try_from(BEFORE).unwrap()).await;
    for _ in 0..20 {
        let began = tokio::time::Instant::now();
        look(&here, "a").await;
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(BEFORE), "{took:?}");
    }
}
