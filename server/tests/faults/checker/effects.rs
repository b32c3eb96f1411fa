//! What each request did, by the timeline: only what it asked for, all of it or nothing.

use serde_json::Value;

use super::entry::Entry;
use super::{Case, Promise, Report};
use crate::history::{Call, Operation};

pub(super) fn check(case: &Case<'_>, report: &mut Report) {
    for entry in &case.entries {
        if let Some(request) = &entry.request_id
            && !case.by_id.contains_key(request.as_str())
        {
            report.violation(Promise::OwnLeaseOnly, "an event of a request that nobody made", &[], &[entry.position]);
        }
    }
    for operation in &case.history.operations {
        let events: Vec<&Entry> = case.events(operation).collect();
        if let Some(problem) = misfit(operation, &events) {
            let positions: Vec<i64> = events.iter().map(|event| event.position).collect();
            report.violation(problem.0, problem.1, &[operation], &positions);
        }
        for grant in events.iter().filter(|event| event.is_grant() && event.origin != "transferred") {
            as_asked(operation, grant, report);
        }
        if !events.is_empty() && operation.ok().is_none() {
            report.see("effects of requests without an answer");
        }
        if let Some((400..=499, _)) = operation.refused()
            && let Some(event) = events.first()
        {
            report.violation(Promise::TrueStatus, "refused, and yet it had an effect", &[operation], &[event.position]);
        }
    }
}

/// Why these cannot be the events of that request.
fn misfit(operation: &Operation, events: &[&Entry]) -> Option<(Promise, &'static str)> {
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    let of_its_key = || events.iter().all(|event| Some(event.key.as_str()) == operation.key());
    let of_its_lease =
        |event: &Entry| operation.text("lease_id").is_none_or(|id| event.lease_id == id && event.token != 0);
    let foreign = Some((Promise::OwnLeaseOnly, "it touched another lease or key than the one it named"));
    if events.is_empty() {
        return None;
    }
    let is_wanted = match operation.call {
        Call::Acquire => kinds == ["lease.granted"],
        Call::Renew => kinds == ["lease.renewed"],
        Call::Release => kinds == ["lease.released"],
        Call::Break => kinds == ["lease.breaking"] || kinds == ["lease.broken"],
        Call::Transfer => kinds == ["lease.transferred", "lease.granted"],
        Call::Quarantine => kinds == ["key.quarantined"],
        Call::Lift => kinds == ["key.lifted"],
        Call::AcquireMany => return many(operation, events),
        Call::Batch => return batch(operation, events),
        Call::Get | Call::List | Call::Validate => false,
    };
    if !is_wanted {
        return Some((Promise::OwnLeaseOnly, "its events are not those of such a request"));
    }
    if !of_its_key() || !(operation.call == Call::Acquire || of_its_lease(events[0])) {
        return foreign;
    }
    if operation.call == Call::Acquire && operation.text("owner") != Some(&events[0].owner) {
        return foreign;
    }
    if operation.call == Call::Break && events[0].reason.as_deref() != operation.text("reason") {
        return Some((Promise::SignedBreaks, "a break for another reason than the one given"));
    }
    None
}

fn many(operation: &Operation, events: &[&Entry]) -> Option<(Promise, &'static str)> {
    let wanted = operation.body["leases"].as_array()?;
    let is_all = events.len() == wanted.len()
        && events.iter().zip(wanted).all(|(event, one)| event.is_grant() && one["lease_key"] == *event.key);
    if !is_all || events.windows(2).any(|pair| pair[0].at != pair[1].at) {
        return Some((Promise::AllOrNothing, "an acquire-many granted something else than all its keys at once"));
    }
    None
}

fn batch(operation: &Operation, events: &[&Entry]) -> Option<(Promise, &'static str)> {
    let mut operations = operation.body["operations"].as_array()?.iter();
    for event in events {
        let fits = |one: &Value| match event.kind.as_str() {
            "lease.granted" => one["acquire"]["lease_key"] == *event.key && one["acquire"]["owner"] == *event.owner,
            "lease.renewed" => one["renew"]["lease_id"] == *event.lease_id,
            "lease.released" => one["release"]["lease_id"] == *event.lease_id,
            _ => false,
        };
        // In order: what has been passed over was refused.
        if !operations.any(fits) {
            return Some((Promise::OwnLeaseOnly, "an event that no operation of the batch asked for, or out of order"));
        }
    }
    None
}

/// A grant has the terms that were asked for.
fn as_asked(operation: &Operation, grant: &Entry, report: &mut Report) {
    let one = match operation.call {
        Call::AcquireMany => find(&operation.body["leases"], |one| one, grant),
        Call::Batch => find(&operation.body["operations"], |one| &one["acquire"], grant),
        _ => Some(&operation.body),
    };
    let Some(one) = one else { return };
    let asked = |field: &str| one[field].as_i64().or(operation.body[field].as_i64()).map(|millis| millis * 1_000);
    let after = |field: &str| asked(field).filter(|micros| *micros > 0).map(|micros| grant.at + micros);
    let is_so = asked("ttl_ms") == grant.ttl
        && asked("lock_delay_ms").unwrap_or(0) == grant.lock_delay
        && after("min_hold_ms") == grant.min_hold_until
        && after("max_hold_ms") == grant.max_hold_until;
    if !is_so {
        let what = "a grant on other terms than those asked for";
        report.violation(Promise::HoldsAndDelays, what, &[operation], &[grant.position]);
    }
}

fn find<'v>(list: &'v Value, of: impl Fn(&Value) -> &Value, grant: &Entry) -> Option<&'v Value> {
    list.as_array()?.iter().map(of).find(|one| one["lease_key"] == *grant.key)
}
