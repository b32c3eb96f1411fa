//! Histories of nodes on one database: what may be so there, and what is still to be found.

use serde_json::json;

use super::scene::{MS, Scene};
use super::{assert_broken, broken, right};
use crate::checker::Promise;
use crate::history::{Call, Database, End, Life, Mono};

/// What is right, on a database that nodes share.
pub(super) fn shared() -> Scene {
    let mut scene = right();
    scene.history.database = Database::Postgres;
    scene
}

fn life(gone: &[(Mono, Mono)]) -> Life {
    Life { started: 0, up: 0, gone: gone.to_vec() }
}

#[test]
fn lines_of_different_keys_may_cross_between_nodes_and_lines_of_one_key_may_not() {
    for database in [Database::Sqlite, Database::Postgres] {
        let mut scene = shared();
        scene.history.database = database;
        scene.acquire("x", "k", 700 * MS, 100, 11);
        scene.acquire("y", "other", 690 * MS, 100, 12);
        scene.release("z", 750 * MS, 11);
        scene.release("w", 760 * MS, 12);
        let expected = if database == Database::Sqlite { vec![Promise::TimeRunsOn] } else { vec![] };
        assert_eq!(broken(&scene.done()), expected);
    }
    let mut scene = shared();
    scene.acquire("x", "k", 700 * MS, 100, 11);
    scene.renew("y", 690 * MS, 11);
    scene.release("z", 750 * MS, 11);
    assert_broken(scene, Promise::TimeRunsOn);
}

#[test]
fn an_outage_that_is_recorded_after_a_later_one() {
    let mut scene = shared();
    for (from, to) in [(3_000, 6_000), (700, 2_900)] {
        let (from, to) = (scene.server(from * MS), scene.server(to * MS));
        let rest = json!({"from": Scene::time(from), "to": Scene::time(to), "grace_us": 5_000_000});
        scene.line("service.outage", to, None, rest);
    }
    assert_broken(scene, Promise::TimeRunsOn);
}

#[test]
fn something_that_was_decided_in_an_outage_wherever_its_line_stands() {
    // In its first two seconds nobody knew that it was one: what was decided then may come to the timeline late.
    for (at, is_right) in [(2_400, true), (3_000, false)] {
        for is_first in [true, false] {
            let mut scene = shared();
            scene.history.away.push((600 * MS, 3_900 * MS));
            let (from, to) = (scene.server(500 * MS), scene.server(4_000 * MS));
            let rest = json!({"from": Scene::time(from), "to": Scene::time(to), "grace_us": 5_000_000});
            let late = scene.server(at * MS);
            if is_first {
                scene.grant("x", "other", "o", late, 5_000, 11);
            }
            scene.line("service.outage", to, None, rest);
            if !is_first {
                scene.grant("x", "other", "o", late, 5_000, 11);
            }
            let broken_at = End::Broken { at: 4_100 * MS };
            scene.operation("x", Call::Acquire, Scene::asked("other", "o", 5_000), at * MS, broken_at);
            scene.release("y", 4_200 * MS, 11);
            assert_eq!(broken(&scene.done()), if is_right { vec![] } else { vec![Promise::OutagesTold] }, "{at}");
        }
    }
}

#[test]
fn an_outage_although_a_node_was_at_work() {
    // What one node does not do is none; a node that was gone, that was cut off, or did nothing either, proves nothing.
    for (gone, hindered, works, is_right) in [
        (vec![], vec![], true, false),
        (vec![(2_700 * MS, 3_100 * MS)], vec![], true, true),
        (vec![], vec![(1_500 * MS, 1_600 * MS)], true, true),
        (vec![], vec![], false, true),
    ] {
        let mut scene = shared();
        scene.history.lives = vec![life(&gone)];
        scene.history.hindered = hindered;
        if works {
            for n in 0..6 {
                let (key, sent, token) = (format!("w{n}"), (2_150 + 80 * n) * MS, 20 + n.unsigned_abs());
                scene.acquire(&format!("a{n}"), &key, sent, 50, token);
                scene.release(&format!("r{n}"), sent + 20 * MS, token);
            }
        }
        let (from, to) = (scene.server(1_100 * MS), scene.server(3_150 * MS));
        let rest = json!({"from": Scene::time(from), "to": Scene::time(to), "grace_us": 5_000_000});
        scene.line("service.outage", to, None, rest);
        scene.acquire("x", "k", 3_200 * MS, 50, 40);
        scene.release("y", 3_220 * MS, 40);
        let expected = if is_right { vec![] } else { vec![Promise::OutagesTold] };
        assert_eq!(broken(&scene.done()), expected, "{gone:?} {works}");
    }
}

#[test]
fn a_waiter_whose_node_is_dead_may_be_served_for_three_seconds_and_not_for_longer() {
    for gone in [(710 * MS, Mono::MAX), (710 * MS, 6_000 * MS)] {
        for (served, is_right) in [(3_000, true), (5_000, false)] {
            let mut scene = shared();
            scene.history.lives = vec![life(&[gone]), life(&[])];
            scene.acquire("x", "k", 700 * MS, 60_000, 11).process = 1;
            let mut body = Scene::asked("k", "waiter", 500);
            body["wait_ms"] = json!(60_000);
            scene.operation("waiter", Call::Acquire, body, 705 * MS, End::Broken { at: 8_000 * MS });
            scene.get("seen", 720 * MS, "k", 11, 1).process = 1;
            scene.release("y", served * MS, 11).process = 1;
            let now = scene.server(served * MS);
            scene.grant("waiter", "k", "waiter", now, 500, 12);
            scene.expire((served + 500) * MS, 12);
            scene.get("after", (served + 600) * MS, "k", 12, 0).process = 1;
            let expected = if is_right { vec![] } else { vec![Promise::NothingForTheGone] };
            assert_eq!(broken(&scene.done()), expected, "{gone:?} {served}");
        }
    }
}

#[test]
fn only_the_node_that_was_asked_knows_at_once_that_a_caller_has_gone() {
    let dead = vec![(706 * MS, Mono::MAX)];
    // Who answers others meanwhile, whether the one that was asked is dead, and when the caller is granted the key.
    for (process, gone, granted, is_right) in
        [(0, vec![], 3_000, false), (1, vec![], 3_000, true), (1, dead.clone(), 3_000, true), (1, dead, 5_500, false)]
    {
        let mut scene = shared();
        scene.history.lives = vec![life(&gone), life(&[])];
        let mut body = Scene::asked("k", "gone", 100);
        body["wait_ms"] = json!(60_000);
        scene.operation("gone", Call::Acquire, body, 700 * MS, End::HungUp { at: 705 * MS });
        for n in 0..30 {
            scene.get(&format!("g{n}"), (710 + n) * MS, "k", 3, 0).process = process;
        }
        let now = scene.server(granted * MS);
        scene.grant("gone", "k", "gone", now, 100, 11);
        scene.expire((granted + 100) * MS, 11);
        let expected = if is_right { vec![] } else { vec![Promise::NothingForTheGone] };
        assert_eq!(broken(&scene.done()), expected, "{process} {gone:?} {granted}");
    }
}

#[test]
fn a_waiter_of_a_dead_node_still_stands_in_the_queue_for_a_while() {
    for (database, is_right) in [(Database::Postgres, true), (Database::Sqlite, false)] {
        let mut scene = right();
        scene.history.database = database;
        scene.acquire("x", "k", 700 * MS, 100, 11);
        for (id, sent, end) in [("dead", 705, 712), ("second", 715, 2_000)] {
            let mut body = Scene::asked("k", id, 100);
            body["wait_ms"] = json!(1_000);
            scene.operation(id, Call::Acquire, body, sent * MS, End::Broken { at: end * MS });
        }
        // One waits: where the dead count no more it is the second, who was therefore there before the third.
        scene.get("seen", 720 * MS, "k", 11, 1);
        let mut body = Scene::asked("k", "third", 100);
        body["wait_ms"] = json!(1_000);
        scene.operation("third", Call::Acquire, body, 730 * MS, End::Broken { at: 2_000 * MS });
        scene.release("y", 740 * MS, 11);
        let now = scene.server(740 * MS);
        scene.grant("third", "k", "third", now, 100, 12);
        scene.expire(840 * MS, 12);
        scene.grant("second", "k", "second", now + 100 * MS, 100, 13);
        scene.expire(940 * MS, 13);
        assert_eq!(broken(&scene.done()), if is_right { vec![] } else { vec![Promise::FirstInFirstOut] });
    }
}

#[test]
fn a_list_that_leaves_out_what_was_acknowledged_before_unless_it_took_too_long() {
    for (took, is_right) in [(1, false), (1_000, true)] {
        let mut scene = shared();
        let position = scene.history.lines.len();
        scene.acquire("x", "k", 700 * MS, 2_000, 11);
        let now = scene.server(750 * MS);
        let answer = json!({
            "items": [], "next": null, "as_of": {"position": position, "time": Scene::time(now)},
            "server_time": Scene::time(now),
        });
        let list = scene.answered("l", Call::List, json!({"prefix": "k", "status": "held"}), 750 * MS, 200, answer);
        if let End::Answered { at, .. } = &mut list.end {
            *at = (750 + took) * MS;
        }
        scene.release("y", 1_800 * MS, 11);
        assert_eq!(broken(&scene.done()), if is_right { vec![] } else { vec![Promise::StateIsReplay] });
    }
}

#[test]
fn another_request_under_the_same_key_is_another_only_once_the_first_was_read() {
    // A node that stood still reads a request long after its caller has gone to another.
    for (other, is_right) in [(720, true), (960, false)] {
        let mut scene = shared();
        let first =
            scene.operation("x", Call::Acquire, Scene::asked("k", "o", 100), 700 * MS, End::HungUp { at: 710 * MS });
        first.idempotency_key = Some("once".to_owned());
        let now = scene.server(900 * MS);
        scene.grant("x", "k", "o", now, 100, 11);
        scene.get("seen", 950 * MS, "k", 11, 0);
        let refusal = json!({"code": "wait_timeout"});
        let other = scene.answered("y", Call::Acquire, Scene::asked("k", "o", 5), other * MS, 409, refusal);
        other.idempotency_key = Some("once".to_owned());
        scene.expire(1_000 * MS, 11);
        assert_eq!(broken(&scene.done()), if is_right { vec![] } else { vec![Promise::OneEffect] });
    }
}
