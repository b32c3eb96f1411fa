//! The checker itself: it finds nothing in a history that is right, and each way of breaking a promise in one that is not.

mod hands;
mod nodes;
mod scene;

use serde_json::json;

use self::scene::{MS, Scene, id_of};
use super::{Promise, check};
use crate::history::{Call, End, History};

/// The promises that a history breaks.
fn broken(history: &History) -> Vec<Promise> {
    let mut broken: Vec<Promise> = check(history).violations.iter().map(|violation| violation.promise).collect();
    broken.sort_unstable();
    broken.dedup();
    broken
}

fn assert_broken(scene: Scene, promise: Promise) {
    let history = scene.done();
    let broken = broken(&history);
    assert!(broken.contains(&promise), "{promise:?} is not among {broken:?}");
}

/// A history in which everything is as it should be, up to a second.
fn right() -> Scene {
    let mut scene = Scene::default();
    scene.acquire("a", "k", 10 * MS, 200, 1);
    scene.get("b", 20 * MS, "k", 1, 0);
    scene.refuse("c", 25 * MS, 1);
    scene.renew("d", 100 * MS, 1);
    scene.release("e", 150 * MS, 1);
    scene.acquire("f", "k", 160 * MS, 100, 2);
    scene.expire(300 * MS, 2);
    scene.acquire("g", "k", 300 * MS, 500, 3);
    scene.break_lease("h", 350 * MS, 3, 50);
    let at = scene.server(420 * MS);
    scene.end(None, "broken", at - 20 * MS, 3, json!({"reason": "stuck"}));
    let now = scene.server(450 * MS);
    scene.grant("i", "m/1", "both", now, 100, 4);
    scene.grant("i", "m/2", "both", now, 100, 5);
    let asked =
        json!({"owner": "both", "leases": [{"lease_key": "m/1", "ttl_ms": 100}, {"lease_key": "m/2", "ttl_ms": 100}]});
    let answer = json!({"leases": [scene.shown(4, now), scene.shown(5, now)]});
    scene.answered("i", Call::AcquireMany, asked, 450 * MS, 200, answer);
    scene.expire(600 * MS, 4);
    scene.expire(600 * MS, 5);
    scene
}

#[test]
fn nothing_is_found_in_a_history_that_is_right() {
    let history = right().done();
    let report = check(&history);
    assert!(report.violations.is_empty(), "{}", report.explain(&history));
    for what in
        ["grants", "renewals", "ends of leases", "answers", "holders' beliefs", "breaks with grace", "events received"]
    {
        assert!(report.count(what) > 0, "{what}");
    }
}

#[test]
fn an_outage_that_extends_a_lease_is_right_and_one_that_does_not_is_found() {
    for (extended, is_right) in [(true, true), (false, false)] {
        let mut scene = Scene::default();
        scene.acquire("a", "k", 0, 1_000, 1);
        let (from, to) = (scene.server(500 * MS), scene.server(4_000 * MS));
        let rest = json!({"from": Scene::time(from), "to": Scene::time(to), "grace_us": 5_000_000});
        scene.line("service.outage", to, None, rest);
        // Its ttl is the least of what may be added.
        let over = scene.server(if extended { 5_000 * MS } else { 4_100 * MS });
        let (at, end) = (Scene::time(over + MS), Scene::time(over));
        let rest = json!({
            "lease_id": id_of(1), "fencing_token": 1, "lease_key": "k", "owner": "owner of 1", "ended_at": end,
        });
        scene.line("lease.expired", over + MS, None, rest);
        assert!(at.is_string());
        assert_eq!(broken(&scene.done()).is_empty(), is_right);
    }
}

#[test]
fn a_time_away_that_nobody_was_told_of() {
    for (away, is_right) in [((1_000 * MS, 2_900 * MS), true), ((1_000 * MS, 3_100 * MS), false)] {
        let mut scene = right();
        scene.history.away.push(away);
        scene.acquire("x", "k", 4_000 * MS, 100, 11);
        scene.release("y", 4_010 * MS, 11);
        assert_eq!(broken(&scene.done()), if is_right { vec![] } else { vec![Promise::OutagesTold] });
    }
}

#[test]
fn a_holder_whose_lease_was_broken_before_it_heard_of_it_is_none() {
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 10_000, 11);
    if let Some(End::Answered { at, .. }) = scene.history.operations.last_mut().map(|operation| &mut operation.end) {
        *at = 790 * MS;
    }
    scene.break_lease("w", 710 * MS, 11, 50);
    let at = scene.server(760 * MS);
    scene.end(None, "broken", at, 11, json!({"reason": "stuck"}));
    scene.acquire("y", "k", 770 * MS, 100, 12);
    scene.release("z", 850 * MS, 12);
    assert_eq!(broken(&scene.done()), []);
}

#[test]
fn two_holders_at_once_on_server_time() {
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 500, 11);
    scene.acquire("y", "k", 800 * MS, 500, 12);
    assert_broken(scene, Promise::OneHolder);
}

#[test]
fn two_holders_at_once_on_their_own_clocks() {
    // By the timeline all is well: on server time the first lease was over, since the server's clock had jumped.
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 60_000, 11);
    scene.ahead = 3_600_000 * MS;
    scene.expire(800 * MS, 11);
    scene.acquire("y", "k", 800 * MS, 100, 12);
    scene.release("z", 850 * MS, 12);
    let history = scene.done();
    let found = broken(&history);
    assert_eq!(found, [Promise::OneHolder, Promise::TimeRunsOn]);
}

#[test]
fn a_token_that_does_not_increase() {
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 100, 20);
    scene.release("y", 750 * MS, 20);
    scene.acquire("z", "k", 800 * MS, 100, 19);
    assert_broken(scene, Promise::TokensIncrease);
}

#[test]
fn a_token_that_does_not_increase_by_the_answers_alone() {
    let mut scene = right();
    scene.forgetful = true;
    scene.acquire("x", "k", 700 * MS, 10, 20);
    scene.acquire("z", "k", 800 * MS, 10, 19);
    assert_broken(scene, Promise::TokensIncrease);
}

#[test]
fn a_renewal_at_the_very_instant_of_expiry() {
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 100, 11);
    scene.renew("y", 800 * MS, 11);
    scene.release("z", 850 * MS, 11);
    assert_broken(scene, Promise::NoRenewalAfterExpiry);
}

#[test]
fn a_release_that_touches_another_lease() {
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 100, 11);
    scene.acquire("y", "other", 700 * MS, 100, 12);
    scene.release("z", 750 * MS, 11).body = json!({"lease_key": "other", "lease_id": id_of(12)});
    scene.expire(900 * MS, 12);
    assert_broken(scene, Promise::OwnLeaseOnly);
}

#[test]
fn an_event_of_a_lease_that_has_a_successor() {
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 100, 11);
    scene.release("y", 720 * MS, 11);
    scene.acquire("z", "k", 730 * MS, 100, 12);
    scene.renew("w", 740 * MS, 11);
    assert_broken(scene, Promise::OwnLeaseOnly);
}

#[test]
fn a_lease_that_is_called_lost_while_it_is_held() {
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 1_000, 11);
    let asked = json!({"lease_key": "k", "lease_id": id_of(11)});
    scene.answered(
        "y",
        Call::Renew,
        asked,
        750 * MS,
        409,
        json!({"code": "lease_lost", "details": {"reason": "expired"}}),
    );
    scene.release("z", 800 * MS, 11);
    assert_broken(scene, Promise::OwnLeaseOnly);
}

#[test]
fn a_lease_that_ends_twice() {
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 100, 11);
    scene.release("y", 750 * MS, 11);
    scene.expire(900 * MS, 11);
    assert_broken(scene, Promise::EndsOnce);
}

#[test]
fn a_lease_that_never_ends() {
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 100, 11);
    assert_broken(scene, Promise::EndsOnce);
}

#[test]
fn an_acknowledged_grant_renewal_or_release_that_is_lost() {
    let mut scene = right();
    scene.forgetful = true;
    scene.acquire("x", "k", 700 * MS, 100, 11);
    assert_broken(scene, Promise::AcknowledgedSurvives);

    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 100, 11);
    scene.forgetful = true;
    scene.renew("y", 750 * MS, 11);
    scene.forgetful = false;
    assert_broken(scene, Promise::AcknowledgedSurvives);

    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 100, 11);
    scene.forgetful = true;
    scene.release("y", 750 * MS, 11);
    assert_broken(scene, Promise::AcknowledgedSurvives);
}

#[test]
fn a_read_that_is_not_the_replay() {
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 300, 11);
    if let End::Answered { body, .. } = &mut scene.get("y", 750 * MS, "k", 11, 0).end {
        body["lease"]["renewals"] = json!(1);
    }
    scene.release("z", 800 * MS, 11);
    assert_broken(scene, Promise::StateIsReplay);
}

#[test]
fn a_list_that_leaves_out_a_lease_or_shows_an_old_one() {
    for items in [vec![], vec![11]] {
        let mut scene = right();
        scene.acquire("x", "k", 700 * MS, 300, 11);
        let now = scene.server(800 * MS);
        let items: Vec<_> = items.into_iter().map(|token| scene.shown(token, now)).collect();
        if !items.is_empty() {
            scene.renew("r", 750 * MS, 11);
        }
        let position = scene.history.lines.len();
        let answer = json!({
            "items": items, "next": null, "as_of": {"position": position, "time": Scene::time(now)},
            "server_time": Scene::time(now),
        });
        scene.answered("l", Call::List, json!({"prefix": "k", "status": "held"}), 800 * MS, 200, answer);
        scene.release("z", 850 * MS, 11);
        assert_broken(scene, Promise::StateIsReplay);
    }
}

#[test]
fn a_request_that_has_two_effects() {
    let mut scene = right();
    let asked = scene.acquire("x", "k", 700 * MS, 100, 11);
    asked.idempotency_key = Some("once".to_owned());
    let body = asked.body.clone();
    scene.release("y", 750 * MS, 11);
    let again = scene.acquire("z", "k", 800 * MS, 100, 12);
    (again.idempotency_key, again.body) = (Some("once".to_owned()), body);
    scene.release("w", 850 * MS, 12);
    assert_broken(scene, Promise::OneEffect);
}

#[test]
fn another_request_that_is_answered_under_the_same_key() {
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 100, 11).idempotency_key = Some("once".to_owned());
    let now = scene.server(720 * MS);
    let answer = scene.shown(11, now);
    let other = scene.answered("y", Call::Acquire, Scene::asked("other", "o", 5), 720 * MS, 200, answer);
    other.idempotency_key = Some("once".to_owned());
    if let End::Answered { replayed, .. } = &mut other.end {
        *replayed = true;
    }
    scene.release("z", 750 * MS, 11);
    assert_broken(scene, Promise::OneEffect);
}

/// Somebody holds the key, and one waits who is known to.
fn with_a_waiter() -> Scene {
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 100, 11);
    let mut body = Scene::asked("k", "first", 100);
    body["wait_ms"] = json!(1_000);
    let broken = End::Broken { at: 2_000 * MS };
    scene.operation("first", Call::Acquire, body, 710 * MS, broken);
    scene.get("seen", 720 * MS, "k", 11, 1);
    scene
}

#[test]
fn somebody_who_came_later_is_served_first() {
    for is_right in [true, false] {
        let mut scene = with_a_waiter();
        let mut body = Scene::asked("k", "second", 100);
        body["wait_ms"] = json!(1_000);
        scene.operation("second", Call::Acquire, body, 730 * MS, End::Broken { at: 2_000 * MS });
        scene.release("y", 740 * MS, 11);
        let order = if is_right { ["first", "second"] } else { ["second", "first"] };
        let now = scene.server(740 * MS);
        scene.grant(order[0], "k", order[0], now, 100, 12);
        scene.expire(840 * MS, 12);
        scene.grant(order[1], "k", order[1], now + 100 * MS, 100, 13);
        scene.expire(940 * MS, 13);
        assert_eq!(broken(&scene.done()), if is_right { vec![] } else { vec![Promise::FirstInFirstOut] });
    }
}

#[test]
fn a_newcomer_passes_a_waiter() {
    let mut scene = with_a_waiter();
    scene.release("y", 740 * MS, 11);
    scene.acquire("newcomer", "k", 750 * MS, 50, 12);
    scene.expire(800 * MS, 12);
    let now = scene.server(800 * MS);
    scene.grant("first", "k", "first", now, 100, 13);
    scene.expire(900 * MS, 13);
    assert_broken(scene, Promise::FirstInFirstOut);
}

#[test]
fn a_waiter_who_is_long_gone_is_served() {
    let mut scene = right();
    let mut body = Scene::asked("k", "gone", 100);
    body["wait_ms"] = json!(60_000);
    scene.operation("gone", Call::Acquire, body, 700 * MS, End::HungUp { at: 705 * MS });
    for n in 0..30 {
        scene.get(&format!("g{n}"), (710 + n) * MS, "k", 3, 0);
    }
    let now = scene.server(3_000 * MS);
    scene.grant("gone", "k", "gone", now, 100, 11);
    scene.expire(3_100 * MS, 11);
    assert_broken(scene, Promise::NothingForTheGone);
}

#[test]
fn somebody_is_refused_because_of_a_lease_that_is_over() {
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 100, 11);
    scene.release("y", 750 * MS, 11);
    scene.refuse("z", 760 * MS, 11);
    assert_broken(scene, Promise::FreeIsHad);
}

#[test]
fn a_grant_under_quarantine() {
    let mut scene = right();
    let now = scene.server(700 * MS);
    scene.line("key.quarantined", now, None, json!({"lease_key": "k", "reason": "odd"}));
    scene.acquire("x", "k", 750 * MS, 100, 11);
    scene.release("y", 760 * MS, 11);
    assert_broken(scene, Promise::FreeIsHad);
}

#[test]
fn a_grant_before_the_lock_delay_or_the_minimum_hold_is_over() {
    for (field, asked, line) in
        [("lock_delay_ms", 100, json!(100_000)), ("min_hold_ms", 100, Scene::time(Scene::default().server(800 * MS)))]
    {
        let mut scene = right();
        scene.acquire("x", "k", 700 * MS, 20, 11).body[field] = json!(asked);
        let body = &mut scene.history.lines.last_mut().unwrap().body;
        let mut event: serde_json::Value = serde_json::from_str(body).unwrap();
        event[if field == "lock_delay_ms" { "lock_delay_us" } else { "min_hold_until" }] = line;
        *body = event.to_string();
        if field == "lock_delay_ms" {
            scene.expire(730 * MS, 11);
        } else {
            scene.release("r", 710 * MS, 11);
        }
        scene.acquire("y", "k", 740 * MS, 100, 12);
        scene.release("z", 750 * MS, 12);
        assert_eq!(broken(&scene.done()), [Promise::HoldsAndDelays], "{field}");
    }
}

#[test]
fn terms_that_are_not_those_asked_for() {
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 100, 11).body["max_hold_ms"] = json!(50);
    scene.release("y", 710 * MS, 11);
    assert_broken(scene, Promise::HoldsAndDelays);
}

#[test]
fn server_time_that_goes_back() {
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 100, 11);
    scene.ahead = -5 * MS;
    scene.get("y", 703 * MS, "k", 11, 0);
    scene.ahead = 0;
    scene.release("z", 750 * MS, 11);
    assert_broken(scene, Promise::TimeRunsOn);
}

#[test]
fn an_acquire_many_that_grants_only_some() {
    let mut scene = right();
    let now = scene.server(700 * MS);
    scene.grant("x", "m/1", "both", now, 100, 11);
    scene.expire(800 * MS, 11);
    let asked =
        json!({"owner": "both", "leases": [{"lease_key": "m/1", "ttl_ms": 100}, {"lease_key": "m/2", "ttl_ms": 100}]});
    scene.operation("x", Call::AcquireMany, asked, 700 * MS, End::Broken { at: 750 * MS });
    assert_broken(scene, Promise::AllOrNothing);
}

#[test]
fn a_dead_lease_that_is_shown_as_held() {
    let mut scene = right();
    scene.acquire("x", "k", 700 * MS, 100, 11);
    if let End::Answered { body, .. } = &mut scene.get("y", 900 * MS, "k", 11, 0).end {
        body["status"] = json!("held");
        body["lease"]["status"] = json!("held");
    }
    scene.expire(901 * MS, 11);
    assert_broken(scene, Promise::NoDeadShownHeld);
}

#[test]
fn a_stream_with_a_gap_a_duplicate_or_another_order() {
    type Tamper = fn(&mut Vec<(i64, String)>);
    let tamper: [Tamper; 3] = [
        |received| drop(received.remove(3)),
        |received| received.insert(3, received[2].clone()),
        |received| received.swap(1, 2),
    ];
    for tamper in tamper {
        let mut history = right().done();
        tamper(&mut history.streams[0].received);
        assert_eq!(broken(&history), [Promise::WholeStreams]);
    }
}

#[test]
fn a_break_without_reason_or_actor() {
    for tamper in [r#""reason":"stuck""#, r#""name":"ops""#] {
        let mut scene = right();
        for line in scene.history.lines.iter_mut().filter(|line| line.body.contains("lease.broken")) {
            assert!(line.body.contains(tamper));
            line.body = line.body.replace(tamper, r#""nothing":"""#);
        }
        assert_broken(scene, Promise::SignedBreaks);
    }
}

#[test]
fn a_line_that_was_changed_or_taken_out() {
    let mut history = right().done();
    history.lines[4].body = history.lines[4].body.replace("owner", "0wner");
    assert!(broken(&history).contains(&Promise::Chain));
    let mut history = right().done();
    history.lines.remove(4);
    assert!(broken(&history).contains(&Promise::Chain));
}

#[test]
fn a_refusal_that_makes_no_sense_or_has_an_effect() {
    let mut scene = right();
    scene.answered("x", Call::Get, json!({"lease_key": "k"}), 700 * MS, 500, json!({"code": "internal"}));
    assert_broken(scene, Promise::TrueStatus);
    let mut scene = right();
    let timeout = End::Answered { at: 702 * MS, status: 409, replayed: false, body: json!({"code": "wait_timeout"}) };
    scene.acquire("x", "k", 700 * MS, 100, 11).end = timeout;
    scene.expire(900 * MS, 11);
    assert_broken(scene, Promise::TrueStatus);
}
