//! Judges the waiters: who stays, who leaves with which answer, and that nobody waits for what is free.

use domain::Timestamp;
use domain::lease::{Answer, KeyStatus, Refusal, Reply, Room, Waiter, WaiterId};

use super::{Asked, Step, plain};
use crate::invariant::Invariant::{EndsOnce, FirstInFirstOut, FreeIsGranted, QuarantineStopsGrants, WaitingEnds};
use crate::invariant::{Broken, check};

pub(super) fn judge(asked: &Asked<'_>, step: &Step<'_>) -> Result<(), Broken> {
    let now = asked.now;
    let key = &step.after.key;
    let due = key.lease.as_ref().is_some_and(|lease| lease.ended.is_none() && now >= lease.expires_at);
    check(!due, EndsOnce, || format!("not ended at {now}: {:?}", key.lease))?;
    stays_in_order(step)?;
    for waiter in step.before.queue.iter() {
        leaves_with_one_answer(asked, step, waiter)?;
    }
    let late = step.after.queue.iter().find(|waiter| now >= waiter.deadline);
    check(late.is_none(), WaitingEnds, || format!("still waits at {now}: {late:?}"))?;
    let first = step.after.queue.iter().find(|waiter| (asked.is_live)(waiter.id));
    let free = plain::status(key, now) == KeyStatus::Free;
    check(!free || first.is_none(), FreeIsGranted, || format!("free, yet waits: {first:?}"))?;
    check(key.quarantine.is_none() || step.after.queue.is_empty(), QuarantineStopsGrants, || "still waits".into())?;
    judge_alarm(step.after, now)
}

/// Those who stay keep their order, and whoever joins is last.
fn stays_in_order(step: &Step<'_>) -> Result<(), Broken> {
    let before: Vec<WaiterId> = step.before.queue.iter().map(|waiter| waiter.id).collect();
    let after: Vec<WaiterId> = step.after.queue.iter().map(|waiter| waiter.id).collect();
    let stay: Vec<WaiterId> = before.iter().copied().filter(|id| after.contains(id)).collect();
    let in_order = after.starts_with(&stay);
    let joined = after.len() - stay.len().min(after.len());
    check(in_order && joined <= 1, FirstInFirstOut, || format!("{:?} became {:?}", step.before.queue, step.after.queue))
}

fn leaves_with_one_answer(asked: &Asked<'_>, step: &Step<'_>, waiter: &Waiter) -> Result<(), Broken> {
    let stays = step.after.queue.iter().any(|after| after.id == waiter.id);
    let mut answers = step.woken.iter().filter(|woken| woken.waiter == waiter.id);
    let answer = answers.next();
    let silent_leave = !(asked.is_live)(waiter.id);
    let once = answers.next().is_none() && if stays { answer.is_none() } else { answer.is_some() || silent_leave };
    check(once, WaitingEnds, || format!("{waiter:?} was answered {:?}", step.woken))?;
    let fits = match answer.map(|woken| &woken.result) {
        None => true,
        Some(Ok(Reply::Lease(reading))) => {
            // It may have ended again in the same step, but it was granted now.
            reading.lease.acquired_at == asked.now && reading.lease.owner == waiter.request.owner
        }
        Some(Err(Refusal::WaitTimeout(_))) => asked.now >= waiter.deadline,
        Some(Err(Refusal::Quarantined(_))) => step.after.key.quarantine.is_some(),
        Some(_) => false,
    };
    check(fits, WaitingEnds, || format!("{waiter:?} was answered {answer:?} at {}", asked.now))
}

/// While somebody waits, the key asks to be looked at again, in the future, and not after what they wait for comes about.
fn judge_alarm(room: &Room, now: Timestamp) -> Result<(), Broken> {
    let Some(first) = room.queue.iter().map(|waiter| waiter.deadline).min() else {
        return check(room.wakes_at().is_none(), FreeIsGranted, || "an alarm for nobody".into());
    };
    let lease = room.key.lease.as_ref();
    let open = lease.map_or(first, |lease| match lease.ended {
        None => lease.expires_at,
        Some(ending) => plain::cooling_until(lease, ending).unwrap_or(first),
    });
    let alarm = room.wakes_at();
    let in_time = alarm.is_some_and(|at| now < at && at <= first.min(open));
    check(in_time, FreeIsGranted, || format!("an alarm at {alarm:?} for {first} and {open}"))
}

/// Whether the answer may be to wait: the asker is last in the queue, until its deadline.
pub(super) fn joined(asked: &Asked<'_>, step: &Step<'_>, answer: &Answer) -> bool {
    let last = step.after.queue.iter().last().filter(|last| !step.before.queue.iter().any(|known| known.id == last.id));
    match (answer, last, &asked.what) {
        (
            Answer::Waiting,
            Some(last),
            super::What::One(domain::lease::Command::Acquire { request, wait: Some(wait) }),
        ) => last.id == wait.waiter && last.deadline == asked.now + wait.time && last.request == *request,
        (Answer::Waiting, ..) => false,
        (_, last, _) => last.is_none(),
    }
}
