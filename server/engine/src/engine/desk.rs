//! What all lanes behind the door share: who waits, what was refused, and how callers who waited are told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::Timestamp;
use domain::lease::{LeaseId, Refusal, Woken};
use domain::{LeaseKey, Owner};
use tokio::sync::mpsc::UnboundedSender;

use super::delivery::Delivery;
use super::refusals::Refusals;
use super::waiting::Callers;
use super::work::{Done, Outcome, tell};
use crate::error::Fault;
use crate::metrics::{ByCode, Metrics, seconds};
use crate::timeline::Refused;

/// Grants whose answers were lost, to be ended.
pub(super) type Lost = UnboundedSender<(LeaseKey, LeaseId)>;

/// One for each process.
pub(super) struct Desk {
    callers: Mutex<Callers>,
    refusals: Mutex<Refusals>,
    metrics: Arc<Metrics>,
    lost: Lost,
}

impl Desk {
    pub(super) fn new(metrics: Arc<Metrics>, lost: Lost) -> Self {
        Self { callers: Mutex::default(), refusals: Mutex::default(), metrics, lost }
    }

    /// All callers who wait. Not to be held while anything else is waited for.
    pub(super) fn callers(&self) -> MutexGuard<'_, Callers> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where to send grants whose answers were lost.
    pub(super) const fn lost(&self) -> &Lost {
        &self.lost
    }

    /// Counts that `owner` was refused `key`.
    pub(super) fn refused(&self, key: &LeaseKey, owner: &Owner, refusal: &Refusal) {
        self.refusals().note(key, owner, refusal);
    }

    /// Takes out what was counted since the last time, in pieces that each make one line.
    pub(super) fn take_refused(&self) -> Vec<Vec<Refused>> {
        self.refusals().take()
    }

    /// Tells a caller that the waiting is over. A grant to somebody who has left meanwhile is ended, unless `is_kept`: then
    /// it is there for whoever asks again.
    pub(super) fn wake(&self, woken: Woken, is_kept: bool, now: Timestamp) {
        let caller = self.callers().remove(woken.waiter);
        match (woken.result, caller) {
            (Ok(reply), Some(caller)) => {
                self.metrics.wait_seconds.observe(seconds(now.since(caller.since)));
                let leases = reply.leases().map(|reading| (reading.lease_key.clone(), reading.lease.id())).collect();
                let delivery = if is_kept { None } else { Delivery::new(leases, &self.lost) };
                let done = Done { value: Outcome::Reply(reply), server_time: now, replayed: false, delivery };
                tell(Some(caller.reply), Ok(done));
            }
            (Ok(reply), None) if !is_kept => {
                for reading in reply.leases() {
                    // Without a lane nobody can end the lease; it expires.
                    let _ = self.lost.send((reading.lease_key.clone(), reading.lease.id()));
                }
            }
            (Err(refusal), Some(caller)) => {
                self.refused(&caller.key, &caller.owner, &refusal);
                let fault = Fault::Refused(refusal);
                self.count(&fault);
                tell(Some(caller.reply), Err(fault));
            }
            (_, None) => {}
        }
        self.count_waiting();
    }

    /// Brings the figure of those who wait up to date.
    pub(super) fn count_waiting(&self) {
        self.metrics.waiting.set(i64::try_from(self.callers().len()).unwrap_or(i64::MAX));
    }

    /// Counts a refusal by its code.
    pub(super) fn count(&self, fault: &Fault) {
        let code = match fault {
            Fault::Refused(refusal) => refusal.code(),
            Fault::IdempotencyMismatch => "idempotency_mismatch",
            Fault::IdempotencyInProgress => "idempotency_in_progress",
            Fault::NotFound(_) => "not_found",
            Fault::NotGoodAnyMore => "unauthenticated",
            Fault::Overloaded { .. } => "overloaded",
            Fault::Unavailable { .. } => "unavailable",
            Fault::Stopping => "stopping",
        };
        self.metrics.refusals.get_or_create(&ByCode { code }).inc();
    }
}
