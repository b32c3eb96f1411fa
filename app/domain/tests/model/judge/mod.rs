//! The judge: looks at one step of the server (what was asked, what was there, what happened, what was answered) and says
//! which invariant it broke.
//!
//! Every step is judged, so what holds of one step from any reachable state holds of every history.

mod answers;
mod events;
pub(crate) mod plain;
mod queue;

use std::sync::Arc;

use domain::lease::{Acquire, Answer, Command, Decision, KeyState, KeyStatus, Lease, LeaseId, Outage, Refusal, Room};
use domain::lease::{Event, WaiterId, Woken};
use domain::{Actor, Timestamp};

use crate::invariant::Invariant::{AllOrNothing, DeadIsNotShownHeld, EndsOnce, HoldsAndDelays, OutageGivesItsDue};
use crate::invariant::{Broken, check};

/// What was asked, and what the server knew.
pub(crate) struct Asked<'a> {
    pub(crate) now: Timestamp,
    pub(crate) what: What<'a>,
    pub(crate) actor: &'a Arc<Actor>,
    pub(crate) is_live: &'a dyn Fn(WaiterId) -> bool,
    /// The earlier lease that the command names, if it is known.
    pub(crate) former: Option<&'a Lease>,
    /// The last token given out before, and after.
    pub(crate) tokens: (u64, u64),
    pub(crate) waiters_per_key: usize,
}

/// A command on one key, or an acquire of both.
#[derive(Clone, Copy)]
pub(crate) enum What<'a> {
    One(&'a Command),
    Both(&'a Acquire),
}

/// One key's part in a step.
pub(crate) struct Step<'a> {
    pub(crate) before: &'a Room,
    pub(crate) events: Vec<&'a Event>,
    pub(crate) woken: Vec<&'a Woken>,
    pub(crate) after: &'a Room,
}

impl<'a> Step<'a> {
    pub(crate) fn new(before: &'a Room, after: &'a Room, decision: &'a Decision) -> Self {
        let of_this_key = |event: &&Event| event.lease_key == before.key.lease_key;
        let was_here = |woken: &&Woken| before.queue.iter().any(|waiter| waiter.id == woken.waiter);
        Self {
            before,
            events: decision.settled.events.iter().filter(of_this_key).collect(),
            woken: decision.settled.woken.iter().filter(was_here).collect(),
            after,
        }
    }
}

/// Judges a command on one key; the leases that were followed by others in it.
pub(crate) fn judge_one(asked: &Asked<'_>, step: &Step<'_>, decision: &Decision) -> Result<Vec<Lease>, Broken> {
    let formers = judge_key(asked, step)?;
    let What::One(command) = asked.what else { return Ok(formers) };
    let lookup = |id: LeaseId| {
        let last = step.after.key.lease.as_ref().filter(|lease| lease.id() == id);
        last.or_else(|| formers.iter().find(|lease| lease.id() == id))
            .or_else(|| asked.former.filter(|lease| lease.id() == id))
    };
    answers::judge(asked, command, step, &decision.answer, &lookup)?;
    Ok(formers)
}

/// Judges an acquire of both keys; the leases of each that were followed by others in it.
pub(crate) fn judge_both(
    asked: &Asked<'_>,
    steps: &[Step<'_>],
    decision: &Decision,
) -> Result<Vec<Vec<Lease>>, Broken> {
    let formers = steps.iter().map(|step| judge_key(asked, step)).collect::<Result<Vec<_>, _>>()?;
    let granted =
        steps.iter().filter(|step| step.events.iter().any(|event| events::is_grant_to_newcomer(event))).count();
    let in_the_way = steps
        .iter()
        .filter(|step| plain::status(&step.after.key, asked.now) != KeyStatus::Free)
        .map(|step| step.after.key.lease_key.clone());
    match &decision.answer {
        Answer::Done(domain::lease::Reply::Leases(readings)) => {
            let given = steps.iter().map(|step| step.after.key.lease.as_ref());
            let told = readings.iter().map(|reading| Some(&reading.lease));
            check(granted == steps.len() && given.eq(told), AllOrNothing, || {
                format!("{granted} keys of {readings:?}")
            })?;
        }
        Answer::Refused(Refusal::KeysBusy(busy)) => {
            check(granted == 0, AllOrNothing, || format!("refused, yet {granted} keys granted"))?;
            check(busy.iter().map(|key| key.lease_key.clone()).eq(in_the_way), AllOrNothing, || format!("{busy:?}"))?;
            for (key, step) in busy.iter().flat_map(|busy| {
                steps.iter().filter(|step| step.before.key.lease_key == busy.lease_key).map(move |step| (busy, step))
            }) {
                answers::judge_obstacle(asked, step.after, &key.refusal)?;
            }
        }
        other => check(false, AllOrNothing, || format!("{other:?}"))?,
    }
    Ok(formers)
}

fn judge_key(asked: &Asked<'_>, step: &Step<'_>) -> Result<Vec<Lease>, Broken> {
    let formers = events::judge(asked, step)?;
    queue::judge(asked, step)?;
    Ok(formers)
}

/// Judges what is shown of a key, settled or not.
pub(crate) fn judge_status(key: &KeyState, shown: KeyStatus, now: Timestamp) -> Result<(), Broken> {
    check(shown == plain::status(key, now), DeadIsNotShownHeld, || format!("{shown:?} at {now}: {key:?}"))
}

/// Judges what an outage did to a key.
pub(crate) fn judge_outage(outage: &Outage, before: &KeyState, after: &KeyState) -> Result<(), Broken> {
    let mut expected = before.clone();
    if let (Some(was), Some(is)) = (&mut expected.lease, &after.lease) {
        let alive = plain::was_alive(was, outage.from);
        check(alive || *was == *is, EndsOnce, || format!("{is:?} was dead before the outage"))?;
        check(is.expires_at <= plain::ceiling(was).max(was.expires_at), HoldsAndDelays, || format!("{is:?}"))?;
        was.expires_at = plain::expiry_after(was, outage);
    }
    check(expected == *after, OutageGivesItsDue, || format!("{after:?} instead of {expected:?}"))
}
