//! Taking, keeping and giving back.

use std::time::Duration;

use domain::Span;
use domain::lease::{Command, KeyStatus, Outcome, Refusal, ReleaseOutcome, Reply, Verdict};

use crate::fixture::{Fixture, call, lease_key, refusal, terms};

#[tokio::test]
async fn a_free_key_is_granted_at_once_and_refused_to_the_next() {
    let fixture = Fixture::new().await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    assert_eq!(lease.lease.expires_at, lease.lease.acquired_at + Span::millis(10_000));
    let Refusal::Held(busy) = refusal(fixture.acquire("a", "two").await) else { panic!() };
    assert_eq!(busy.owner.as_str(), "one");
    assert_eq!(busy.expires_at, lease.lease.expires_at);
    // Also for the same owner: who lost an answer asks with an idempotency key.
    assert!(matches!(refusal(fixture.acquire("a", "one").await), Refusal::Held(_)));
}

#[tokio::test]
async fn tokens_rise_with_every_grant_and_across_restarts() {
    let mut fixture = Fixture::new().await;
    let mut last = 0;
    for round in 0..10 {
        let lease = fixture.acquire("a", "one").await.unwrap();
        assert!(lease.lease.token.get() > last);
        last = lease.lease.token.get();
        fixture.release(&lease).await.unwrap();
        if round % 3 == 0 {
            fixture.reopen().await;
        }
    }
}

#[tokio::test]
async fn a_lease_survives_a_restart_with_all_its_terms() {
    let mut fixture = Fixture::new().await;
    let mut request = terms("one");
    request.job_key = Some(domain::JobKey::parse("job-1").unwrap());
    request.subjects = std::sync::Arc::from([domain::Subject::parse("customer:acme").unwrap()]);
    request.metadata = domain::Metadata::parse(r#"{"host":"h1"}"#).unwrap();
    request.max_hold = Some(Span::millis(60_000));
    request.min_hold = Span::millis(1_000);
    request.lock_delay = Span::millis(2_000);
    let lease = fixture.acquire_with("a", request).await.unwrap();
    let renewed = fixture.renew(&lease).await.unwrap();
    fixture.reopen().await;
    let Reply::Key(key) = fixture.engine.run(call(), lease_key("a"), Command::Get).await.unwrap().value else {
        panic!()
    };
    assert_eq!(key.state.lease.as_ref(), Some(&renewed.lease));
    assert_eq!(key.state.status(fixture.engine.now()), KeyStatus::Held);
}

#[tokio::test]
async fn what_expired_is_over_and_can_be_had_by_the_next_at_once() {
    let fixture = Fixture::new().await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    fixture.pass(10_000).await;
    assert_eq!(refusal(fixture.renew(&lease).await), Refusal::LeaseLost { reason: Outcome::Expired, holder: None });
    let next = fixture.acquire("a", "two").await.unwrap();
    assert!(next.lease.token > lease.lease.token);
    let Refusal::LeaseLost { reason: Outcome::Expired, holder: Some((owner, _)) } =
        refusal(fixture.release(&lease).await)
    else {
        panic!()
    };
    assert_eq!(owner.as_str(), "two");
    // The successor was not touched.
    fixture.renew(&next).await.unwrap();
}

#[tokio::test]
async fn a_release_is_answered_alike_however_often_it_is_asked_for() {
    let mut fixture = Fixture::new().await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    let first = fixture.release(&lease).await.unwrap();
    assert!(matches!(first, Reply::Released { outcome: ReleaseOutcome::Released, .. }));
    assert_eq!(fixture.release(&lease).await.unwrap(), first);
    let next = fixture.acquire("a", "two").await.unwrap();
    assert_eq!(fixture.release(&lease).await.unwrap(), first);
    fixture.reopen().await;
    assert_eq!(fixture.release(&lease).await.unwrap(), first);
    fixture.renew(&next).await.unwrap();
}

#[tokio::test]
async fn a_lease_of_another_key_is_unknown_here() {
    let fixture = Fixture::new().await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    fixture.acquire("b", "one").await.unwrap();
    let command = Command::Release { lease_id: lease.lease.id() };
    for key in ["b", "never"] {
        let answer = fixture.engine.run(call(), lease_key(key), command.clone()).await;
        assert_eq!(refusal(answer), Refusal::LeaseUnknown);
    }
    fixture.renew(&lease).await.unwrap();
}

#[tokio::test]
async fn acquire_many_takes_all_or_none_and_names_all_in_the_way() {
    let fixture = Fixture::new().await;
    fixture.acquire("b", "one").await.unwrap();
    fixture.acquire("c", "one").await.unwrap();
    let requests = |keys: &[&str]| keys.iter().map(|key| (lease_key(key), terms("two"))).collect();
    let Refusal::KeysBusy(busy) = refusal(fixture.engine.acquire_many(call(), requests(&["a", "b", "c"])).await) else {
        panic!()
    };
    let names: Vec<&str> = busy.iter().map(|busy| busy.lease_key.as_str()).collect();
    assert_eq!(names, ["b", "c"]);
    let done = fixture.engine.acquire_many(call(), requests(&["a", "d"])).await.unwrap();
    done.delivery.unwrap().delivered();
    let Reply::Leases(leases) = done.value else { panic!() };
    assert_eq!(leases.len(), 2);
    assert!(matches!(refusal(fixture.acquire("d", "three").await), Refusal::Held(_)));
}

#[tokio::test]
async fn a_batch_is_carried_out_in_order_each_with_its_result() {
    let fixture = Fixture::new().await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    let take = |owner| Command::Acquire { request: terms(owner), wait: None };
    let commands = vec![
        (lease_key("a"), take("two")),
        (lease_key("a"), Command::Release { lease_id: lease.lease.id() }),
        (lease_key("a"), take("three")),
    ];
    let done = fixture.engine.batch(call(), commands).await.unwrap();
    done.delivery.unwrap().delivered();
    assert!(matches!(done.value[0], Err(Refusal::Held(_))));
    assert!(matches!(done.value[1], Ok(Reply::Released { .. })));
    let Ok(Reply::Lease(taken)) = &done.value[2] else { panic!() };
    assert_eq!(taken.lease.owner.as_str(), "three");
}

#[tokio::test]
async fn a_token_is_current_only_while_its_lease_is_held() {
    let fixture = Fixture::new().await;
    let lease = fixture.acquire("a", "one").await.unwrap();
    let verdict = async |key: &str, token| {
        let command = Command::Validate { token };
        match fixture.engine.run(call(), lease_key(key), command).await.unwrap().value {
            Reply::Verdict { verdict, .. } => verdict,
            other => panic!("{other:?}"),
        }
    };
    let token = lease.lease.token;
    let greater = domain::lease::FencingToken::new(token.get() + 1).unwrap();
    assert_eq!(verdict("a", token).await, Verdict::Current);
    assert_eq!(verdict("a", greater).await, Verdict::Unknown);
    assert_eq!(verdict("never", token).await, Verdict::Unknown);
    fixture.release(&lease).await.unwrap();
    assert_eq!(verdict("a", token).await, Verdict::Stale);
    fixture.acquire("a", "two").await.unwrap();
    assert_eq!(verdict("a", token).await, Verdict::Stale);
}

#[tokio::test]
async fn a_grant_whose_answer_is_dropped_ends_undelivered_and_the_key_is_free() {
    let fixture = Fixture::new().await;
    let mut request = terms("one");
    request.lock_delay = Span::millis(60_000);
    request.min_hold = Span::millis(60_000);
    let command = Command::Acquire { request, wait: None };
    let done = fixture.engine.run(call(), lease_key("a"), command).await.unwrap();
    let Reply::Lease(lost) = &done.value else { panic!() };
    let lost = lost.clone();
    drop(done);
    // Within a second, and without lock delay or minimum hold, for which no time passes here.
    let next = tokio::time::timeout(Duration::from_secs(10), fixture.wait("a", "two", 60_000));
    let next = next.await.unwrap().unwrap().unwrap();
    assert!(next.lease.token > lost.lease.token);
    assert_eq!(
        refusal(fixture.renew(&lost).await),
        Refusal::LeaseLost {
            reason: Outcome::Undelivered,
            holder: Some((next.lease.owner.clone(), next.lease.acquired_at)),
        }
    );
}
