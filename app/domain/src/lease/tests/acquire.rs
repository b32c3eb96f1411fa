use super::*;
use crate::lease::{Busy, Origin, decide_many};

#[test]
fn a_free_key_is_granted_from_now_on_for_the_ttl() {
    let mut desk = Desk::new();
    let lease = lease(desk.ask(&Command::Acquire { request: request("a"), wait: None }));
    assert_eq!((lease.acquired_at, lease.expires_at), (desk.now, desk.now + Span::millis(10_000)));
    assert_eq!(lease.max_hold_until, None);
}

#[test]
fn a_held_key_is_refused_to_everybody_its_owner_included() {
    let mut desk = Desk::new();
    desk.take(request("a"));
    let since = desk.now;
    desk.pass(4);
    for owner in ["a", "b"] {
        let refused = refusal(desk.ask(&Command::Acquire { request: request(owner), wait: None }));
        let busy = Busy {
            owner: Owner::parse("a").unwrap(),
            since,
            expires_at: since + Span::millis(10_000),
            retry_after: Span::millis(5_000),
            queue_length: 0,
        };
        assert_eq!(refused, Refusal::Held(busy));
    }
}

#[test]
fn an_expired_key_is_to_be_had_at_the_very_instant() {
    let mut desk = Desk::new();
    desk.take(request("a"));
    desk.pass(10);
    let decision = desk.decide(&Command::Acquire { request: request("b"), wait: None });
    let kinds: Vec<_> = decision.settled.events.iter().map(|event| event.change.kind()).collect();
    assert_eq!(kinds, ["lease.expired", "lease.granted"]);
}

#[test]
fn lock_delay_counts_from_the_expiry_not_from_its_discovery() {
    let mut desk = Desk::new();
    desk.take(Acquire { lock_delay: Span::millis(3_000), ..request("a") });
    desk.pass(12);
    let refused = refusal(desk.ask(&Command::Acquire { request: request("b"), wait: None }));
    let Refusal::Cooling(busy) = refused else { panic!("{refused:?}") };
    assert_eq!((busy.since + Span::millis(2_000), busy.expires_at), (desk.now, desk.now + SECOND));
    desk.pass(1);
    desk.take(request("b"));
}

#[test]
fn the_ttl_of_a_grant_never_goes_past_max_hold() {
    let mut desk = Desk::new();
    let request = Acquire { max_hold: Some(Span::millis(3_000)), ..request("a") };
    let lease = lease(desk.ask(&Command::Acquire { request, wait: None }));
    assert_eq!(lease.expires_at, desk.now + Span::millis(3_000));
}

#[test]
fn several_keys_are_granted_all_or_none_and_every_one_in_the_way_is_named() {
    let mut desk = Desk::new();
    let mut other = Room::new(LeaseKey::parse("report").unwrap());
    let mut third = Room::new(LeaseKey::parse("deploy").unwrap());
    desk.take(request("a"));
    let ask = |rooms: &mut [&mut Room], now| {
        let mut number = 100;
        let mut next_token = || {
            number += 1;
            FencingToken::new(number).unwrap()
        };
        let mut context = Context {
            now,
            rules: &Rules::default(),
            is_live: &|_| true,
            next_token: &mut next_token,
            actor: &Arc::new(Actor::system("b")),
            request_id: None,
            former: None,
        };
        decide_many(rooms, &[request("b"), request("b"), request("b")], &mut context)
    };
    let refused = ask(&mut [&mut other, &mut desk.room, &mut third], desk.now);
    let Answer::Refused(Refusal::KeysBusy(busy)) = refused.answer else { panic!("{refused:?}") };
    assert_eq!(busy.iter().map(|busy| busy.lease_key.as_str()).collect::<Vec<_>>(), ["backup"]);
    assert_eq!((&other.key.lease, &third.key.lease), (&None, &None));
    desk.pass(10);
    let granted = ask(&mut [&mut other, &mut desk.room, &mut third], desk.now);
    let Answer::Done(Reply::Leases(readings)) = granted.answer else { panic!("{granted:?}") };
    let keys: Vec<_> = readings.iter().map(|reading| reading.lease_key.as_str()).collect();
    assert_eq!(keys, ["report", "backup", "deploy"]);
    assert!(granted.settled.events.iter().all(|event| match &event.change {
        crate::lease::Change::Granted(granted) => granted.origin == Origin::Acquired,
        change => change.ended().is_some(),
    }));
}

#[test]
fn a_quarantined_key_is_refused_at_once_though_its_holder_goes_on() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.ask(&Command::Quarantine { reason: reason() });
    assert!(matches!(refusal(desk.wait("b", 1, 5)), Refusal::Quarantined(_)));
    assert_eq!(lease(desk.renew(id, 20)).expires_at, desk.now + Span::millis(20_000));
    desk.release(id);
    assert!(matches!(refusal(desk.wait("b", 2, 5)), Refusal::Quarantined(_)));
    desk.ask(&Command::Lift { reason: reason() });
    desk.take(request("b"));
}

#[test]
fn a_key_never_leased_is_known_only_while_quarantined() {
    let mut desk = Desk::new();
    assert_eq!(refusal(desk.ask(&Command::Get)), Refusal::KeyUnknown);
    desk.ask(&Command::Quarantine { reason: reason() });
    assert!(matches!(desk.ask(&Command::Get), Answer::Done(Reply::Key(_))));
    desk.ask(&Command::Lift { reason: reason() });
    assert_eq!(refusal(desk.ask(&Command::Get)), Refusal::KeyUnknown);
}
