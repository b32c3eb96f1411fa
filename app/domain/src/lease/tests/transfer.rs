use super::*;

fn transfer(desk: &mut Desk, lease_id: LeaseId) -> Answer {
    desk.ask(&Command::Transfer { lease_id, to_owner: Owner::parse("b").unwrap() })
}

#[test]
fn the_new_owner_gets_a_new_token_on_the_old_terms_before_all_who_wait() {
    let mut desk = Desk::new();
    let terms = Acquire {
        max_hold: Some(Span::millis(20_000)),
        min_hold: Span::millis(4_000),
        lock_delay: SECOND,
        ..request("a")
    };
    let id = desk.take(terms);
    let old = desk.room.key.lease.clone().unwrap();
    desk.wait("c", 1, 60);
    desk.pass(3);
    let new = lease(transfer(&mut desk, id));
    assert!(new.token > old.token);
    assert_eq!((new.owner.as_str(), new.acquired_at, new.renewals), ("b", desk.now, 0));
    assert_eq!(
        (new.expires_at, new.max_hold_until, new.min_hold_until, new.lock_delay),
        (old.expires_at, old.max_hold_until, old.min_hold_until, old.lock_delay)
    );
    assert_eq!(desk.room.queue.len(), 1);
    let holder = Some((Owner::parse("b").unwrap(), desk.now));
    desk.former =
        Some(Lease { ended: Some(crate::lease::Ending { outcome: Outcome::Transferred, at: desk.now }), ..old });
    assert_eq!(refusal(desk.renew(id, 10)), Refusal::LeaseLost { reason: Outcome::Transferred, holder });
}

#[test]
fn nothing_is_handed_over_while_breaking_or_quarantined() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.break_lease(5);
    assert!(matches!(refusal(transfer(&mut desk, id)), Refusal::Breaking(_)));
    desk.ask(&Command::Quarantine { reason: reason() });
    assert!(matches!(refusal(transfer(&mut desk, id)), Refusal::Quarantined(_)));
}

#[test]
fn nothing_is_handed_over_that_is_over() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.pass(10);
    assert_eq!(refusal(transfer(&mut desk, id)), lost(Outcome::Expired));
}
