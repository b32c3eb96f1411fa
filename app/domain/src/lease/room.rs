//! A key with those who wait for it.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Acquire, KeyState};
use crate::{Actor, LeaseKey, RequestId, Timestamp};

/// Names a waiter within its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WaiterId(pub u64);

/// A caller who asked to wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Waiter {
    /// Its name.
    pub id: WaiterId,
    /// What it asked for.
    pub request: Acquire,
    /// Since when it waits.
    pub since: Timestamp,
    /// Until when: at this instant it is granted nothing any more.
    pub deadline: Timestamp,
    /// Who asked.
    pub actor: Arc<Actor>,
    /// In which request.
    pub request_id: Option<RequestId>,
}

/// The waiters of one key, first come first.
///
/// Shared pointers: a key's state is copied before every batch that touches it, its waiters are not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Queue(VecDeque<Arc<Waiter>>);

impl Queue {
    /// How many wait, the dead among them too until the key is next settled.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order in which they will be served.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        self.0.iter()
    }

    /// Behind all others.
    pub fn join(&mut self, waiter: Arc<Waiter>) {
        self.0.push_back(waiter);
    }

    /// Whether it was there.
    pub fn leave(&mut self, id: WaiterId) -> bool {
        match self.0.iter().position(|waiter| waiter.id == id) {
            Some(index) => self.0.remove(index).is_some(),
            None => false,
        }
    }

    /// The first one, taken out.
    pub(super) fn next(&mut self) -> Option<Arc<Waiter>> {
        self.0.pop_front()
    }

    /// Keeps those for whom `keep` is true, in order.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Arc<Waiter>) -> bool) {
        self.0.retain(|waiter| keep(waiter));
    }

    /// All of them, taken out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Arc<Waiter>> + '_ {
        self.0.drain(..)
    }
}

/// A key's state and its waiters: what a command is decided on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Room {
    /// The key's state: the replay of its events.
    pub key: KeyState,
    /// Its waiters: alive only as long as their connections, so never in an event.
    pub queue: Queue,
}

impl Room {
    /// A key of which nothing is known, with nobody waiting.
    #[must_use]
    pub fn new(lease_key: LeaseKey) -> Self {
        Self { key: KeyState::new(lease_key), queue: Queue::default() }
    }

    /// When somebody should look at this key even if no command comes: at the first deadline of a waiter, or when what
    /// they wait for may be had. `None` if nobody waits.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Timestamp> {
        let deadline = self.queue.iter().map(|waiter| waiter.deadline).min()?;
        let open = match &self.key.lease {
            Some(lease) if lease.ended.is_none() => Some(lease.expires_at),
            _ => self.key.cooling_until,
        };
        Some(open.map_or(deadline, |open| open.min(deadline)))
    }
}
