use super::*;
use crate::lease::Woken;

fn granted(woken: &[Woken]) -> Vec<u64> {
    woken.iter().filter(|woken| woken.result.is_ok()).map(|woken| woken.waiter.0).collect()
}

#[test]
fn waiters_are_served_in_the_order_in_which_they_came() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.wait("b", 1, 60);
    desk.wait("c", 2, 60);
    let decision = desk.decide(&Command::Release { lease_id: id });
    assert_eq!(granted(&decision.settled.woken), [1]);
    desk.pass(10);
    // Nobody who comes now is served before them.
    let decision = desk.decide(&Command::Acquire { request: request("d"), wait: None });
    assert_eq!(granted(&decision.settled.woken), [2]);
    assert!(matches!(refusal(decision.answer), Refusal::Held(_)));
}

#[test]
fn the_dead_are_passed_over_without_a_word() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.wait("b", 1, 60);
    desk.wait("c", 2, 60);
    desk.gone.insert(WaiterId(1));
    let decision = desk.decide(&Command::Release { lease_id: id });
    assert_eq!(granted(&decision.settled.woken), [2]);
    assert_eq!(decision.settled.woken.len(), 1);
}

#[test]
fn at_the_instant_of_its_deadline_a_waiter_is_too_late_even_for_a_release() {
    let mut desk = Desk::new();
    let id = desk.take(request("a"));
    desk.wait("b", 1, 5);
    desk.pass(5);
    let decision = desk.decide(&Command::Release { lease_id: id });
    let [Woken { waiter: WaiterId(1), result: Err(Refusal::WaitTimeout(Some(busy))) }] = &decision.settled.woken[..]
    else {
        panic!("{:?}", decision.settled.woken);
    };
    assert_eq!((busy.owner.as_str(), busy.queue_length), ("a", 0));
    desk.take(request("c"));
}

#[test]
fn a_waiter_whose_time_is_up_as_the_key_becomes_free_hears_of_nobody() {
    let mut desk = Desk::new();
    desk.take(request("a"));
    desk.wait("b", 1, 10);
    desk.pass(10);
    let decision = desk.decide(&Command::Settle);
    assert_eq!(decision.settled.woken, [Woken { waiter: WaiterId(1), result: Err(Refusal::WaitTimeout(None)) }]);
}

#[test]
fn no_more_may_wait_than_the_rules_allow() {
    let mut desk = Desk::new();
    desk.take(request("a"));
    desk.wait("b", 1, 5);
    desk.wait("c", 2, 60);
    assert_eq!(refusal(desk.wait("d", 3, 60)), Refusal::QueueFull { limit: 2 });
    desk.pass(5);
    assert_eq!(desk.wait("d", 4, 60), Answer::Waiting);
}

#[test]
fn to_wait_for_no_time_is_not_to_wait() {
    let mut desk = Desk::new();
    desk.take(request("a"));
    assert!(matches!(refusal(desk.wait("b", 1, 0)), Refusal::Held(_)));
}

#[test]
fn a_quarantine_sends_all_who_wait_away() {
    let mut desk = Desk::new();
    desk.take(request("a"));
    desk.wait("b", 1, 60);
    desk.wait("c", 2, 60);
    let decision = desk.decide(&Command::Quarantine { reason: reason() });
    assert_eq!(decision.settled.woken.len(), 2);
    assert!(decision.settled.woken.iter().all(|woken| matches!(woken.result, Err(Refusal::Quarantined(_)))));
    assert!(desk.room.queue.is_empty());
}

#[test]
fn the_alarm_is_set_for_the_first_deadline_or_opening_and_only_while_somebody_waits() {
    let mut desk = Desk::new();
    let start = desk.now;
    desk.take(Acquire { lock_delay: SECOND, ..request("a") });
    assert_eq!(desk.room.wakes_at(), None);
    desk.wait("b", 1, 60);
    assert_eq!(desk.room.wakes_at(), Some(start + Span::millis(10_000)));
    desk.wait("c", 2, 5);
    assert_eq!(desk.room.wakes_at(), Some(start + Span::millis(5_000)));
    desk.break_lease(0);
    assert_eq!(desk.room.wakes_at(), Some(start + SECOND));
    desk.pass(1);
    desk.ask(&Command::Settle);
    assert_eq!(desk.room.key.held(desk.now).map(|lease| lease.owner.as_str()), Some("b"));
}
