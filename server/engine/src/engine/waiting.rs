//! Callers who wait, and the times at which their keys must be looked at.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use domain::lease::WaiterId;
use domain::{Actor, LeaseKey, Owner, Timestamp};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::idempotency::{Idempotency, IdempotencyId};
use super::work::Answered;

/// The most callers that may wait at once, for all keys together.
pub(super) const MOST_WAITING: usize = 10_000;

/// A caller's side of waiting: dropped, the caller is gone.
pub(super) struct Presence {
    alive: Arc<AtomicBool>,
    key: LeaseKey,
    left: UnboundedSender<LeaseKey>,
    has_place: bool,
}

impl Presence {
    /// A caller who is there, and the sign by which the writer sees it.
    pub(super) fn new(key: LeaseKey, left: UnboundedSender<LeaseKey>) -> (Self, Arc<AtomicBool>) {
        let alive = Arc::new(AtomicBool::new(true));
        (Self { alive: Arc::clone(&alive), key, left, has_place: true }, alive)
    }

    /// The caller was granted or refused the key, and with that has left the queue.
    pub(super) const fn answered(&mut self) {
        self.has_place = false;
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::Release);
        // Only so that the queue is tidied soon; settling goes by the sign.
        if self.has_place {
            let _ = self.left.send(self.key.clone());
        }
    }
}

/// The writer's side of a caller who waits.
pub(super) struct Caller {
    pub(super) key: LeaseKey,
    pub(super) owner: Owner,
    pub(super) actor: Arc<Actor>,
    pub(super) since: Timestamp,
    /// Until when the caller is willing to wait.
    pub(super) until: Timestamp,
    pub(super) alive: Arc<AtomicBool>,
    pub(super) reply: oneshot::Sender<Answered>,
    pub(super) idempotency: Option<(IdempotencyId, Idempotency)>,
}

impl Caller {
    /// Whether the caller is still there, as far as is known.
    pub(super) fn is_there(&self) -> bool {
        self.alive.load(Ordering::Acquire) && !self.reply.is_closed()
    }
}

/// All callers who wait.
#[derive(Default)]
pub(super) struct Callers {
    by_id: HashMap<WaiterId, Caller>,
    /// Requests with an idempotency key that wait.
    requests: HashMap<IdempotencyId, WaiterId>,
}

impl Callers {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn get(&self, id: WaiterId) -> Option<&Caller> {
        self.by_id.get(&id)
    }

    /// The caller whose request of that name still waits.
    pub(super) fn request(&self, id: &IdempotencyId) -> Option<&Caller> {
        self.requests.get(id).and_then(|waiter| self.by_id.get(waiter)).filter(|caller| caller.is_there())
    }

    pub(super) fn insert(&mut self, id: WaiterId, caller: Caller) {
        if let Some((request, _)) = &caller.idempotency {
            self.requests.insert(request.clone(), id);
        }
        self.by_id.insert(id, caller);
    }

    /// Takes out those for whom `is_out` is true.
    pub(super) fn take_if(&mut self, is_out: impl Fn(&Caller) -> bool) -> Vec<Caller> {
        let out: Vec<WaiterId> = self.by_id.iter().filter(|(_, caller)| is_out(caller)).map(|(id, _)| *id).collect();
        out.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Caller> {
        let caller = self.by_id.remove(&id)?;
        if let Some((request, _)) = &caller.idempotency
            && self.requests.get(request) == Some(&id)
        {
            self.requests.remove(request);
        }
        Some(caller)
    }

    /// Forgets callers who have left a queue without an answer.
    pub(super) fn forget_gone(&mut self) {
        let gone: Vec<WaiterId> =
            self.by_id.iter().filter(|(_, caller)| !caller.is_there()).map(|(id, _)| *id).collect();
        for id in gone {
            self.remove(id);
        }
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Caller> + '_ {
        self.requests.clear();
        self.by_id.drain().map(|(_, caller)| caller)
    }
}

/// When keys with waiters must be looked at, whether or not a command comes.
#[derive(Default)]
pub(super) struct Timers {
    by_time: BTreeSet<(Timestamp, LeaseKey)>,
    by_key: HashMap<LeaseKey, Timestamp>,
}

impl Timers {
    /// Sets, moves or removes the time of a key.
    pub(super) fn set(&mut self, key: &LeaseKey, at: Option<Timestamp>) {
        if self.by_key.get(key).copied() == at {
            return;
        }
        if let Some(before) = self.by_key.remove(key) {
            self.by_time.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.by_key.insert(key.clone(), at);
            self.by_time.insert((at, key.clone()));
        }
    }

    /// The next time.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes out the keys whose time has come, at most `limit`.
    pub(super) fn due(&mut self, now: Timestamp, limit: usize) -> Vec<LeaseKey> {
        let mut keys = Vec::new();
        while keys.len() < limit && self.next().is_some_and(|at| at <= now) {
            let Some((_, key)) = self.by_time.pop_first() else { break };
            self.by_key.remove(&key);
            keys.push(key);
        }
        keys
    }

    pub(super) fn clear(&mut self) {
        self.by_time.clear();
        self.by_key.clear();
    }
}
