//! Bringing a key up to `now` before anything is decided on it: ends that are due, and grants that follow from them.

use std::sync::{Arc, LazyLock};

use super::decide::{Context, busy, grant};
use super::{Change, Event, KeyStatus, LeaseReading, Origin, Outcome, Refusal, Reply, Room, Waiter, WaiterId};
use crate::{Actor, RequestId, Timestamp};

/// Who brings about what merely comes due.
static CLOCK: LazyLock<Arc<Actor>> = LazyLock::new(|| Arc::new(Actor::system("clock")));

/// A waiter whose waiting is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Woken {
    /// Which.
    pub waiter: WaiterId,
    /// With what.
    pub result: Result<Reply, Refusal>,
}

/// What settling found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// What happened, in order.
    pub events: Vec<Event>,
    /// Who has waited enough, in order.
    pub woken: Vec<Woken>,
}

impl Settled {
    /// Applies what happened to the room and notes it.
    pub(super) fn happen(
        &mut self,
        room: &mut Room,
        at: Timestamp,
        actor: &Arc<Actor>,
        request_id: Option<&RequestId>,
        change: Change,
    ) {
        let event = Event {
            at,
            lease_key: room.key.lease_key.clone(),
            actor: Arc::clone(actor),
            request_id: request_id.cloned(),
            change,
        };
        room.key.apply(&event);
        self.events.push(event);
    }
}

/// Settles a key at `context.now`: a lease that is due ends; waiters who are gone or have waited long enough leave; and
/// if nothing is held, cooling or quarantined, the first live waiter is granted the key from now on.
pub fn settle(room: &mut Room, context: &mut Context<'_>, settled: &mut Settled) {
    end_what_is_due(room, context, settled);
    if room.queue.is_empty() {
        return;
    }
    if let Some(quarantine) = &room.key.quarantine {
        let refusal = Refusal::Quarantined(quarantine.clone());
        for waiter in room.queue.drain() {
            settled.woken.push(Woken { waiter: waiter.id, result: Err(refusal.clone()) });
        }
        return;
    }
    dismiss(room, context, settled);
    if room.key.status(context.now) == KeyStatus::Free
        && let Some(waiter) = room.queue.next()
    {
        serve(room, &waiter, context, settled);
    }
}

fn end_what_is_due(room: &mut Room, context: &Context<'_>, settled: &mut Settled) {
    let Some(lease) = room.key.lease.as_ref().filter(|lease| lease.ended.is_none()) else { return };
    let ending = lease.ending();
    if context.now < ending.at {
        return;
    }
    // A break is its operator's doing even though it comes about by the clock.
    let (actor, reason) = match &lease.breaking {
        Some(breaking) if ending.outcome == Outcome::Broken => {
            (Arc::clone(&breaking.by), Some(breaking.reason.clone()))
        }
        _ => (Arc::clone(&CLOCK), None),
    };
    let change = Change::end(lease, ending, reason);
    settled.happen(room, context.now, &actor, None, change);
}

/// Waiters who are gone leave silently, those past their deadline with an answer.
fn dismiss(room: &mut Room, context: &Context<'_>, settled: &mut Settled) {
    let now = context.now;
    let mut late = Vec::new();
    room.queue.retain(|waiter| {
        if !(context.is_live)(waiter.id) {
            return false;
        }
        if now >= waiter.deadline {
            late.push(waiter.id);
            return false;
        }
        true
    });
    for waiter in late {
        let result = Err(Refusal::WaitTimeout(busy(room, now)));
        settled.woken.push(Woken { waiter, result });
    }
}

fn serve(room: &mut Room, waiter: &Waiter, context: &mut Context<'_>, settled: &mut Settled) {
    let change = grant(room, &waiter.request, Origin::Waited, context);
    settled.happen(room, context.now, &waiter.actor, waiter.request_id.as_ref(), change);
    if let Some(lease) = &room.key.lease {
        let reading = LeaseReading { lease_key: room.key.lease_key.clone(), lease: lease.clone() };
        settled.woken.push(Woken { waiter: waiter.id, result: Ok(Reply::Lease(reading)) });
    }
}
