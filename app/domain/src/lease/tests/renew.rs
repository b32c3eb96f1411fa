use super::*;

#[test]
fn a_renewal_counts_from_now() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.pass(9);
    assert_eq!(lease(desk.renew(id, 10)).expires_at, desk.now + Span::millis(10_000));
}

#[test]
fn a_renewal_without_ttl_takes_the_last_one() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.renew(id, 30);
    desk.pass(1);
    let renewed = lease(desk.ask(&Command::Renew { lease_id: id, ttl: None, shorten: false }));
    assert_eq!((renewed.expires_at, renewed.renewals), (desk.now + Span::millis(30_000), 2));
}

#[test]
fn a_renewal_shortens_only_if_asked() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    assert_eq!(lease(desk.renew(id, 1)).expires_at, desk.now + Span::millis(10_000));
    let short = lease(desk.ask(&Command::Renew { lease_id: id, ttl: Some(SECOND), shorten: true }));
    assert_eq!(short.expires_at, desk.now + SECOND);
}

#[test]
fn neither_a_longer_nor_a_shortening_renewal_goes_past_max_hold() {
    let mut desk = Desk::new();
    let id = desk.take(Acquire { max_hold: Some(Span::millis(12_000)), ..request("a") });
    let ceiling = desk.now + Span::millis(12_000);
    assert_eq!(lease(desk.renew(id, 60)).expires_at, ceiling);
    let shortened = desk.ask(&Command::Renew { lease_id: id, ttl: Some(Span::millis(60_000)), shorten: true });
    assert_eq!(lease(shortened).expires_at, ceiling);
}

#[test]
fn at_the_instant_of_expiry_it_is_too_late() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.now = Timestamp::from_micros(desk.now.as_micros() + 9_999_999);
    assert_eq!(lease(desk.renew(id, 10)).renewals, 1);
    desk.pass(10);
    assert_eq!(refusal(desk.renew(id, 10)), lost(Outcome::Expired));
    assert_eq!(refusal(desk.renew(id, 10)), lost(Outcome::Expired));
}

#[test]
fn while_breaking_it_says_so_and_stays_within_the_grace() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.break_lease(5);
    let renewed = lease(desk.renew(id, 10));
    assert_eq!(renewed.expires_at, desk.now + Span::millis(5_000));
    assert_eq!(renewed.status(desk.now).as_str(), "breaking");
}

#[test]
fn whoever_lost_the_lease_learns_who_holds_the_key_now_and_since_when() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    assert_eq!(desk.wait("b", 1, 30), Answer::Waiting);
    desk.pass(10);
    // This very command finds the lease expired and gives the key to the waiter.
    let holder = Some((Owner::parse("b").unwrap(), desk.now));
    assert_eq!(refusal(desk.renew(id, 10)), Refusal::LeaseLost { reason: Outcome::Expired, holder });
}

#[test]
fn a_lease_that_ended_earlier_is_known_when_its_key_is_given_on_after_cooling() {
    let mut desk = Desk::new();
    let id = desk.take(Acquire { lock_delay: SECOND, ..request("a") });
    assert_eq!(desk.wait("b", 1, 30), Answer::Waiting);
    desk.break_lease(0);
    desk.pass(1);
    // The end was recorded before; this command finds the cooling over and gives the key to the waiter.
    let holder = Some((Owner::parse("b").unwrap(), desk.now));
    assert_eq!(refusal(desk.renew(id, 10)), Refusal::LeaseLost { reason: Outcome::Broken, holder });
}

#[test]
fn an_id_that_nobody_was_given_is_unknown() {
    let mut desk = Desk::new();
    desk.take(request("a"));
    let nobody = LeaseId::from(FencingToken::new(99).unwrap());
    assert_eq!(refusal(desk.renew(nobody, 10)), Refusal::LeaseUnknown);
}
