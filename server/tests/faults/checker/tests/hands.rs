//! What the checker makes of a database whose clock is moved.

use super::nodes::shared;
use super::scene::MS;
use super::{Promise, broken};
use crate::history::Jump;

#[test]
fn a_jump_ahead_of_the_databases_clock_ends_leases_early() {
    for (jump, is_right) in [(3_600_000, true), (3_500_000, false), (0, false)] {
        let mut scene = shared();
        scene.acquire("x", "k", 700 * MS, 60_000, 11);
        scene.ahead = 3_600_000 * MS;
        scene.history.jumps.push(Jump { from: 750 * MS, to: 760 * MS, by: jump * MS });
        scene.expire(800 * MS, 11);
        scene.acquire("y", "k", 800 * MS, 100, 12);
        scene.release("z", 850 * MS, 12);
        let found = broken(&scene.done());
        if is_right {
            assert_eq!(found, []);
        } else {
            assert!(found.contains(&Promise::TimeRunsOn), "{jump} {found:?}");
        }
    }
}

#[test]
fn two_holders_are_excused_by_a_jump_only_as_far_as_it_goes() {
    for (jump, is_right) in [(60_000, true), (59_000, false)] {
        let mut scene = shared();
        scene.acquire("x", "k", 700 * MS, 60_000, 11);
        scene.ahead = 60_000 * MS;
        scene.history.jumps.push(Jump { from: 750 * MS, to: 760 * MS, by: jump * MS });
        scene.expire(800 * MS, 11);
        scene.acquire("y", "k", 800 * MS, 100, 12);
        scene.release("z", 850 * MS, 12);
        assert_eq!(broken(&scene.done()).contains(&Promise::OneHolder), !is_right, "{jump}");
    }
}

#[test]
fn while_the_databases_clock_is_behind_another_node_may_be_a_little_behind_but_none_goes_back() {
    let behind = (2_500 * MS, 3_500 * MS);
    for (hands, process, back, is_right) in [
        (Some(behind), 1, 200, true),
        (Some(behind), 1, 300, false),
        (Some(behind), 0, 10, false),
        (None, 1, 100, false),
        (Some((6_000 * MS, 7_000 * MS)), 1, 100, false),
    ] {
        let mut scene = shared();
        scene.history.behind.extend(hands);
        scene.get("before", 3_000 * MS, "k", 3, 0).process = 0;
        scene.ahead = -back * MS - MS;
        scene.get("after", 3_002 * MS, "k", 3, 0).process = process;
        let expected = if is_right { vec![] } else { vec![Promise::TimeRunsOn] };
        assert_eq!(broken(&scene.done()), expected, "{hands:?} {process} {back}");
    }
}

#[test]
fn while_the_databases_clock_is_behind_a_read_may_bear_a_later_time_than_what_another_node_does_after_it() {
    let behind = (500 * MS, 900 * MS);
    for (hands, ahead, is_right) in [(Some(behind), 200, true), (Some(behind), 300, false), (None, 200, false)] {
        let mut scene = shared();
        scene.history.behind.extend(hands);
        scene.acquire("x", "k", 700 * MS, 100, 11);
        scene.release("y", 750 * MS, 11);
        scene.ahead = ahead * MS;
        scene.get("read", 800 * MS, "k", 11, 0).process = 1;
        scene.ahead = 0;
        scene.acquire("z", "k", 805 * MS, 100, 12);
        scene.release("w", 850 * MS, 12);
        assert_eq!(!broken(&scene.done()).contains(&Promise::StateIsReplay), is_right, "{hands:?} {ahead}");
    }
}
