//! Waiting: first come, first served; and nothing for those who have gone.
//!
//! Who joins a queue leaves no trace by itself. But an answer that tells the length of the queue, when it equals the
//! number of requests that could be waiting at all, tells that each of them was.

use std::collections::HashMap;

use super::hands::jumped;
use super::{Case, Promise, Report};
use crate::history::{Call, End, Life, Mono, Operation, Server};

/// After so long on server time, and so many answers to others, a server knows that a caller has gone.
const NOTICED: Server = 1_000_000;
const ANSWERS: usize = 20;
/// The granularity of timers, in microseconds, and some.
const ROUNDED: Mono = 10_000;

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
    forsaken(case, report);
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
    let unseen = case.history.database.unseen();
    match operation.end {
        // Turned away by a server that may have been unable to take it out of the queue: until it had waited enough.
        End::Answered { at, status: 503, .. } => {
            at + i64::try_from(operation.wait_ms()).unwrap_or(i64::MAX / 2_000) * 1_000 + ROUNDED
        }
        End::Answered { at, .. } => at,
        End::Broken { at } if unseen == 0 => at,
        End::Broken { at } => at + unseen + ROUNDED,
        // Until the server died, at the latest; or until that was noticed.
        End::HungUp { .. } => {
            let ended = case.history.life(operation).and_then(Life::ended);
            ended.map_or(Mono::MAX, |ended| ended + unseen + ROUNDED)
        }
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
    count_turns(&granted, report);
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

/// How often a key went from one process to another.
fn count_turns(granted: &[(&Operation, u64)], report: &mut Report) {
    let mut in_turn = granted.to_vec();
    in_turn.sort_unstable_by_key(|(_, token)| *token);
    for _ in in_turn.windows(2).filter(|pair| pair[0].0.process != pair[1].0.process) {
        report.see("grants in turn by two processes");
    }
}

/// A waiter who had hung up, and was known to have, is granted nothing.
fn gone(case: &Case<'_>, report: &mut Report) {
    let mut answers: Vec<(&Operation, Server)> = case
        .history
        .operations
        .iter()
        .filter_map(|operation| Some((operation, super::told_time(operation)?)))
        .collect();
    answers.sort_unstable_by_key(|(operation, _)| operation.sent);
    let unseen = case.history.database.unseen();
    for operation in &case.history.operations {
        let End::HungUp { at } = operation.end else { continue };
        report.see("callers who hung up");
        let Some(grant) = case.events(operation).find(|event| event.is_grant()) else { continue };
        report.see("grants to callers who hung up");
        // The process itself knows; after its end others do, a while later.
        let ended = case.history.life(operation).and_then(Life::ended).unwrap_or(Mono::MAX);
        let knows = |(answer, time): &&(&Operation, Server)| {
            // What the database's clock has skipped since nobody has had.
            let since = time + jumped(case.history, answer.sent, Mono::MAX);
            let is_its_own = answer.process == operation.process && since + NOTICED < grant.at;
            is_its_own || (answer.sent > ended && since + unseen + NOTICED < grant.at)
        };
        let after = answers.partition_point(|(answer, _)| answer.sent <= at);
        if answers[after..].iter().filter(knows).take(ANSWERS).count() == ANSWERS {
            let what = "granted to a waiter who was long gone";
            report.violation(Promise::NothingForTheGone, what, &[operation], &[grant.position]);
        }
    }
}

/// A waiter whose process is dead, or does nothing, is granted nothing by others once they take that process for dead.
fn forsaken(case: &Case<'_>, report: &mut Report) {
    let unseen = case.history.database.unseen();
    for operation in case.history.operations.iter().filter(|operation| operation.wait_ms() > 0) {
        let Some(life) = case.history.life(operation) else { continue };
        let Some(grant) = case.events(operation).find(|event| event.is_grant()) else { continue };
        for (from, to) in &life.gone {
            if grant.at > case.bounds.latest(*from) && grant.at < case.bounds.earliest(*to) {
                report.see("grants to waiters whose process was gone");
            }
            let known = case.bounds.latest(*from).saturating_add(unseen + NOTICED);
            if grant.at > known && grant.at < case.bounds.earliest(*to) {
                let what = "granted to a waiter whose process was taken for dead";
                report.violation(Promise::NothingForTheGone, what, &[operation], &[grant.position]);
            }
        }
    }
}
