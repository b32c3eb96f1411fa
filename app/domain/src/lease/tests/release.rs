use super::*;
use crate::lease::ReleaseOutcome;

#[test]
fn a_release_ends_the_lease_now_and_is_repeatable_to_the_letter() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.pass(2);
    let first = desk.release(id);
    assert_eq!(lease(first.clone()).expires_at, desk.now);
    desk.pass(5);
    assert_eq!(desk.release(id), first);
    // Also when somebody else has the key by now.
    desk.former = desk.room.key.lease.clone();
    desk.take(request("b"));
    assert_eq!(desk.release(id), first);
    assert!(desk.room.key.held(desk.now).is_some());
}

#[test]
fn after_expiry_it_is_accepted_as_long_as_nobody_had_the_key_since() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.pass(20);
    let Answer::Done(Reply::Released { outcome, .. }) = desk.release(id) else { panic!() };
    assert_eq!(outcome, ReleaseOutcome::Expired);
    desk.former = desk.room.key.lease.clone();
    let successor = desk.take(request("b"));
    let holder = Some((Owner::parse("b").unwrap(), desk.now));
    assert_eq!(refusal(desk.release(id)), Refusal::LeaseLost { reason: Outcome::Expired, holder });
    assert_eq!(desk.room.key.held(desk.now).map(Lease::id), Some(successor));
}

#[test]
fn a_lease_that_was_taken_away_is_lost_not_released() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.break_lease(0);
    assert_eq!(refusal(desk.release(id)), lost(Outcome::Broken));
}

#[test]
fn min_hold_keeps_the_key_cooling_after_a_release_only() {
    let short = || Acquire { min_hold: Span::millis(5_000), lock_delay: Span::millis(60_000), ..request("a") };
    let mut desk = Desk::new();
    let id = desk.take(short());
    desk.pass(1);
    desk.release(id);
    assert!(matches!(refusal(desk.ask(&Command::Acquire { request: request("b"), wait: None })), Refusal::Cooling(_)));
    desk.pass(4);
    let id = desk.take(short());
    // Past the minimum there is nothing to wait for.
    desk.pass(5);
    desk.release(id);
    let id = desk.take(short());
    desk.ask(&Command::Undelivered { lease_id: id });
    assert_eq!(desk.room.key.cooling_until, None);
    desk.take(request("b"));
}

#[test]
fn an_answer_that_was_not_delivered_ends_only_its_own_lease() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.release(id);
    let successor = desk.take(request("b"));
    assert_eq!(desk.ask(&Command::Undelivered { lease_id: id }), Answer::Done(Reply::Nothing));
    assert_eq!(desk.room.key.held(desk.now).map(Lease::id), Some(successor));
}

#[test]
fn what_is_retained_away_is_unknown() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.release(id);
    desk.take(request("b"));
    assert_eq!(refusal(desk.release(id)), Refusal::LeaseUnknown);
}
