//! Waiting: first come, first served; and nothing for those who have gone.
//!
//! Who joins a queue leaves no trace by itself. But an answer that tells the length of the queue, when it equals the
//! number of requests that could be waiting at all, tells that each of them was.

use std::collections::HashMap;

use super::{Case, Promise, Report};
use crate::history::{Call, End, Mono, Operation, Server};

/// After so long on server time, and so many answers to others, a server knows that a caller has gone.
const NOTICED: Server = 1_000_000;
const ANSWERS: usize = 20;

pub(super) fn check(case: &Case<'_>, report: &mut Report) {
    let mut keys: HashMap<&str, Vec<&Operation>> = HashMap::new();
    for operation in &case.history.operations {
        if let Some(key) = operation.key() {
            keys.entry(key).or_default().push(operation);
        }
    }
    for operations in keys.values() {
        in_order(case, operations, report);
    }
    gone(case, report);
}

/// How many waited, by this answer, besides its own request.
fn told_length(operation: &Operation) -> Option<u64> {
    match operation.call {
        Call::Get => operation.ok()?["queue_length"].as_u64(),
        Call::Acquire => {
            let (_, error) = operation.refused()?;
            // Told before one's own request would have joined.
            error["details"]["queue_length"].as_u64().filter(|_| error["code"] != "wait_timeout")
        }
        _ => None,
    }
}

/// Until when a waiter may have stood in the queue, for all that is known.
fn may_wait_until(case: &Case<'_>, operation: &Operation) -> Mono {
    match operation.end {
        End::Answered { at, .. } | End::Broken { at } => at,
        // Until the server died, at the latest.
        End::HungUp { at } => case.history.starts.iter().copied().find(|start| *start > at).unwrap_or(Mono::MAX),
    }
}

fn in_order(case: &Case<'_>, operations: &[&Operation], report: &mut Report) {
    let waiters: Vec<(&Operation, Mono)> = operations
        .iter()
        .filter(|operation| operation.call == Call::Acquire && operation.wait_ms() > 0)
        .map(|operation| (*operation, may_wait_until(case, operation)))
        .collect();
    // Since when each waiter is known to have been in the queue.
    let mut known: HashMap<&str, (Mono, &Operation)> = HashMap::new();
    for observation in operations {
        let Some(length) = told_length(observation).filter(|length| *length > 0) else { continue };
        let over = observation.over();
        let possible = || waiters.iter().filter(|(waiter, until)| waiter.sent < over && *until > observation.sent);
        if usize::try_from(length) != Ok(possible().filter(|(waiter, _)| waiter.id != observation.id).count()) {
            continue;
        }
        for (waiter, _) in possible().filter(|(waiter, _)| waiter.id != observation.id) {
            let since = known.entry(&waiter.id).or_insert((over, observation));
            if over < since.0 {
                *since = (over, observation);
            }
        }
    }
    let token = |operation: &Operation| case.events(operation).find(|event| event.is_grant()).map(|grant| grant.token);
    let mut granted: Vec<(&Operation, u64)> = operations
        .iter()
        .filter(|operation| operation.call == Call::Acquire)
        .filter_map(|operation| Some((*operation, token(operation)?)))
        .collect();
    granted.sort_by_key(|(operation, _)| operation.sent);
    // The first to be granted among all who asked no earlier.
    let mut first_after = granted.clone();
    for place in (1..first_after.len()).rev() {
        if first_after[place].1 < first_after[place - 1].1 {
            first_after[place - 1] = first_after[place];
        }
    }
    for (waiter, own) in &granted {
        let Some((since, observation)) = known.get(waiter.id.as_str()) else { continue };
        let place = granted.partition_point(|(other, _)| other.sent <= *since);
        let Some((other, token)) = first_after.get(place) else { continue };
        report.see("waiters known to have been first");
        if token < own {
            let what = "somebody who came later was granted the key first";
            report.violation(Promise::FirstInFirstOut, what, &[waiter, observation, other], &[]);
        }
    }
}

/// A waiter who had hung up, and was known to have, is granted nothing.
fn gone(case: &Case<'_>, report: &mut Report) {
    let mut answers: Vec<(Mono, Mono, Server)> = case
        .history
        .operations
        .iter()
        .filter_map(|operation| Some((operation.sent, operation.over(), super::told_time(operation)?)))
        .collect();
    answers.sort_unstable();
    for operation in &case.history.operations {
        let End::HungUp { at } = operation.end else { continue };
        report.see("callers who hung up");
        let Some(grant) = case.events(operation).find(|event| event.is_grant()) else { continue };
        report.see("grants to callers who hung up");
        let after = answers.partition_point(|(sent, _, _)| *sent <= at);
        let sure = answers[after..].iter().filter(|(_, _, time)| *time + NOTICED < grant.at).take(ANSWERS).count();
        if sure == ANSWERS {
            let what = "granted to a waiter who was long gone";
            report.violation(Promise::NothingForTheGone, what, &[operation], &[grant.position]);
        }
    }
}
