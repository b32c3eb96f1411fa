use super::*;
use crate::lease::Outage;

#[test]
fn a_break_with_grace_ends_the_lease_by_then() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.break_lease(5);
    desk.pass(4);
    assert_eq!(lease(desk.renew(id, 10)).expires_at, desk.now + SECOND);
    desk.pass(1);
    let decision = desk.decide(&Command::Renew { lease_id: id, ttl: None, shorten: false });
    assert_eq!(refusal(decision.answer), lost(Outcome::Broken));
    // It is the operator's doing, with the operator's reason, though the clock brought it about.
    let event = &decision.settled.events[0];
    assert_eq!((event.change.kind(), &*event.actor.id), ("lease.broken", "operator"));
    assert_eq!(event.change.ended().unwrap().1.reason, Some(reason()));
}

#[test]
fn a_lease_that_runs_out_before_the_grace_expires() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.break_lease(60);
    desk.pass(10);
    assert_eq!(refusal(desk.renew(id, 10)), lost(Outcome::Expired));
}

#[test]
fn a_second_break_only_brings_the_end_forward() {
    let mut desk = Desk::new();
    desk.take(request("a"));
    desk.break_lease(5);
    let later = desk.decide(&Command::Break { reason: reason(), grace: Span::millis(8_000), lease_id: None });
    assert!(later.settled.events.is_empty());
    assert_eq!(lease(later.answer).expires_at, desk.now + Span::millis(5_000));
    assert_eq!(lease(desk.break_lease(2)).expires_at, desk.now + Span::millis(2_000));
    assert_eq!(lease(desk.break_lease(0)).ended.map(|end| end.outcome), Some(Outcome::Broken));
    assert_eq!(refusal(desk.break_lease(0)), Refusal::NotHeld);
}

#[test]
fn a_break_meant_for_another_lease_touches_nothing() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.release(id);
    desk.former = desk.room.key.lease.clone();
    let successor = desk.take(request("b"));
    let command = Command::Break { reason: reason(), grace: Span::ZERO, lease_id: Some(id) };
    let holder = Some((Owner::parse("b").unwrap(), desk.now));
    assert_eq!(refusal(desk.ask(&command)), Refusal::LeaseLost { reason: Outcome::Released, holder });
    assert_eq!(desk.room.key.held(desk.now).map(Lease::id), Some(successor));
}

#[test]
fn a_break_at_once_serves_the_next_waiter_unless_the_key_cools() {
    for (lock_delay, served) in [(Span::ZERO, 1), (SECOND, 0)] {
        let mut desk = Desk::new();
        desk.take(Acquire { lock_delay, ..request("a") });
        desk.wait("b", 1, 60);
        let decision = desk.decide(&Command::Break { reason: reason(), grace: Span::ZERO, lease_id: None });
        assert_eq!(decision.settled.woken.len(), served);
    }
}

#[test]
fn an_outage_gives_the_least_of_ttl_grace_and_its_length_to_those_alive_at_its_start() {
    let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
    let outage = Outage { from: at(1_004), to: at(1_030), grace_us: Span::millis(5_000) };
    let read = |change: &dyn Fn(&mut Desk)| {
        let mut desk = Desk::new();
        desk.take(request("a"));
        change(&mut desk);
        desk.room.key.through(&outage);
        desk.room.key.lease.unwrap().expires_at
    };
    assert_eq!(read(&|_| {}), at(1_035));
    assert_eq!(read(&|desk| desk.room.key.lease.as_mut().unwrap().ttl = Span::millis(2_000)), at(1_032));
    // Never past max hold or the end of a break, never less than it was.
    assert_eq!(read(&|desk| desk.room.key.lease.as_mut().unwrap().max_hold_until = Some(at(1_031))), at(1_031));
    assert_eq!(read(&|desk| drop(desk.break_lease(8))), at(1_008));
    assert_eq!(read(&|desk| drop(desk.renew(LeaseId::from(FencingToken::new(1).unwrap()), 600))), at(1_600));
    // What was over before stays over.
    assert_eq!(read(&|desk| desk.room.key.lease.as_mut().unwrap().expires_at = at(1_004)), at(1_004));
    assert_eq!(read(&|desk| drop(desk.break_lease(0))), at(1_000));
}
