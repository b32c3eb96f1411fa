//! Judges what the caller is told.

use domain::lease::{
    Answer, Busy, Change, Command, KeyStatus, Lease, LeaseId, LeaseReading, Outcome, Refusal, ReleaseOutcome, Reply,
    Room, Verdict,
};

use super::{Asked, Step, plain, queue};
use crate::invariant::Invariant::{AnswersAreTrue, DeadIsNotShownHeld, FirstInFirstOut, FreeIsGranted};
use crate::invariant::{Broken, check};

type Lookup<'a> = &'a dyn Fn(LeaseId) -> Option<&'a Lease>;

pub(super) fn judge<'a>(
    asked: &Asked<'_>,
    command: &Command,
    step: &'a Step<'_>,
    answer: &Answer,
    lookup: Lookup<'a>,
) -> Result<(), Broken> {
    if let Answer::Done(Reply::Lease(reading)) = answer {
        let shown = reading.lease.status(asked.now).as_str();
        let alive = plain::is_alive(&reading.lease, asked.now);
        check(alive == matches!(shown, "held" | "breaking"), DeadIsNotShownHeld, || format!("{shown}: {reading:?}"))?;
    }
    check(queue::joined(asked, step, answer), FirstInFirstOut, || format!("{answer:?}, but {:?}", step.after.queue))?;
    let true_answer = match command {
        Command::Acquire { wait, .. } => {
            let waits = wait.is_some_and(|wait| !wait.time.is_zero());
            return acquire(asked, waits, step, answer);
        }
        Command::Renew { lease_id, .. } => match answer {
            Answer::Done(Reply::Lease(reading)) => {
                reading.lease.id() == *lease_id
                    && is_current(step, reading)
                    && step.events.last().is_some_and(|event| matches!(event.change, Change::Renewed(_)))
            }
            answer => is_lost(asked, step, *lease_id, answer, lookup),
        },
        Command::Release { lease_id } => release(asked, step, *lease_id, answer, lookup),
        Command::Transfer { lease_id, .. } => transfer(asked, step, *lease_id, answer, lookup),
        Command::Break { grace, lease_id, .. } => match answer {
            Answer::Done(Reply::Lease(reading)) => {
                let named = lease_id.is_none_or(|id| id == reading.lease.id());
                let ends_by = reading.lease.breaking.as_ref().map(|breaking| breaking.ends_at);
                named
                    && if grace.is_zero() {
                        reading.lease.ended.is_some_and(|end| end.outcome == Outcome::Broken && end.at == asked.now)
                            && lookup(reading.lease.id()) == Some(&reading.lease)
                    } else {
                        is_current(step, reading) && ends_by.is_some_and(|at| at <= asked.now + *grace)
                    }
            }
            Answer::Refused(Refusal::NotHeld) => plain::held(&step.after.key, asked.now).is_none(),
            answer => lease_id.is_some_and(|id| {
                plain::held(&step.after.key, asked.now).is_some() && is_lost(asked, step, id, answer, lookup)
            }),
        },
        Command::Quarantine { .. } => match answer {
            Answer::Done(Reply::Key(reading)) => {
                step.before.key.quarantine.is_none() && reading.state == step.after.key && is_quarantined(step.after)
            }
            Answer::Refused(Refusal::Quarantined(quarantine)) => {
                step.before.key.quarantine.as_ref() == Some(quarantine)
            }
            _ => false,
        },
        Command::Lift { .. } => match answer {
            Answer::Done(Reply::Key(reading)) => {
                is_quarantined(step.before) && reading.state == step.after.key && !is_quarantined(step.after)
            }
            Answer::Refused(Refusal::NotQuarantined) => !is_quarantined(step.before),
            _ => false,
        },
        Command::Undelivered { lease_id } => {
            let over = lookup(*lease_id).is_none_or(|lease| lease.ended.is_some());
            over && *answer == Answer::Done(Reply::Nothing)
        }
        Command::Get => match answer {
            Answer::Done(Reply::Key(reading)) => {
                reading.state == step.after.key && reading.queue_length == step.after.queue.len()
            }
            Answer::Refused(Refusal::KeyUnknown) => step.after.key.lease.is_none() && !is_quarantined(step.after),
            _ => false,
        },
        Command::Validate { token } => {
            let last = step.after.key.lease.as_ref();
            let verdict = match last {
                Some(lease) if lease.token == *token && plain::is_alive(lease, asked.now) => Verdict::Current,
                Some(lease) if *token <= lease.token => Verdict::Stale,
                _ => Verdict::Unknown,
            };
            *answer == Answer::Done(Reply::Verdict { verdict, current_token: last.map(|lease| lease.token) })
        }
        Command::Settle => *answer == Answer::Done(Reply::Nothing),
    };
    check(true_answer, AnswersAreTrue, || format!("{command:?} was answered {answer:?} on {:?}", step.after))
}

fn is_quarantined(room: &Room) -> bool {
    room.key.quarantine.is_some()
}

/// Whether a reading is the key's lease as the step left it.
fn is_current(step: &Step<'_>, reading: &LeaseReading) -> bool {
    step.after.key.lease.as_ref() == Some(&reading.lease) && step.after.key.lease_key == reading.lease_key
}

fn acquire(asked: &Asked<'_>, waits: bool, step: &Step<'_>, answer: &Answer) -> Result<(), Broken> {
    let refusal = match answer {
        Answer::Done(Reply::Lease(reading)) => {
            let granted = step.events.last().is_some_and(|event| super::events::is_grant_to_newcomer(event));
            return check(granted && is_current(step, reading), AnswersAreTrue, || format!("{reading:?}"));
        }
        Answer::Refused(refusal) => Some(refusal),
        _ => None,
    };
    let status = plain::status(&step.after.key, asked.now);
    check(status != KeyStatus::Free, FreeIsGranted, || format!("free, but {answer:?}"))?;
    match refusal {
        Some(Refusal::QueueFull { limit }) => {
            let full = waits && *limit == asked.waiters_per_key && step.after.queue.len() >= *limit;
            check(full, AnswersAreTrue, || format!("{answer:?} on {:?}", step.after))
        }
        Some(refusal) => {
            check(!waits || status == KeyStatus::Quarantined, AnswersAreTrue, || format!("did not wait: {answer:?}"))?;
            judge_obstacle(asked, step.after, refusal)
        }
        None => {
            let may_wait = waits && status != KeyStatus::Quarantined && *answer == Answer::Waiting;
            check(may_wait, AnswersAreTrue, || format!("{answer:?} on {:?}", step.after))
        }
    }
}

/// Whether a refusal says what is in the way on a settled key.
pub(super) fn judge_obstacle(asked: &Asked<'_>, room: &Room, refusal: &Refusal) -> Result<(), Broken> {
    let busy = || {
        let lease = room.key.lease.as_ref()?;
        let ending = plain::ending(lease, asked.now);
        let until = match ending {
            None => lease.expires_at,
            Some(ending) => plain::cooling_until(lease, ending)?,
        };
        Some((&lease.owner, ending.map_or(lease.acquired_at, |ending| ending.at), until, room.queue.len()))
    };
    let says_so = |told: &Busy| busy() == Some((&told.owner, told.since, told.expires_at, told.queue_length));
    let fits = match (plain::status(&room.key, asked.now), refusal) {
        (KeyStatus::Quarantined, Refusal::Quarantined(quarantine)) => room.key.quarantine.as_ref() == Some(quarantine),
        (KeyStatus::Held, Refusal::Held(told))
        | (KeyStatus::Breaking, Refusal::Breaking(told))
        | (KeyStatus::Cooling, Refusal::Cooling(told)) => says_so(told),
        _ => false,
    };
    check(fits, AnswersAreTrue, || format!("{refusal:?} on {room:?}"))
}

/// Whether the answer says rightly that the lease is over, or unknown.
fn is_lost<'a>(asked: &Asked<'_>, step: &Step<'_>, id: LeaseId, answer: &Answer, lookup: Lookup<'a>) -> bool {
    let holder = plain::held(&step.after.key, asked.now).map(|lease| (lease.owner.clone(), lease.acquired_at));
    match (lookup(id), answer) {
        (None, Answer::Refused(Refusal::LeaseUnknown)) => true,
        (Some(lease), Answer::Refused(Refusal::LeaseLost { reason, holder: told })) => {
            lease.ended.map(|ending| ending.outcome) == Some(*reason) && *told == holder
        }
        _ => false,
    }
}

fn release<'a>(asked: &Asked<'_>, step: &Step<'_>, id: LeaseId, answer: &Answer, lookup: Lookup<'a>) -> bool {
    let lease = lookup(id);
    let is_last = step.after.key.lease.as_ref().is_some_and(|last| last.id() == id);
    let expected = match lease.and_then(|lease| lease.ended).map(|ending| ending.outcome) {
        Some(Outcome::Released) => Some(ReleaseOutcome::Released),
        Some(Outcome::Expired) if is_last => Some(ReleaseOutcome::Expired),
        _ => None,
    };
    match answer {
        Answer::Done(Reply::Released { lease: told, outcome }) => {
            expected == Some(*outcome) && lease == Some(&told.lease) && told.lease_key == step.after.key.lease_key
        }
        answer => expected.is_none() && is_lost(asked, step, id, answer, lookup),
    }
}

fn transfer<'a>(asked: &Asked<'_>, step: &Step<'_>, id: LeaseId, answer: &Answer, lookup: Lookup<'a>) -> bool {
    let held = plain::held(&step.after.key, asked.now).is_some_and(|lease| lease.id() == id);
    let kept = |reading: &LeaseReading| {
        let old = lookup(id);
        old.is_some_and(|old| old.ended.is_some_and(|ending| ending.outcome == Outcome::Transferred))
            && reading.lease.token > id.token()
            && is_current(step, reading)
    };
    match (plain::status(&step.after.key, asked.now), answer) {
        (KeyStatus::Held, Answer::Done(Reply::Lease(reading))) => kept(reading),
        (KeyStatus::Breaking | KeyStatus::Quarantined, Answer::Refused(refusal)) if held => {
            judge_obstacle(asked, step.after, refusal).is_ok()
        }
        (_, answer) => !held && is_lost(asked, step, id, answer, lookup),
    }
}
