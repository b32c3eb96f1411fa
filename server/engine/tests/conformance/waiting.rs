//! Waiting in line.

use std::time::Duration;

use domain::Reason;
use domain::lease::{Command, Refusal};
use engine::Fault;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::fixture::{Fixture, call, lease_key, refusal};

#[tokio::test]
async fn two_hundred_waiters_are_served_in_the_order_in_which_they_came() {
    let fixture = Fixture::new().await;
    let mut holder = fixture.acquire("a", "first").await.unwrap();
    let mut waiters = Vec::new();
    for n in 0..200 {
        waiters.push(fixture.wait("a", &format!("w{n}"), 60_000));
        fixture.until_waiting("a", n + 1).await;
    }
    for (n, waiter) in waiters.into_iter().enumerate() {
        assert!(!waiter.is_finished());
        fixture.release(&holder).await.unwrap();
        let next = waiter.await.unwrap().unwrap();
        assert_eq!(next.lease.owner.as_str(), format!("w{n}"));
        assert!(next.lease.token > holder.lease.token);
        holder = next;
    }
}

#[tokio::test]
async fn a_hand_off_is_one_command_for_the_next_and_one_for_the_one_before() {
    let fixture = Fixture::new().await;
    let mut holder = fixture.acquire("a", "first").await.unwrap();
    for n in 0..20 {
        let waiter = fixture.wait("a", &format!("w{n}"), 60_000);
        fixture.until_waiting("a", 1).await;
        fixture.release(&holder).await.unwrap();
        holder = waiter.await.unwrap().unwrap();
    }
    let mut registry = Registry::default();
    fixture.engine.metrics().register(&mut registry);
    let mut figures = String::new();
    encode(&mut figures, &registry).unwrap();
    let count = |command: &str| {
        let name = format!("commands_total{{command=\"{command}\"}} ");
        figures.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().unwrap())
    };
    // That a caller who was granted the key does not wait any more is known without looking at the key again.
    assert_eq!((count("acquire"), count("release"), count("settle")), (21, 20, 0));
}

#[tokio::test]
async fn a_waiter_is_granted_when_the_lease_expires_although_nobody_asks() {
    let fixture = Fixture::new().await;
    fixture.acquire("a", "one").await.unwrap();
    let waiter = fixture.wait("a", "two", 60_000);
    fixture.until_waiting("a", 1).await;
    fixture.pass(10_000).await;
    let lease = tokio::time::timeout(Duration::from_secs(10), waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(lease.lease.owner.as_str(), "two");
}

#[tokio::test]
async fn a_waiter_who_is_gone_is_passed_over() {
    let fixture = Fixture::new().await;
    let holder = fixture.acquire("a", "one").await.unwrap();
    let gone = fixture.wait("a", "gone", 60_000);
    fixture.until_waiting("a", 1).await;
    let next = fixture.wait("a", "next", 60_000);
    fixture.until_waiting("a", 2).await;
    gone.abort();
    let _ = gone.await;
    fixture.release(&holder).await.unwrap();
    assert_eq!(next.await.unwrap().unwrap().lease.owner.as_str(), "next");
}

#[tokio::test]
async fn a_wait_ends_at_its_deadline() {
    let fixture = Fixture::new().await;
    fixture.acquire("a", "one").await.unwrap();
    let waiter = fixture.wait("a", "two", 1_000);
    fixture.until_waiting("a", 1).await;
    fixture.pass(1_000).await;
    let Refusal::WaitTimeout(Some(busy)) = refusal(waiter.await.unwrap()) else { panic!() };
    assert_eq!(busy.owner.as_str(), "one");
    assert_eq!(fixture.queue_length("a").await, 0);
}

#[tokio::test]
async fn quarantine_refuses_waiters_and_newcomers_until_it_is_lifted() {
    let fixture = Fixture::new().await;
    let holder = fixture.acquire("a", "one").await.unwrap();
    let waiter = fixture.wait("a", "two", 60_000);
    fixture.until_waiting("a", 1).await;
    let reason = Reason::parse("disk is failing").unwrap();
    let quarantine = Command::Quarantine { reason: reason.clone() };
    fixture.engine.run(call(), lease_key("a"), quarantine).await.unwrap();
    assert!(matches!(refusal(waiter.await.unwrap()), Refusal::Quarantined(_)));
    assert!(matches!(refusal(fixture.wait("a", "three", 60_000).await.unwrap()), Refusal::Quarantined(_)));
    fixture.renew(&holder).await.unwrap();
    fixture.release(&holder).await.unwrap();
    assert!(matches!(refusal(fixture.acquire("a", "three").await), Refusal::Quarantined(_)));
    fixture.engine.run(call(), lease_key("a"), Command::Lift { reason }).await.unwrap();
    fixture.acquire("a", "three").await.unwrap();
}

#[tokio::test]
async fn a_key_has_at_most_a_thousand_waiters() {
    let fixture = Fixture::new().await;
    fixture.acquire("a", "one").await.unwrap();
    let waiters: Vec<_> = (0..1_000).map(|n| fixture.wait("a", &format!("w{n}"), 60_000)).collect();
    fixture.until_waiting("a", 1_000).await;
    let one_more = fixture.wait("a", "one too many", 60_000).await.unwrap();
    assert_eq!(refusal(one_more), Refusal::QueueFull { limit: 1_000 });
    drop(waiters);
}

#[tokio::test]
async fn who_waits_when_the_server_stops_is_told_so() {
    let fixture = Fixture::new().await;
    fixture.acquire("a", "one").await.unwrap();
    let waiter = fixture.wait("a", "two", 60_000);
    fixture.until_waiting("a", 1).await;
    fixture.engine.close().await;
    assert_eq!(waiter.await.unwrap(), Err(Fault::Stopping));
    assert_eq!(fixture.acquire("b", "one").await, Err(Fault::Stopping));
}

#[tokio::test]
async fn five_hundred_callers_who_hang_up_leave_nothing_behind() {
    let fixture = Fixture::new().await;
    let holder = fixture.acquire("a", "one").await.unwrap();
    let callers: Vec<_> = (0..500).map(|n| fixture.wait("a", &format!("w{n}"), 60_000)).collect();
    // Some have come to the queue by now, others not yet.
    for caller in &callers {
        caller.abort();
    }
    for caller in callers {
        let _ = caller.await;
    }
    fixture.until_waiting("a", 0).await;
    fixture.release(&holder).await.unwrap();
    fixture.acquire("a", "next").await.unwrap();
}
