//! The seam between the engine and a database.
//!
//! A store only loads and saves; what happens is decided above it. The seam carries what both databases need: on SQLite
//! the states of keys live in the process and the file follows, so that locking a key costs nothing; on a shared database
//! the rows of keys are the lock and the state, some may be locked by another node, and time is read after the locks.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use domain::lease::{FencingToken, Lease, Outage, Refusal, Reply, Room, WaiterId};
use domain::{Actor, LeaseKey, Timestamp};
use futures::future::BoxFuture;

use crate::access::AccessChange;
use crate::engine::idempotency::{IdempotencyId, Remembered};
use crate::error::StoreError;
use crate::timeline::{Position, Record};

pub mod backup;
pub mod copy;
pub mod postgres;
mod prefixes;
pub mod sqlite;

/// A database, as the engine's writers see it.
pub trait Store: Send + Sync + 'static {
    /// One write under way.
    type Tx<'s>: Tx
    where
        Self: 's;

    /// Whether those who wait outlive a commit of which nobody knows whether it happened: their queues are in the database.
    const QUEUES_ARE_STORED: bool;

    /// Begins a write.
    fn begin(&self) -> impl Future<Output = Result<Self::Tx<'_>, StoreError>> + Send;

    /// Shows that the service lives, although nothing else is to be written.
    fn mark(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Forgets what is in memory and reads it anew, after a commit of which nobody knows whether it happened.
    fn reload(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Whether so many lines wait to be applied to the read models that the writer should wait for them.
    fn caught_up(&self) -> impl Future<Output = ()> + Send;
}

/// A database, as the rest of the engine sees it.
pub(crate) trait Keeper: Send + Sync {
    /// Whether server time has come further than may be told: then nothing may be answered by it.
    fn is_ahead(&self) -> bool;

    /// Whether something must be recorded (an outage) before anything is read.
    fn is_behind(&self) -> bool;

    /// Waits until the read models have come to all that is committed now, for at most a second.
    fn settled(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Waits for a line that is not known here, but may be elsewhere; whether it is known then. An error if it is there, or may
    /// be, and has not come in time.
    fn come_to(&self, position: Position) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Makes sure that what other nodes changed of tokens and sessions is known here.
    fn learn_access(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    /// How many callers wait at other nodes.
    fn waiting_elsewhere(&self) -> u64;

    /// Whether what is done from time to time is this node's to do.
    fn is_on_duty(&self) -> bool;

    /// Makes the read models durable as far as they have come; how far, unless readers were in the way.
    fn make_views_durable(&self) -> BoxFuture<'_, Result<Option<Position>, StoreError>>;

    /// Forgets old grants, a piece at a time: see [`crate::timeline::Projection::forget`].
    fn forget(
        &self,
        ended_before: Timestamp,
        after: Option<FencingToken>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Option<FencingToken>, StoreError>>;

    /// Whether there are idempotency records older than `before`.
    fn remembers_before(&self, before: Timestamp) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Lets go of the database.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// What a batch needs of the database before it can be decided.
pub struct Needs<'a> {
    /// Its keys, none twice.
    pub keys: Vec<&'a LeaseKey>,
    /// It asks for so many grants at most.
    pub grants: usize,
    /// It is so many commands, each of which may give its key to somebody who waits.
    pub commands: usize,
    /// Whether any of them may wait itself.
    pub waits: bool,
    /// Whether it changes tokens or sessions.
    pub access: bool,
    /// Whether any of its requests carries an idempotency key.
    pub recalls: bool,
    /// Whether nothing may be decided by what is remembered of the keys, since that has shown to be wrong.
    pub fresh: bool,
    /// Whether to wait for keys that are locked by another transaction, rather than go on without them.
    pub patient: bool,
}

/// Keys that are ours until the end of the transaction.
pub struct Locked {
    /// The rooms of all keys that were asked for, but for those that are busy.
    pub rooms: Vec<Room>,
    /// Keys that another transaction has locked.
    pub busy: Vec<LeaseKey>,
    /// Server time: never before the request, nor before any of these keys' last change; what is committed is so after it.
    pub now: Timestamp,
    /// Those in the rooms' queues who wait at another node which has shown within the last three seconds that it lives.
    /// Whether those of this node are there, the engine sees by their connections.
    pub waiting_elsewhere: HashMap<WaiterId, Elsewhere>,
}

/// A caller who waits at another node, besides what its queue tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// Who asked.
    pub actor: Arc<Actor>,
    /// The request's idempotency key and fingerprint, if it carries one.
    pub request: Option<(IdempotencyId, [u8; 32])>,
}

/// What is remembered of requests with an idempotency key.
#[derive(Default)]
pub struct Recalled {
    /// Those that had an effect.
    pub done: Vec<Remembered>,
    /// Those that wait at another node, with their fingerprints.
    pub waiting: Vec<(IdempotencyId, [u8; 32])>,
}

/// What a caller who waits at another node is to be told.
#[derive(Clone, Debug)]
pub struct Waking {
    /// Who.
    pub waiter: WaiterId,
    /// What.
    pub result: Result<Reply, Refusal>,
    /// Whether the caller can ask again: a grant is then kept although it cannot be told.
    pub is_kept: bool,
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
    /// What requests with an idempotency key did. Each is the first of its name, or nothing of the batch may happen.
    pub remembered: Vec<Remembered>,
    /// What such requests came to that had waited. Should their name be taken by now, the effect counts all the same.
    pub remembered_late: Vec<Remembered>,
    /// Who joined queues, with their requests' idempotency keys and fingerprints.
    pub joined: HashMap<WaiterId, Option<(IdempotencyId, [u8; 32])>>,
    /// What callers who wait at other nodes are to be told.
    pub wakings: Vec<Waking>,
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
    /// Whether there is nothing to write at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.rooms.is_empty() && self.wakings.is_empty() && self.is_only_records()
    }

    /// Whether there is nothing to write besides records.
    #[must_use]
    pub fn is_only_records(&self) -> bool {
        self.remembered.is_empty()
            && self.remembered_late.is_empty()
            && self.access.is_empty()
            && self.retention.is_none()
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

    /// Locks keys and reads their states and the time; or remembers them, and then nothing is committed unless they are still so:
    /// [`StoreError::Stale`] if not. Once for each transaction.
    fn lock(&mut self, needs: &Needs<'_>) -> impl Future<Output = Result<Locked, StoreError>> + Send;

    /// A token greater than all that any of the keys was ever given, as often as the [needs](Needs) can ask for one.
    fn token(&mut self) -> FencingToken;

    /// Earlier leases of these very keys, as far as they are still known.
    fn former(
        &mut self,
        wanted: &[(LeaseKey, FencingToken)],
    ) -> impl Future<Output = Result<Vec<Lease>, StoreError>> + Send;

    /// What is remembered of these requests.
    fn recall(&mut self, wanted: &[IdempotencyId]) -> impl Future<Output = Result<Recalled, StoreError>> + Send;

    /// Writes the batch and makes it durable; on return it is also what [`Tx::lock`] reads next. Answers what happened.
    fn commit(self, batch: Batch) -> impl Future<Output = Result<Vec<Arc<Record>>, CommitError>> + Send;
}
