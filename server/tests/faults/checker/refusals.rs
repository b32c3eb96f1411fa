//! Whether refusals were true: nobody is kept out, or told that a lease is lost, because of what was not so.

use serde_json::Value;

use super::{Case, Promise, Report};
use crate::history::{Call, Operation, server_time};

pub(super) fn check(case: &Case<'_>, report: &mut Report) {
    for operation in &case.history.operations {
        let Some((status, error)) = operation.refused() else { continue };
        let code = error["code"].as_str().unwrap_or_default();
        report.see("refusals");
        if !makes_sense(operation, status, code) {
            report.violation(Promise::TrueStatus, format!("answered {status} {code}"), &[operation], &[]);
        }
        match code {
            "held" | "breaking" | "cooling" => busy(case, operation, operation.key(), code, &error["details"], report),
            "keys_busy" => {
                for one in error["details"]["keys"].as_array().into_iter().flatten() {
                    let code = one["code"].as_str().unwrap_or_default();
                    busy(case, operation, one["lease_key"].as_str(), code, &one["details"], report);
                }
            }
            "lease_lost" => lost(case, operation, &operation.body, &error["details"], report),
            _ => {}
        }
    }
    for operation in case.history.operations.iter().filter(|operation| operation.call == Call::Batch) {
        let Some(body) = operation.ok() else { continue };
        let asked = operation.body["operations"].as_array().into_iter().flatten();
        for (one, result) in asked.zip(body["results"].as_array().into_iter().flatten()) {
            let error = &result["error"];
            if error["code"] == "lease_lost" {
                let named = if one["renew"].is_object() { &one["renew"] } else { &one["release"] };
                // A replayed batch tells of its grants as they are now, by the lease it granted.
                if named.is_object() {
                    lost(case, operation, named, &error["details"], report);
                }
            }
        }
    }
}

/// Whether this operation may be refused so.
fn makes_sense(operation: &Operation, status: u16, code: &str) -> bool {
    if status == 503 {
        return ["unavailable", "overloaded", "stopping"].contains(&code);
    }
    if operation.idempotency_key.is_some() {
        match (status, code) {
            (422, "idempotency_mismatch") | (409, "idempotency_in_progress") => return true,
            // A replay of a grant that is over.
            (409, "lease_lost") => return true,
            _ => {}
        }
    }
    let codes: &[&str] = match operation.call {
        Call::Acquire => &["held", "breaking", "cooling", "quarantined", "wait_timeout", "queue_full"],
        Call::AcquireMany => &["keys_busy"],
        Call::Break => &["not_held", "lease_lost"],
        Call::Lift => &["not_quarantined"],
        Call::Quarantine => &["quarantined"],
        Call::Release | Call::Renew => &["lease_lost"],
        Call::Transfer => &["lease_lost", "breaking", "quarantined"],
        Call::Get => return (status, code) == (404, "lease_key_unknown"),
        Call::Batch | Call::List | Call::Validate => &[],
    };
    (status == 409 || (status, code) == (429, "queue_full")) && codes.contains(&code)
}

/// Somebody was in the way: a lease of that owner must have been so within the time of the request.
fn busy(case: &Case<'_>, operation: &Operation, key: Option<&str>, code: &str, details: &Value, report: &mut Report) {
    let (Some(key), Some(since)) = (key, server_time(&details["since"])) else { return };
    report.see("refusals because somebody is in the way");
    let (earliest, latest) = case.bounds.of_operation(operation);
    let tokens = case.replay.by_key.get(key).map_or(&[][..], Vec::as_slice);
    let is_true = tokens.iter().filter_map(|token| case.replay.stories.get(token)).any(|story| {
        let over = story.over();
        let (begins, ends) = if code == "cooling" {
            let clean = story.min_hold_until.unwrap_or(0);
            (over, clean.max(over + story.lock_delay))
        } else {
            (story.acquired_at, over)
        };
        details["owner"] == *story.owner && begins == since && begins <= latest && ends > earliest
    });
    if !is_true {
        let what = format!("refused as {code} on {key} because of a lease that was not so then");
        report.violation(Promise::FreeIsHad, what, &[operation], &[]);
    }
}

/// A lease was called lost: it must have ended so by then.
fn lost(case: &Case<'_>, operation: &Operation, named: &Value, details: &Value, report: &mut Report) {
    // The replay of a grant names no lease.
    let Some(lease_id) = named["lease_id"].as_str() else { return };
    report.see("leases called lost");
    let (_, latest) = case.bounds.of_operation(operation);
    let tokens = named["lease_key"].as_str().and_then(|key| case.replay.by_key.get(key));
    let named_token = domain::lease::LeaseId::parse(lease_id).ok().map(|id| id.token().get());
    // A transfer that is replayed tells of the lease that it granted: the next one on the key.
    let is_replayable_transfer = operation.call == Call::Transfer && operation.idempotency_key.is_some();
    let ends: Vec<_> = tokens
        .into_iter()
        .flatten()
        .skip_while(|token| Some(**token) != named_token)
        .take(if is_replayable_transfer { 2 } else { 1 })
        .filter_map(|token| case.replay.stories.get(token))
        .filter_map(|story| story.last().end.as_ref())
        .collect();
    let is_true = ends.iter().any(|(outcome, at)| details["reason"] == **outcome && *at <= latest);
    if !is_true {
        let what = format!("{lease_id} was called lost, but by the timeline it was not so: {ends:?}");
        report.violation(Promise::OwnLeaseOnly, what, &[operation], &[]);
    }
}
