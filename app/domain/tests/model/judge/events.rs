//! Judges what happened: each event against the state it came upon, and their sum against the state they left.

use std::collections::VecDeque;
use std::sync::Arc;

use domain::Timestamp;
use domain::lease::{
    Acquire, BreakRequested, Change, Command, Ended, Ending, Event, Granted, KeyState, KeyStatus, Lease, LeaseId,
    Origin, Outcome, Renewed, Reply, Waiter, Woken,
};

use super::{Asked, Step, What, plain};
use crate::invariant::Invariant::{
    AnswersAreTrue, BreakOnlyForward, BreaksAreSigned, EndsOnce, FirstInFirstOut, HoldsAndDelays, NoGrantToTheGone,
    NoOverlap, NoRenewalAfterExpiry, OwnLeaseOnly, QuarantineStopsGrants, RenewalNeverShortens, StateIsReplay,
    TimeNeverFalls, TokensRise, WaitingEnds,
};
use crate::invariant::{Broken, check};

/// Judges a step's events in order; the leases that were followed by others.
pub(super) fn judge(asked: &Asked<'_>, step: &Step<'_>) -> Result<Vec<Lease>, Broken> {
    let mut walk = Walk {
        asked,
        woken: &step.woken,
        key: step.before.key.clone(),
        queue: step.before.queue.iter().cloned().collect(),
        formers: Vec::new(),
        was_to_expire: None,
    };
    for event in &step.events {
        walk.judge(event)?;
        walk.key.apply(event);
    }
    check(walk.key == step.after.key, StateIsReplay, || format!("{:?} instead of {:?}", step.after.key, walk.key))?;
    Ok(walk.formers)
}

pub(super) fn is_grant_to_newcomer(event: &Event) -> bool {
    matches!(&event.change, Change::Granted(granted) if granted.origin == Origin::Acquired)
}

/// The state as the events bring it about.
struct Walk<'a> {
    asked: &'a Asked<'a>,
    woken: &'a [&'a Woken],
    key: KeyState,
    queue: VecDeque<Arc<Waiter>>,
    formers: Vec<Lease>,
    /// When the lease that ended last would have expired.
    was_to_expire: Option<Timestamp>,
}

impl Walk<'_> {
    fn judge(&mut self, event: &Event) -> Result<(), Broken> {
        let in_time = event.at == self.asked.now && event.at >= self.key.changed_at;
        check(in_time, TimeNeverFalls, || format!("{event:?} after {}", self.key.changed_at))?;
        match &event.change {
            Change::Granted(granted) => self.grant(event, granted),
            Change::Renewed(renewed) => self.renewal(renewed),
            Change::Breaking(breaking) => self.breaking(event, breaking),
            Change::Quarantined { .. } => {
                let asked = matches!(self.command(), Some(Command::Quarantine { .. })) && self.key.quarantine.is_none();
                check(asked, QuarantineStopsGrants, || "quarantined unasked".into())
            }
            Change::Lifted { .. } => {
                let asked = matches!(self.command(), Some(Command::Lift { .. })) && self.key.quarantine.is_some();
                check(asked, QuarantineStopsGrants, || "lifted unasked".into())
            }
            change => match change.ended() {
                Some((outcome, ended)) => {
                    self.was_to_expire = self.key.lease.as_ref().map(|lease| lease.expires_at);
                    self.end(event, outcome, ended)
                }
                None => Ok(()),
            },
        }
    }

    fn command(&self) -> Option<&Command> {
        match self.asked.what {
            What::One(command) => Some(command),
            What::Both(_) => None,
        }
    }

    fn is_live(&self, waiter: &Waiter) -> bool {
        (self.asked.is_live)(waiter.id) && self.asked.now < waiter.deadline
    }

    fn grant(&mut self, event: &Event, granted: &Granted) -> Result<(), Broken> {
        let now = self.asked.now;
        let last = self.key.lease.as_ref();
        check(last.is_none_or(|lease| lease.ended.is_some()), NoOverlap, || format!("{granted:?} over {last:?}"))?;
        let (before, after) = self.asked.tokens;
        let token = granted.fencing_token;
        let fresh = (before + 1..=after).contains(&token.get()) && last.is_none_or(|lease| lease.token < token);
        check(fresh && granted.lease_id == LeaseId::from(token), TokensRise, || format!("{token} after {last:?}"))?;
        check(self.key.quarantine.is_none(), QuarantineStopsGrants, || format!("{granted:?}"))?;
        let cool = plain::status(&self.key, now) == KeyStatus::Free;
        check(cool, HoldsAndDelays, || format!("{granted:?} while cooling"))?;
        match granted.origin {
            Origin::Acquired => self.grant_to_newcomer(event, granted)?,
            Origin::Waited => self.grant_to_waiter(event, granted)?,
            Origin::Transferred => self.grant_by_transfer(granted)?,
        }
        self.formers.extend(self.key.lease.take());
        Ok(())
    }

    fn grant_to_newcomer(&self, event: &Event, granted: &Granted) -> Result<(), Broken> {
        let passed = self.queue.iter().find(|waiter| self.is_live(waiter));
        check(passed.is_none(), FirstInFirstOut, || format!("passed {passed:?}"))?;
        let request = match self.asked.what {
            What::Both(request) | What::One(Command::Acquire { request, .. }) => request,
            What::One(command) => return check(false, AnswersAreTrue, || format!("granted on {command:?}")),
        };
        check(event.actor == *self.asked.actor, AnswersAreTrue, || format!("granted by {:?}", event.actor))?;
        check_terms(request, granted, self.asked.now)
    }

    fn grant_to_waiter(&mut self, event: &Event, granted: &Granted) -> Result<(), Broken> {
        let told = self.woken.iter().find(|woken| match &woken.result {
            Ok(Reply::Lease(reading)) => reading.lease.token == granted.fencing_token,
            _ => false,
        });
        let waiter = told.and_then(|told| self.queue.iter().find(|waiter| waiter.id == told.waiter)).cloned();
        let Some(waiter) = waiter else {
            return check(false, WaitingEnds, || format!("no waiter was told of {granted:?}"));
        };
        check((self.asked.is_live)(waiter.id), NoGrantToTheGone, || format!("{waiter:?}"))?;
        check(self.asked.now < waiter.deadline, WaitingEnds, || format!("granted late to {waiter:?}"))?;
        while let Some(first) = self.queue.pop_front().filter(|first| first.id != waiter.id) {
            check(!self.is_live(&first), FirstInFirstOut, || format!("{waiter:?} passed {first:?}"))?;
        }
        check(event.actor == waiter.actor, AnswersAreTrue, || format!("granted by {:?}", event.actor))?;
        check_terms(&waiter.request, granted, self.asked.now)
    }

    fn grant_by_transfer(&self, granted: &Granted) -> Result<(), Broken> {
        let (Some(Command::Transfer { lease_id, to_owner }), Some(lease)) = (self.command(), &self.key.lease) else {
            return check(false, OwnLeaseOnly, || "transferred unasked".into());
        };
        let handed_over = lease.ended == Some(Ending { outcome: Outcome::Transferred, at: self.asked.now });
        let names_it = lease.id() == *lease_id && granted.owner == *to_owner;
        check(handed_over && names_it, OwnLeaseOnly, || format!("{granted:?}"))?;
        let keeps = (granted.max_hold_until, granted.min_hold_until, granted.lock_delay_us, granted.ttl_us)
            == (lease.max_hold_until, lease.min_hold_until, lease.lock_delay, lease.ttl);
        let keeps = keeps && self.was_to_expire == Some(granted.expires_at);
        check(keeps, HoldsAndDelays, || format!("{granted:?} instead of {lease:?}"))
    }

    fn renewal(&self, renewed: &Renewed) -> Result<(), Broken> {
        let now = self.asked.now;
        let Some(Command::Renew { lease_id, ttl, shorten }) = self.command() else {
            return check(false, AnswersAreTrue, || "renewed unasked".into());
        };
        let lease = self.named(*lease_id, renewed.fencing_token)?;
        check(plain::is_alive(lease, now), NoRenewalAfterExpiry, || format!("{lease:?} at {now}"))?;
        let until = renewed.expires_at;
        check(until <= plain::ceiling(lease), HoldsAndDelays, || format!("{lease:?} renewed to {until}"))?;
        check(*shorten || until >= lease.expires_at, RenewalNeverShortens, || format!("{lease:?} cut to {until}"))?;
        let asked = now + ttl.unwrap_or(lease.ttl);
        let due = if *shorten { asked } else { asked.max(lease.expires_at) };
        check(until == due.min(plain::ceiling(lease)), AnswersAreTrue, || format!("{lease:?} renewed to {until}"))
    }

    /// The key's lease, if it is the one that was named and the one that was touched.
    fn named(&self, id: LeaseId, touched: domain::lease::FencingToken) -> Result<&Lease, Broken> {
        let lease = self.key.lease.as_ref().filter(|lease| lease.token == touched && lease.id() == id);
        let how = || format!("{id} was named, {touched} touched, {:?} there", self.key.lease);
        lease.ok_or_else(|| Broken { invariant: OwnLeaseOnly, how: how() })
    }

    fn breaking(&self, event: &Event, breaking: &BreakRequested) -> Result<(), Broken> {
        let now = self.asked.now;
        let Some(Command::Break { reason, grace, lease_id }) = self.command() else {
            return check(false, BreaksAreSigned, || "broken unasked".into());
        };
        let current = self.key.lease.as_ref().map(Lease::id).unwrap_or(breaking.lease_id);
        let lease = self.named(lease_id.unwrap_or(current), breaking.fencing_token)?;
        check(plain::is_alive(lease, now), EndsOnce, || format!("{lease:?} broken at {now}"))?;
        let signed = event.actor == *self.asked.actor && breaking.reason == *reason;
        check(signed && breaking.ends_at == now + *grace, BreaksAreSigned, || format!("{event:?}"))?;
        let forward = lease.breaking.as_ref().is_none_or(|first| breaking.ends_at < first.ends_at);
        check(forward, BreakOnlyForward, || format!("{breaking:?} after {:?}", lease.breaking))
    }

    fn end(&self, event: &Event, outcome: Outcome, ended: &Ended) -> Result<(), Broken> {
        let now = self.asked.now;
        let open = self.key.lease.as_ref().filter(|lease| lease.ended.is_none());
        let Some(lease) = open.filter(|lease| lease.token == ended.fencing_token) else {
            let known = self.key.lease.as_ref().is_some_and(|lease| lease.token == ended.fencing_token);
            let invariant = if known { EndsOnce } else { OwnLeaseOnly };
            return check(false, invariant, || format!("{ended:?} while {:?}", self.key.lease));
        };
        let due = plain::ending(lease, now).filter(|due| due.outcome == outcome && due.at == ended.ended_at);
        if outcome == Outcome::Expired || (outcome == Outcome::Broken && due.is_some()) {
            check(due.is_some(), NoOverlap, || format!("{ended:?} at {now}, {lease:?}"))?;
        } else {
            check(plain::is_alive(lease, now), EndsOnce, || {
                format!("{ended:?} at {now}, when it was over: {lease:?}")
            })?;
            check(ended.ended_at == now, NoOverlap, || format!("{ended:?} at {now}"))?;
            self.asked_to_end(outcome, lease)?;
        }
        if outcome == Outcome::Broken {
            self.signed(event, ended, lease)?;
        }
        let cooling = plain::cooling_until(lease, Ending { outcome, at: ended.ended_at });
        check(ended.cooling_until == cooling, HoldsAndDelays, || format!("{ended:?} instead of {cooling:?}"))
    }

    /// Whether the command was to end this lease so, now.
    fn asked_to_end(&self, outcome: Outcome, lease: &Lease) -> Result<(), Broken> {
        let named = match (self.command(), outcome) {
            (Some(Command::Release { lease_id }), Outcome::Released)
            | (Some(Command::Transfer { lease_id, .. }), Outcome::Transferred)
            | (Some(Command::Undelivered { lease_id }), Outcome::Undelivered) => Some(*lease_id),
            (Some(Command::Break { grace, lease_id, .. }), Outcome::Broken) if grace.is_zero() => {
                Some(lease_id.unwrap_or_else(|| lease.id()))
            }
            _ => None,
        };
        check(named == Some(lease.id()), OwnLeaseOnly, || format!("{outcome:?} touched {lease:?}, named was {named:?}"))
    }

    fn signed(&self, event: &Event, ended: &Ended, lease: &Lease) -> Result<(), Broken> {
        let signed = match (self.command(), &lease.breaking) {
            (Some(Command::Break { reason, grace, .. }), _) if grace.is_zero() && ended.ended_at == self.asked.now => {
                // Or it was due at this very instant.
                ended.reason.as_ref() == Some(reason) && event.actor == *self.asked.actor || lease.breaking.is_some()
            }
            (_, Some(breaking)) => ended.reason.as_ref() == Some(&breaking.reason) && event.actor == breaking.by,
            (_, None) => false,
        };
        check(signed && ended.reason.is_some(), BreaksAreSigned, || format!("{event:?}"))
    }
}

/// Whether a grant is on the terms that were asked for.
fn check_terms(request: &Acquire, granted: &Granted, now: Timestamp) -> Result<(), Broken> {
    let max_hold_until = request.max_hold.map(|hold| now + hold);
    let min_hold_until = (!request.min_hold.is_zero()).then(|| now + request.min_hold);
    let terms = (max_hold_until, min_hold_until, request.lock_delay);
    let given = (granted.max_hold_until, granted.min_hold_until, granted.lock_delay_us);
    check(terms == given, HoldsAndDelays, || format!("{granted:?} for {request:?}"))?;
    let expires_at = max_hold_until.map_or(now + request.ttl, |until| until.min(now + request.ttl));
    let as_asked = granted.expires_at == expires_at && granted.owner == request.owner && granted.ttl_us == request.ttl;
    check(as_asked, AnswersAreTrue, || format!("{granted:?} for {request:?}"))
}
