//! An exhaustive model of leases: every order of events in small worlds, decided by the rules that run in production.
//!
//! A world has one or two keys, three clients and a server. Clients take keys (one, or both at once), wait, renew, shorten
//! and give back; operators break, transfer, quarantine and lift. Requests are delayed, lost or delivered twice; answers
//! are lost, with or without the server knowing; connections are cut and clients crash while they wait or hold; the server
//! restarts, or is away long enough for an outage. Each client keeps its own view of what it holds, counted on its own
//! clock from when it sent the request. A holder that hangs is one to whom nothing happens while time passes.
//!
//! Chosen bounds, and why they lose nothing that matters:
//! - States are compared by what can still happen (see `shape`): dates, absolute tokens and names do not count. So time
//!   is unbounded, except with two keys.
//! - An answer arrives with its request or never. A later arrival only makes its holder believe for a shorter time.
//! - A client that crashes before the commit is a lost request, after it a lost answer: commits are atomic, so no third
//!   case exists for one key or for many.
//! - Nobody asks for a key that he believes to hold, or waits for.
//! - A break or a transfer ends a lease before its holder can know. What that holder then believes is not counted: this
//!   is what fencing tokens are for.

mod action;
mod bounds;
mod coverage;
mod invariant;
mod judge;
mod mutants;
mod mutations;
mod rulebook;
mod shape;
mod step;
mod world;

use std::io::Write as _;
use std::sync::Arc;

use stateright::{Checker, Model};

use crate::bounds::worlds;
use crate::coverage::Coverage;
use crate::rulebook::Production;
use crate::step::Leases;

#[test]
fn the_rules_hold_in_every_world() {
    let coverage = Arc::new(Coverage::default());
    let mut total = 0;
    for bounds in worlds() {
        let model =
            Leases { bounds, rules: Arc::new(Production), coverage: Arc::clone(&coverage), holders_only: false };
        let checker = model.checker().threads(1).spawn_bfs().join();
        say(format_args!(
            "model, {}: {} unique states, {} steps, at most {} deep",
            bounds.name,
            checker.unique_state_count(),
            checker.state_count(),
            checker.max_depth()
        ));
        if let Some((name, path)) = checker.discoveries().into_iter().next() {
            let broken = path.last_state().broken.clone();
            panic!("{name}: {broken:#?}\n{:#?}", path.into_actions());
        }
        total += checker.unique_state_count();
    }
    say(format_args!("model: {total} unique states in all"));
    assert_eq!(coverage.seen().iter().map(String::as_str).collect::<Vec<_>>(), SEEN);
}

/// Past the harness, which keeps what a passing test prints to itself: the counts belong in every run's record.
fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stderr();
    out.write_fmt(format_args!("{line}\n")).unwrap();
}

/// All that the worlds must have brought about: a model in which it does not happen proves nothing about it.
const SEEN: [&str; 27] = [
    "an outage changed nothing",
    "an outage extended a lease",
    "both keys taken",
    "breaking",
    "cooling",
    "done",
    "held",
    "key.lifted",
    "key.quarantined",
    "keys_busy",
    "lease.breaking",
    "lease.broken",
    "lease.expired",
    "lease.granted by transfer",
    "lease.granted to a newcomer",
    "lease.granted to a waiter",
    "lease.released",
    "lease.renewed",
    "lease.transferred",
    "lease.undelivered",
    "lease_lost",
    "not_held",
    "quarantined",
    "queue_full",
    "wait_timeout",
    "waiting",
    "woken with a lease",
];
