//! The same request twice.

use domain::lease::{Command, Outcome, Refusal, Reply};
use engine::Fault;

use crate::fixture::{Fixture, call, call_once, lease_key, refusal, terms};

fn take() -> Command {
    Command::Acquire { request: terms("one"), wait: None }
}

#[tokio::test]
async fn the_same_request_again_has_the_same_answer_and_no_second_effect() {
    let mut fixture = Fixture::new().await;
    let first = fixture.engine.run(call_once("k", 1), lease_key("a"), take()).await.unwrap();
    assert!(!first.replayed && first.delivery.is_none());
    let head = fixture.head().await;
    let again = fixture.engine.run(call_once("k", 1), lease_key("a"), take()).await.unwrap();
    assert!(again.replayed);
    assert_eq!(again.value, first.value);
    fixture.reopen().await;
    let after_restart = fixture.engine.run(call_once("k", 1), lease_key("a"), take()).await.unwrap();
    assert!(after_restart.replayed);
    assert_eq!(after_restart.value, first.value);
    assert_eq!(fixture.head().await, head);
}

#[tokio::test]
async fn another_request_under_the_same_key_is_refused_without_effect() {
    let fixture = Fixture::new().await;
    fixture.engine.run(call_once("k", 1), lease_key("a"), take()).await.unwrap();
    let other = fixture.engine.run(call_once("k", 2), lease_key("b"), take()).await;
    assert_eq!(other.unwrap_err(), Fault::IdempotencyMismatch);
    fixture.acquire("b", "two").await.unwrap();
}

#[tokio::test]
async fn a_replayed_acquire_tells_the_lease_as_it_is_now() {
    let fixture = Fixture::new().await;
    let first = fixture.engine.run(call_once("k", 1), lease_key("a"), take()).await.unwrap();
    let Reply::Lease(lease) = first.value else { panic!() };
    fixture.pass(4_000).await;
    let renewed = fixture.renew(&lease).await.unwrap();
    let again = fixture.engine.run(call_once("k", 1), lease_key("a"), take()).await.unwrap();
    assert_eq!(again.value, Reply::Lease(renewed.clone()));
    fixture.release(&renewed).await.unwrap();
    fixture.acquire("a", "two").await.unwrap();
    let over = fixture.engine.run(call_once("k", 1), lease_key("a"), take()).await;
    assert!(matches!(
        refusal(over),
        Refusal::LeaseLost { reason: Outcome::Released, holder: Some((owner, _)) } if owner.as_str() == "two"
    ));
}

#[tokio::test]
async fn a_replayed_renewal_never_makes_a_dead_lease_look_alive() {
    let fixture = Fixture::new().await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    let renew = || Command::Renew { lease_id: lease.lease.id(), ttl: None, shorten: false };
    let renewed = fixture.engine.run(call_once("k", 1), lease_key("a"), renew()).await.unwrap();
    let batch = || vec![(lease_key("a"), renew()), (lease_key("a"), Command::Release { lease_id: lease.lease.id() })];
    let again = fixture.engine.run(call_once("k", 1), lease_key("a"), renew()).await.unwrap();
    assert!(again.replayed);
    assert_eq!(again.value, renewed.value);
    fixture.engine.batch(call_once("b", 1), batch()).await.unwrap();
    let over = fixture.engine.run(call_once("k", 1), lease_key("a"), renew()).await;
    assert!(matches!(refusal(over), Refusal::LeaseLost { reason: Outcome::Released, holder: None }));
    let both = fixture.engine.batch(call_once("b", 1), batch()).await.unwrap();
    assert!(both.replayed);
    assert!(matches!(both.value[0], Err(Refusal::LeaseLost { reason: Outcome::Released, .. })), "{:?}", both.value);
    assert!(matches!(both.value[1], Ok(Reply::Released { .. })), "{:?}", both.value);
}

#[tokio::test]
async fn a_refusal_without_effect_is_not_remembered() {
    let fixture = Fixture::new().await;
    let holder = fixture.acquire("a", "two").await.unwrap();
    assert!(matches!(refusal(fixture.engine.run(call_once("k", 1), lease_key("a"), take()).await), Refusal::Held(_)));
    fixture.release(&holder).await.unwrap();
    let granted = fixture.engine.run(call_once("k", 1), lease_key("a"), take()).await.unwrap();
    assert!(!granted.replayed);
}

#[tokio::test]
async fn the_original_is_in_progress_only_while_it_waits() {
    let fixture = Fixture::new().await;
    let holder = fixture.acquire("a", "two").await.unwrap();
    let waiter = fixture.wait_as(call_once("k", 1), "a", terms("one"), 60_000);
    fixture.until_waiting("a", 1).await;
    let meanwhile = fixture.wait_as(call_once("k", 1), "a", terms("one"), 60_000).await.unwrap();
    assert_eq!(meanwhile, Err(Fault::IdempotencyInProgress));
    let other = fixture.wait_as(call_once("k", 2), "a", terms("one"), 60_000).await.unwrap();
    assert_eq!(other, Err(Fault::IdempotencyMismatch));
    waiter.abort();
    let _ = waiter.await;
    let again = fixture.wait_as(call_once("k", 1), "a", terms("one"), 60_000);
    fixture.until_waiting("a", 1).await;
    fixture.release(&holder).await.unwrap();
    let granted = again.await.unwrap().unwrap();
    let replayed = fixture.engine.run(call_once("k", 1), lease_key("a"), take()).await.unwrap();
    assert!(replayed.replayed);
    assert_eq!(replayed.value, Reply::Lease(granted));
}

#[tokio::test]
async fn a_grant_under_an_idempotency_key_is_kept_although_its_answer_was_lost() {
    let fixture = Fixture::new().await;
    let holder = fixture.acquire("a", "two").await.unwrap();
    let waiter = fixture.wait_as(call_once("k", 1), "a", terms("one"), 60_000);
    fixture.until_waiting("a", 1).await;
    fixture.release(&holder).await.unwrap();
    drop(waiter);
    let again = fixture.engine.run(call_once("k", 1), lease_key("a"), take()).await.unwrap();
    assert!(again.replayed);
    let other = fixture.engine.run(call(), lease_key("a"), take()).await;
    assert!(matches!(refusal(other), Refusal::Held(_)));
}
