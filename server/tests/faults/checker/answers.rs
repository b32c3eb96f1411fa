//! Whether what callers were told is what the timeline says: nothing acknowledged is missing, no read shows a dead lease.

use serde_json::Value;

use super::entry::Entry;
use super::hands::lag;
use super::replay::{State, Story};
use super::{Case, Promise, Report};
use crate::history::{Call, Mono, Operation, Server, server_time};

/// Within so long a list waits for all that was committed when it was asked for, in microseconds.
const PATIENCE: Mono = 1_000_000;

pub(super) fn check(case: &Case<'_>, report: &mut Report) {
    whole(case, report);
    for operation in &case.history.operations {
        let Some(body) = operation.ok() else { continue };
        report.see("answers");
        match operation.call {
            Call::List => list(case, operation, body, report),
            Call::Get | Call::Quarantine | Call::Lift => key(case, operation, body, report),
            Call::Validate => {}
            _ => {
                for lease in leases(body) {
                    told(case, operation, lease, report);
                }
            }
        }
        acknowledged(case, operation, body, report);
    }
}

/// The leases in the answer to a command.
pub(super) fn leases(body: &Value) -> Vec<&Value> {
    if let Some(leases) = body["leases"].as_array() {
        return leases.iter().collect();
    }
    if let Some(results) = body["results"].as_array() {
        return results.iter().map(|result| &result["ok"]).filter(|ok| ok.is_object()).collect();
    }
    vec![body]
}

fn token(lease: &Value) -> u64 {
    lease["fencing_token"].as_u64().unwrap_or(0)
}

/// What differs between a lease as it was told and as it was.
fn difference(lease: &Value, story: &Story, state: &State, now: Server) -> Option<&'static str> {
    let expires_at = state.end.as_ref().map_or(state.expires_at, |(_, at)| *at);
    let remaining = if state.is_alive(now) { (state.expires_at - now) / 1_000 } else { 0 };
    if lease["status"] != *state.status(now) {
        Some("status")
    } else if server_time(&lease["expires_at"]) != Some(expires_at) {
        Some("expires_at")
    } else if lease["ttl_remaining_ms"].as_i64() != Some(remaining) {
        Some("ttl_remaining_ms")
    } else if lease["renewals"].as_u64() != Some(state.renewals) {
        Some("renewals")
    } else if lease["owner"] != *story.owner || lease["lease_key"] != *story.key {
        Some("owner or key")
    } else if server_time(&lease["acquired_at"]) != Some(story.acquired_at) {
        Some("acquired_at")
    } else {
        None
    }
}

fn dead_shown(operation: &Operation, lease: &Value, report: &mut Report) {
    let (now, expires_at) = (server_time(&lease["server_time"]), server_time(&lease["expires_at"]));
    if (lease["status"] == "held" || lease["status"] == "breaking") && expires_at <= now {
        report.violation(Promise::NoDeadShownHeld, "shown as held when its time was up", &[operation], &[]);
    }
}

/// A lease in an answer is, or was at that time, what the timeline says.
fn told(case: &Case<'_>, operation: &Operation, lease: &Value, report: &mut Report) {
    report.see("leases told");
    dead_shown(operation, lease, report);
    let Some(story) = case.replay.stories.get(&token(lease)) else {
        report.violation(Promise::AcknowledgedSurvives, "a lease that the timeline does not know", &[operation], &[]);
        return;
    };
    let Some(now) = server_time(&lease["server_time"]) else { return };
    let lag = lag(case.history, operation.sent, operation.over());
    let differences: Vec<_> = story.during(now, lag).map(|state| difference(lease, story, state, now)).collect();
    if !differences.contains(&None) {
        let what = format!("told of a lease as it was not, by {differences:?}");
        let positions: Vec<i64> = story.states.iter().map(|state| state.position).collect();
        // What a change acknowledged is missing, or what was read is wrong.
        let promise = match operation.call {
            Call::Get => Promise::StateIsReplay,
            _ => Promise::AcknowledgedSurvives,
        };
        report.violation(promise, what, &[operation], &positions);
    }
}

/// A key in an answer.
fn key(case: &Case<'_>, operation: &Operation, body: &Value, report: &mut Report) {
    report.see("keys read");
    let (Some(now), Some(name)) = (server_time(&body["server_time"]), operation.key()) else { return };
    // What another node did meanwhile may bear an earlier time.
    let surely = now - lag(case.history, operation.sent, operation.over());
    let lease = &body["lease"];
    let tokens = case.replay.by_key.get(name).map_or(&[][..], Vec::as_slice);
    if lease.is_object() {
        told(case, operation, lease, report);
        let later = tokens.iter().filter_map(|token| case.replay.stories.get(token));
        if let Some(missed) = later.filter(|story| story.token > token(lease)).find(|story| story.acquired_at < surely)
        {
            let what = "a read shows a lease that had a successor";
            report.violation(Promise::StateIsReplay, what, &[operation], &[missed.states[0].position]);
        }
    } else if let Some(missed) =
        case.replay.stories.get(tokens.first().unwrap_or(&0)).filter(|s| s.acquired_at < surely)
    {
        let what = "a read shows no lease where there was one";
        report.violation(Promise::StateIsReplay, what, &[operation], &[missed.states[0].position]);
    }
    let is_alive = lease["status"] == "held" || lease["status"] == "breaking";
    if (body["status"] == "held" || body["status"] == "breaking") && !is_alive {
        report.violation(Promise::NoDeadShownHeld, "a key is shown as held by a lease that is over", &[operation], &[]);
    }
    let changes = case.replay.quarantines.get(name).map_or(&[][..], Vec::as_slice);
    let is_on = body["status"] == "quarantined";
    let mut was_on = vec![changes.iter().rev().find(|(at, _)| *at < surely).is_some_and(|(_, on)| *on)];
    was_on.extend(changes.iter().filter(|(at, _)| surely <= *at && *at <= 2 * now - surely).map(|(_, on)| *on));
    if !was_on.contains(&is_on) {
        report.violation(Promise::StateIsReplay, "a read is wrong about a quarantine", &[operation], &[]);
    }
}

/// A list is the replay of the timeline up to the position it names, at the time it names.
fn list(case: &Case<'_>, operation: &Operation, body: &Value, report: &mut Report) {
    report.see("lists");
    let (Some(position), Some(now)) = (body["as_of"]["position"].as_i64(), server_time(&body["as_of"]["time"])) else {
        report.violation(Promise::NoDeadShownHeld, "a list that does not say as of when it is", &[operation], &[]);
        return;
    };
    let items = body["items"].as_array().map_or(&[][..], Vec::as_slice);
    for lease in items {
        report.see("leases listed");
        dead_shown(operation, lease, report);
        let story = case.replay.stories.get(&token(lease));
        let state = story.and_then(|story| Some((story, story.at_position(position)?)));
        let difference = state.map_or(Some("not there"), |(story, state)| difference(lease, story, state, now));
        if let Some(difference) = difference {
            let what = format!("listed as it was not as of {position}: {} by {difference}", lease["lease_key"]);
            report.violation(Promise::StateIsReplay, what, &[operation], &[]);
        }
    }
    let prefix = operation.text("prefix").unwrap_or_default();
    if body["next"].is_null() && operation.text("status") == Some("held") {
        for (key, tokens) in case.replay.by_key.iter().filter(|(key, _)| key.starts_with(prefix)) {
            let alive = tokens.iter().filter_map(|token| {
                let story = case.replay.stories.get(token)?;
                story.at_position(position).filter(|state| state.status(now) == "held").map(|_| story)
            });
            for story in alive.filter(|story| !items.iter().any(|lease| token(lease) == story.token)) {
                let what = format!("a list as of {position} leaves out {key}");
                report.violation(Promise::StateIsReplay, what, &[operation], &[story.states[0].position]);
            }
        }
    }
}

/// A list that did not have to wait for long is as of all that was acknowledged when it was asked for, by whomever.
fn whole(case: &Case<'_>, report: &mut Report) {
    let position = |operation| case.events(operation).map(|event| event.position).max();
    let acknowledged = case.history.operations.iter().filter(|operation| operation.ok().is_some());
    let mut acknowledged: Vec<(Mono, i64)> =
        acknowledged.filter_map(|operation| Some((operation.over(), position(operation)?))).collect();
    acknowledged.sort_unstable();
    let mut furthest = 0;
    for (_, position) in &mut acknowledged {
        furthest = furthest.max(*position);
        *position = furthest;
    }
    for operation in case.history.operations.iter().filter(|operation| operation.call == Call::List) {
        let Some(as_of) = operation.ok().and_then(|body| body["as_of"]["position"].as_i64()) else { continue };
        let before = acknowledged.partition_point(|(over, _)| *over < operation.sent);
        let Some((_, position)) = before.checked_sub(1).map(|place| acknowledged[place]) else { continue };
        if operation.over() - operation.sent >= PATIENCE {
            continue;
        }
        report.see("lists that had to be whole");
        if as_of < position {
            let what = format!("a list as of {as_of} leaves out what was acknowledged before it was asked for");
            report.violation(Promise::StateIsReplay, what, &[operation], &[position]);
        }
    }
}

/// What was acknowledged stands in the timeline: under the request itself, or, for an answer that was replayed, under the
/// request that had the effect.
fn acknowledged(case: &Case<'_>, operation: &Operation, body: &Value, report: &mut Report) {
    let events: Vec<&Entry> = case.events(operation).collect();
    if operation.is_replayed() {
        report.see("answers replayed");
        if let Some(event) = events.first() {
            let what = "an answer that was replayed, and yet had an effect";
            report.violation(Promise::OneEffect, what, &[operation], &[event.position]);
        }
        return;
    }
    let mut missing = |what: &str| report.violation(Promise::AcknowledgedSurvives, what, &[operation], &[]);
    let has = |kind: &str, lease: &Value| {
        events
            .iter()
            .any(|event| event.kind == kind && event.token == token(lease) && lease["lease_id"] == *event.lease_id)
    };
    match operation.call {
        Call::Acquire | Call::AcquireMany | Call::Transfer
            if leases(body).into_iter().any(|lease| !has("lease.granted", lease)) =>
        {
            missing("an acknowledged grant is not in the timeline");
        }
        Call::Renew if !has("lease.renewed", body) => missing("an acknowledged renewal is not in the timeline"),
        Call::Release => released(case, operation, body, has("lease.released", body), report),
        Call::Batch => {
            let asked = operation.body["operations"].as_array().into_iter().flatten();
            for (one, result) in asked.zip(body["results"].as_array().into_iter().flatten()) {
                let lease = &result["ok"];
                if lease.is_null() {
                    continue;
                }
                if one["release"].is_object() {
                    released(case, operation, lease, has("lease.released", lease), report);
                } else {
                    let kind = if one["acquire"].is_object() { "lease.granted" } else { "lease.renewed" };
                    if !has(kind, lease) {
                        let what = "what a batch acknowledged is not in the timeline";
                        report.violation(Promise::AcknowledgedSurvives, what, &[operation], &[]);
                    }
                }
            }
        }
        Call::Quarantine | Call::Lift if events.is_empty() => {
            missing("an acknowledged stop or lift is not in the timeline")
        }
        _ => {}
    }
}

/// A release without an event of its own is about a lease that had been released before, or had run out.
fn released(case: &Case<'_>, operation: &Operation, lease: &Value, has_event: bool, report: &mut Report) {
    let outcome = lease["outcome"].as_str().unwrap_or_default();
    let story = case.replay.stories.get(&token(lease));
    let end = story.and_then(|story| story.last().end.as_ref()).map(|(outcome, _)| outcome.as_str());
    if end != Some(outcome) || (has_event && outcome != "released") {
        let what = format!("an acknowledged release ({outcome}) of a lease that ended otherwise: {end:?}");
        report.violation(Promise::AcknowledgedSurvives, what, &[operation], &[]);
    }
}
