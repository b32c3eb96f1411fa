//! Idempotency: however often a request is sent with one key, it happens once.

use std::collections::HashMap;

use super::answers::leases;
use super::{Case, Promise, Report};
use crate::history::{Mono, Operation};

pub(super) fn check(case: &Case<'_>, report: &mut Report) {
    let mut by_key: HashMap<&str, Vec<&Operation>> = HashMap::new();
    for operation in &case.history.operations {
        if let Some(key) = &operation.idempotency_key {
            by_key.entry(key).or_default().push(operation);
        }
    }
    for group in by_key.into_values().filter(|group| group.len() > 1) {
        report.see("requests sent more than once");
        let effective: Vec<&Operation> =
            group.iter().copied().filter(|operation| case.events(operation).next().is_some()).collect();
        if effective.len() > 1 {
            report.violation(Promise::OneEffect, "one idempotency key, more than one effect", &effective, &[]);
        }
        let Some(original) = effective.first().copied() else { continue };
        for other in group.into_iter().filter(|other| other.id != original.id) {
            if is_same(original, other) {
                same(original, other, report);
            } else if other.ok().is_some()
                || (is_done_by(case, original, other.sent) && other.refused().is_some_and(is_no_mismatch))
            {
                let what = "another request with the same idempotency key was not refused as such";
                report.violation(Promise::OneEffect, what, &[original, other], &[]);
            }
        }
    }
}

fn is_same(one: &Operation, other: &Operation) -> bool {
    one.call == other.call && one.body == other.body
}

/// Whether the effect of a request was there at that moment. Without an answer that tells of it, it may have come about
/// later: a server that stood still reads a request whose caller has gone, a waiter is served whose server has died.
fn is_done_by(case: &Case<'_>, original: &Operation, moment: Mono) -> bool {
    match original.ok() {
        Some(_) => original.over() < moment,
        None => case.events(original).all(|event| event.at < case.bounds.earliest(moment)),
    }
}

fn is_no_mismatch((status, error): (u16, &serde_json::Value)) -> bool {
    status != 503 && error["code"] != "idempotency_mismatch"
}

/// The same request again: the same leases, and told as a replay.
fn same(original: &Operation, other: &Operation, report: &mut Report) {
    // A batch that was refused in all its parts is not remembered.
    let Some(again) = other.ok().filter(|again| !leases(again).is_empty()) else { return };
    if !other.is_replayed() {
        report.violation(Promise::OneEffect, "a request that was done before was done anew", &[original, other], &[]);
    }
    let Some(first) = original.ok() else { return };
    report.see("answers compared with the first");
    let names = |body| leases(body).into_iter().map(|lease| lease["lease_id"].clone()).collect::<Vec<_>>();
    // A batch may leave out what is over by now.
    let is_so = names(again).iter().all(|name| names(first).contains(name));
    if !is_so {
        report.violation(
            Promise::OneEffect,
            "the same request was answered with another lease",
            &[original, other],
            &[],
        );
    }
}
