//! The rules: what each command does to a key.

use std::borrow::Cow;
use std::sync::Arc;

use super::{
    Acquire, BreakRequested, Busy, Change, Command, Ending, FencingToken, Granted, KeyReading, KeyStatus, Lease,
    LeaseId, LeaseReading, Origin, Outcome, Queue, Refusal, ReleaseOutcome, Renewed, Reply, Room, Rules, Settled,
    Verdict, Wait, Waiter, WaiterId, settle,
};
use crate::{Actor, Owner, Reason, RequestId, Span, Timestamp};

/// What a decision depends on besides the state and the command.
pub struct Context<'a> {
    /// Server time: the same for all that one command does.
    pub now: Timestamp,
    /// The installation's limits.
    pub rules: &'a Rules,
    /// Whether a waiter's connection still stands, as far as is known.
    pub is_live: &'a dyn Fn(WaiterId) -> bool,
    /// The next fencing token: greater than all that the key ever had.
    pub next_token: &'a mut dyn FnMut() -> FencingToken,
    /// Who asks.
    pub actor: &'a Arc<Actor>,
    /// In which request.
    pub request_id: Option<&'a RequestId>,
    /// The lease the command names, if it was an earlier lease of this very key and is still known.
    pub former: Option<Cow<'a, Lease>>,
}

/// How a command was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// As asked.
    Done(Reply),
    /// Refused, and why.
    Refused(Refusal),
    /// Later, under the name of the waiter.
    Waiting,
}

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What happened and who was woken, settling included.
    pub settled: Settled,
    /// What the caller is told.
    pub answer: Answer,
}

/// Settles the key, then decides `command` on it.
pub fn decide(room: &mut Room, command: &Command, context: &mut Context<'_>) -> Decision {
    let mut settled = Settled::default();
    let over = lease_that_is_over(room, command, context.now);
    settle(room, context, &mut settled);
    let last = room.key.lease.as_ref().map(|lease| lease.token);
    if let Some(mut lease) = over.filter(|over| Some(over.token) != last) {
        // Settling gave the key to a waiter, and so replaced the very lease the command names.
        let token = Some(lease.token);
        settled.events.iter().filter(|event| event.change.token() == token).for_each(|event| lease.apply(event));
        context.former = Some(Cow::Owned(lease));
    }
    let answer = match command {
        Command::Acquire { request, wait } => acquire(room, request, *wait, context, &mut settled),
        Command::Renew { lease_id, ttl, shorten } => {
            renew(room, *lease_id, *ttl, *shorten, context, &mut settled).into()
        }
        Command::Release { lease_id } => release(room, *lease_id, context, &mut settled).into(),
        Command::Transfer { lease_id, to_owner } => transfer(room, *lease_id, to_owner, context, &mut settled).into(),
        Command::Break { reason, grace, lease_id } => {
            break_lease(room, reason, *grace, *lease_id, context, &mut settled).into()
        }
        Command::Quarantine { reason } => quarantine(room, reason, context, &mut settled).into(),
        Command::Lift { reason } => lift(room, reason, context, &mut settled).into(),
        Command::Undelivered { lease_id } => undelivered(room, *lease_id, context, &mut settled).into(),
        Command::Get if !room.key.is_known() => Answer::Refused(Refusal::KeyUnknown),
        Command::Get => Answer::Done(look(room)),
        Command::Validate { token } => Answer::Done(validate(room, *token, context.now)),
        Command::Settle => Answer::Done(Reply::Nothing),
    };
    Decision { settled, answer }
}

/// The lease the command names, if it is over, so that settling the key may put another in its place.
fn lease_that_is_over(room: &Room, command: &Command, now: Timestamp) -> Option<Lease> {
    let id = command.lease_id()?;
    room.key.lease.as_ref().filter(|lease| lease.id() == id && !lease.is_alive(now)).cloned()
}

impl From<Result<Reply, Refusal>> for Answer {
    fn from(result: Result<Reply, Refusal>) -> Self {
        match result {
            Ok(reply) => Self::Done(reply),
            Err(refusal) => Self::Refused(refusal),
        }
    }
}

/// The grant of a request at `context.now`.
pub(super) fn grant(room: &Room, request: &Acquire, origin: Origin, context: &mut Context<'_>) -> Change {
    let token = (context.next_token)();
    let max_hold_until = request.max_hold.map(|hold| context.now + hold);
    let expires_at = context.now + request.ttl;
    Change::Granted(Granted {
        lease_id: LeaseId::from(token),
        fencing_token: token,
        previous_token: room.key.lease.as_ref().map(|lease| lease.token),
        owner: request.owner.clone(),
        job_key: request.job_key.clone(),
        origin,
        expires_at: max_hold_until.map_or(expires_at, |until| expires_at.min(until)),
        ttl_us: request.ttl,
        max_hold_until,
        min_hold_until: (!request.min_hold.is_zero()).then(|| context.now + request.min_hold),
        lock_delay_us: request.lock_delay,
        subjects: Arc::clone(&request.subjects),
        metadata: request.metadata.clone(),
    })
}

/// The last lease of a settled key, as a reply.
fn reading(room: &Room, lease: &Lease) -> LeaseReading {
    LeaseReading { lease_key: room.key.lease_key.clone(), lease: lease.clone() }
}

fn lease_reply(room: &Room) -> Result<Reply, Refusal> {
    room.key.lease.as_ref().map(|lease| Reply::Lease(reading(room, lease))).ok_or(Refusal::LeaseUnknown)
}

fn read(room: &Room) -> Reply {
    let queue = Queue::default();
    Reply::Key(KeyReading { state: room.key.clone(), queue_length: room.queue.len(), queue })
}

/// The same with those who wait: to a look alone, which is never stored.
fn look(room: &Room) -> Reply {
    let queue = room.queue.clone();
    Reply::Key(KeyReading { state: room.key.clone(), queue_length: room.queue.len(), queue })
}

/// Who is in the way on a settled key.
pub(super) fn busy(room: &Room, now: Timestamp) -> Option<Busy> {
    const SOONEST: Span = Span::millis(50);
    const LATEST: Span = Span::millis(5_000);
    let lease = room.key.lease.as_ref()?;
    let (since, expires_at) = match lease.ended {
        None => (lease.acquired_at, lease.expires_at),
        Some(ended) => (ended.at, room.key.cooling_until.filter(|&until| now < until)?),
    };
    Some(Busy {
        owner: lease.owner.clone(),
        since,
        expires_at,
        retry_after: expires_at.since(now).clamp(SOONEST, LATEST),
        queue_length: room.queue.len(),
    })
}

/// Why a settled key is not to be had at once; `None` if it is.
pub(super) fn obstacle(room: &Room, now: Timestamp) -> Option<Refusal> {
    let refusal = match room.key.status(now) {
        KeyStatus::Free => return None,
        KeyStatus::Quarantined => return room.key.quarantine.clone().map(Refusal::Quarantined),
        KeyStatus::Held => Refusal::Held,
        KeyStatus::Breaking => Refusal::Breaking,
        KeyStatus::Cooling => Refusal::Cooling,
    };
    busy(room, now).map(refusal)
}

fn acquire(
    room: &mut Room,
    request: &Acquire,
    wait: Option<Wait>,
    context: &mut Context<'_>,
    settled: &mut Settled,
) -> Answer {
    // After settling a free key has no live waiter: had there been one, it would hold the key now.
    let Some(obstacle) = obstacle(room, context.now) else {
        let change = grant(room, request, Origin::Acquired, context);
        settled.happen(room, context.now, context.actor, context.request_id, change);
        return lease_reply(room).into();
    };
    match wait {
        Some(wait) if !wait.time.is_zero() && !matches!(obstacle, Refusal::Quarantined(_)) => {
            let limit = context.rules.waiters_per_key;
            if room.queue.len() >= limit {
                return Answer::Refused(Refusal::QueueFull { limit });
            }
            room.queue.join(Arc::new(Waiter {
                id: wait.waiter,
                request: request.clone(),
                since: context.now,
                deadline: Command::deadline(wait, context.now),
                actor: Arc::clone(context.actor),
                request_id: context.request_id.cloned(),
            }));
            Answer::Waiting
        }
        _ => Answer::Refused(obstacle),
    }
}

/// The lease of that id, if it is held: else why it is not.
fn held<'r>(room: &'r Room, id: LeaseId, context: &Context<'_>) -> Result<&'r Lease, Refusal> {
    let holder = room.key.held(context.now);
    if let Some(lease) = holder.filter(|lease| lease.id() == id) {
        return Ok(lease);
    }
    let last = room.key.lease.as_ref().filter(|lease| lease.id() == id);
    match last.or(context.former.as_deref()).and_then(|lease| lease.ended) {
        Some(ended) => Err(Refusal::LeaseLost {
            reason: ended.outcome,
            holder: holder.map(|lease| (lease.owner.clone(), lease.acquired_at)),
        }),
        None => Err(Refusal::LeaseUnknown),
    }
}

fn renew(
    room: &mut Room,
    id: LeaseId,
    ttl: Option<Span>,
    shorten: bool,
    context: &mut Context<'_>,
    settled: &mut Settled,
) -> Result<Reply, Refusal> {
    let lease = held(room, id, context)?;
    let ttl = ttl.unwrap_or(lease.ttl);
    let asked = context.now + ttl;
    let change = Change::Renewed(Renewed {
        lease_id: id,
        fencing_token: lease.token,
        expires_at: if shorten { asked } else { asked.max(lease.expires_at) }.min(lease.ceiling()),
        ttl_us: ttl,
        margin_us: lease.expires_at.since(context.now),
    });
    settled.happen(room, context.now, context.actor, context.request_id, change);
    lease_reply(room)
}

/// Ends the held lease as its holder or an operator wants, and serves the next waiter.
fn end(
    room: &mut Room,
    outcome: Outcome,
    reason: Option<Reason>,
    context: &mut Context<'_>,
    settled: &mut Settled,
) -> Result<LeaseReading, Refusal> {
    let lease = room.key.lease.as_ref().ok_or(Refusal::LeaseUnknown)?;
    let change = Change::end(lease, Ending { outcome, at: context.now }, reason);
    settled.happen(room, context.now, context.actor, context.request_id, change);
    let ended = room.key.lease.as_ref().map(|lease| reading(room, lease)).ok_or(Refusal::LeaseUnknown)?;
    settle(room, context, settled);
    Ok(ended)
}

fn release(room: &mut Room, id: LeaseId, context: &mut Context<'_>, settled: &mut Settled) -> Result<Reply, Refusal> {
    let lost = match held(room, id, context) {
        Ok(_) => {
            let lease = end(room, Outcome::Released, None, context, settled)?;
            return Ok(Reply::Released { lease, outcome: ReleaseOutcome::Released });
        }
        Err(lost) => lost,
    };
    let last = room.key.lease.as_ref().filter(|lease| lease.id() == id);
    match (&lost, last.or(context.former.as_deref())) {
        // Given back before: told so again, whoever has the key now.
        (Refusal::LeaseLost { reason: Outcome::Released, .. }, Some(lease)) => {
            Ok(Reply::Released { lease: reading(room, lease), outcome: ReleaseOutcome::Released })
        }
        (Refusal::LeaseLost { reason: Outcome::Expired, .. }, Some(lease)) if last.is_some() => {
            Ok(Reply::Released { lease: reading(room, lease), outcome: ReleaseOutcome::Expired })
        }
        _ => Err(lost),
    }
}

fn transfer(
    room: &mut Room,
    id: LeaseId,
    to_owner: &Owner,
    context: &mut Context<'_>,
    settled: &mut Settled,
) -> Result<Reply, Refusal> {
    let lease = held(room, id, context)?.clone();
    if let Some(refusal @ (Refusal::Breaking(_) | Refusal::Quarantined(_))) = obstacle(room, context.now) {
        return Err(refusal);
    }
    let (now, actor, request_id) = (context.now, context.actor, context.request_id);
    let ending = Ending { outcome: Outcome::Transferred, at: now };
    settled.happen(room, now, actor, request_id, Change::end(&lease, ending, None));
    let token = (context.next_token)();
    let change = Change::Granted(Granted {
        lease_id: LeaseId::from(token),
        fencing_token: token,
        previous_token: Some(lease.token),
        owner: to_owner.clone(),
        job_key: lease.job_key,
        origin: Origin::Transferred,
        expires_at: lease.expires_at,
        ttl_us: lease.ttl,
        max_hold_until: lease.max_hold_until,
        min_hold_until: lease.min_hold_until,
        lock_delay_us: lease.lock_delay,
        subjects: lease.subjects,
        metadata: lease.metadata,
    });
    settled.happen(room, now, actor, request_id, change);
    lease_reply(room)
}

fn break_lease(
    room: &mut Room,
    reason: &Reason,
    grace: Span,
    id: Option<LeaseId>,
    context: &mut Context<'_>,
    settled: &mut Settled,
) -> Result<Reply, Refusal> {
    let lease = room.key.held(context.now).ok_or(Refusal::NotHeld)?;
    if let Some(id) = id.filter(|&id| id != lease.id()) {
        return Err(held(room, id, context).err().unwrap_or(Refusal::LeaseUnknown));
    }
    if grace.is_zero() {
        return end(room, Outcome::Broken, Some(reason.clone()), context, settled).map(Reply::Lease);
    }
    let ends_at = context.now + grace;
    // A second break can only bring the end forward.
    if lease.breaking.as_ref().is_none_or(|breaking| ends_at < breaking.ends_at) {
        let change = Change::Breaking(BreakRequested {
            lease_id: lease.id(),
            fencing_token: lease.token,
            ends_at,
            expires_at: lease.expires_at.min(ends_at),
            reason: reason.clone(),
        });
        settled.happen(room, context.now, context.actor, context.request_id, change);
    }
    lease_reply(room)
}

fn quarantine(
    room: &mut Room,
    reason: &Reason,
    context: &mut Context<'_>,
    settled: &mut Settled,
) -> Result<Reply, Refusal> {
    if let Some(quarantine) = &room.key.quarantine {
        return Err(Refusal::Quarantined(quarantine.clone()));
    }
    let change = Change::Quarantined { reason: reason.clone() };
    settled.happen(room, context.now, context.actor, context.request_id, change);
    settle(room, context, settled);
    Ok(read(room))
}

fn lift(room: &mut Room, reason: &Reason, context: &mut Context<'_>, settled: &mut Settled) -> Result<Reply, Refusal> {
    if room.key.quarantine.is_none() {
        return Err(Refusal::NotQuarantined);
    }
    let change = Change::Lifted { reason: reason.clone() };
    settled.happen(room, context.now, context.actor, context.request_id, change);
    settle(room, context, settled);
    Ok(read(room))
}

fn undelivered(
    room: &mut Room,
    id: LeaseId,
    context: &mut Context<'_>,
    settled: &mut Settled,
) -> Result<Reply, Refusal> {
    if held(room, id, context).is_ok() {
        end(room, Outcome::Undelivered, None, context, settled)?;
    }
    Ok(Reply::Nothing)
}

fn validate(room: &Room, token: FencingToken, now: Timestamp) -> Reply {
    let current_token = room.key.lease.as_ref().map(|lease| lease.token);
    let verdict = match current_token {
        Some(current) if token == current && room.key.held(now).is_some() => Verdict::Current,
        Some(current) if token <= current => Verdict::Stale,
        _ => Verdict::Unknown,
    };
    Reply::Verdict { verdict, current_token }
}
