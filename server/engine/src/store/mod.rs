//! The seam between the engine and a database.
//!
//! A store only loads and saves; what happens is decided above it. The seam carries what both databases need: on SQLite
//! the states of keys live in the process and the file follows, so that locking a key costs nothing; on a shared database
//! the rows of keys are the lock and the state, some may be locked by another node, and time is read after the locks.

use std::collections::HashSet;
use std::future::Future;

use domain::lease::{FencingToken, Lease, Outage, Room, WaiterId};
use domain::{LeaseKey, Timestamp};

use crate::access::AccessChange;
use crate::engine::idempotency::{IdempotencyId, Remembered};
use crate::error::StoreError;
use crate::timeline::{Line, Position, Record};

pub mod sqlite;

/// A database, as the engine's writer sees it.
pub trait Store: Send + Sync + 'static {
    /// One write under way.
    type Tx<'s>: Tx
    where
        Self: 's;

    /// Begins a write, and reads the time.
    fn begin(&self) -> impl Future<Output = Result<Self::Tx<'_>, StoreError>> + Send;

    /// Forgets what is in memory and reads it anew, after a commit of which nobody knows whether it happened.
    fn reload(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Whether so many lines wait to be applied to the read models that the writer should wait for them.
    fn caught_up(&self) -> impl Future<Output = ()> + Send;
}

/// Keys that are ours until the end of the transaction.
pub struct Locked {
    /// The rooms, in the order in which their keys were asked for.
    pub rooms: Vec<Room>,
    /// Server time, read after the locks: never before any of these keys' last change.
    pub now: Timestamp,
    /// Those in the rooms' queues who wait at another node which has shown within the last three seconds that it lives.
    /// Whether those of this node are there, the engine sees by their connections.
    pub waiting_elsewhere: HashSet<WaiterId>,
}

/// All that one transaction changes.
#[derive(Default)]
pub struct Batch {
    /// What happened, in order.
    pub records: Vec<Record>,
    /// The rooms that changed, as they are afterwards.
    pub rooms: Vec<Room>,
    /// Leases that are no longer the last of their key, as they ended.
    pub superseded: Vec<(LeaseKey, Lease)>,
    /// What requests with an idempotency key did.
    pub remembered: Vec<Remembered>,
    /// Changes of tokens and sessions.
    pub access: Vec<AccessChange>,
    /// What has been kept long enough.
    pub retention: Option<Retain>,
}

/// What has been kept long enough: to be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retain {
    /// All lines up to this one, if any.
    pub lines: Option<Position>,
    /// Idempotency records older than this.
    pub idempotency_before: Timestamp,
    /// At most so many of those.
    pub limit: u32,
}

impl Batch {
    /// Whether there is nothing to write besides records.
    #[must_use]
    pub fn is_only_records(&self) -> bool {
        self.remembered.is_empty() && self.access.is_empty() && self.retention.is_none()
    }
}

/// Why a transaction was not committed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Nothing of it happened.
    #[error("rolled back: {0}")]
    RolledBack(#[source] StoreError),
    /// It may have happened or not.
    #[error("unknown whether committed: {0}")]
    Unknown(#[source] StoreError),
}

/// One write under way. Dropped without a commit it changes nothing.
pub trait Tx: Send {
    /// The outage that must be recorded before anything else is decided.
    fn outage(&self) -> Option<Outage>;

    /// Locks keys, no key twice, and reads their states and the time.
    fn lock(&mut self, keys: &[LeaseKey]) -> impl Future<Output = Result<Locked, StoreError>> + Send;

    /// A token greater than all that were ever given out.
    fn token(&mut self) -> FencingToken;

    /// Earlier leases of these very keys, as far as they are still known.
    fn former(
        &mut self,
        wanted: &[(LeaseKey, FencingToken)],
    ) -> impl Future<Output = Result<Vec<Lease>, StoreError>> + Send;

    /// What is remembered of these requests.
    fn recall(&mut self, wanted: &[IdempotencyId]) -> impl Future<Output = Result<Vec<Remembered>, StoreError>> + Send;

    /// Writes the batch and makes it durable; on return it is also what [`Tx::lock`] reads next.
    fn commit(self, batch: Batch) -> impl Future<Output = Result<Vec<Line>, CommitError>> + Send;
}
