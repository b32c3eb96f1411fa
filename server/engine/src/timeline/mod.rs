//! The timeline: every change in order, from which all that is not on the path of a grant follows.
//!
//! Its newest lines are kept in memory; older ones are read from the database. Readers go by position.

mod changes;
mod projector;
mod record;
mod replay;
mod verify;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};

pub(crate) use changes::{Changes, Folded, GrantDelta, KeyDelta, Made, MinuteDelta, RecentRenewals, Seen};
pub(crate) use projector::{LINGER, Projection, Request, catch_up, follow};
pub use record::{GENESIS, Happening, Hash, Line, Other, Position, Record, Refused, chain};
pub(crate) use replay::Replay;
pub(crate) use verify::{Chain, check};

pub use verify::{Verified, VerifyError};

use crate::error::StoreError;

/// How many of the newest lines are kept in memory.
const RECENT: usize = 4_096;

/// How many lines may wait to be applied to the read models before the writer waits for them, and how many bytes: what they
/// say is held in memory until then.
const BACKLOG: i64 = 98_304;
const BACKLOG_BYTES: i64 = 64 << 20;

/// So many lines are folded for the read models at once, if they come quickly; but for these, whoever folds sleeps.
const UNFOLDED: i64 = 1_024;

/// How long a list waits for the read models to come to what was committed when it was asked.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why lines could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Retention has taken them away, or they belong to another epoch.
    #[error("these lines are gone: the oldest kept is after {}", oldest.0)]
    Compacted {
        /// Reading can begin after this position.
        oldest: Position,
    },
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Stored lines, in whatever database.
pub(crate) trait Lines: Send + Sync {
    /// At most `limit` lines after `after`, in order; and the position up to which retention has taken lines away.
    fn read(&self, after: Position, limit: u32) -> BoxFuture<'_, Result<(Vec<Line>, Position), StoreError>>;

    /// At most `limit` lines before `before`, the last first.
    fn read_back(&self, before: Position, limit: u32) -> BoxFuture<'_, Result<Vec<Line>, StoreError>>;

    /// The hash of the line at a position, if it is held or the last that retention has taken away.
    fn hash(&self, position: Position) -> BoxFuture<'_, Result<Option<Hash>, StoreError>>;

    /// Lets go of the database.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// The timeline, as its readers see it.
pub struct Timeline {
    epoch: Arc<str>,
    recent: RwLock<VecDeque<Line>>,
    head: watch::Sender<Position>,
    applied: watch::Sender<Position>,
    /// Bytes of the lines that were committed by this process and wait to be applied. For a moment less than none, when lines
    /// were read from the database and applied before they were pushed.
    waiting_bytes: AtomicI64,
    /// How far lines were folded for the read models.
    folded: AtomicI64,
    /// There is something to fold: the first line after all were folded, or many.
    unfolded: Notify,
    /// Somebody waits for the read models.
    wanted: Notify,
    lines: Box<dyn Lines>,
}

impl Timeline {
    pub(crate) fn new(epoch: Arc<str>, head: Position, applied: Position, lines: Box<dyn Lines>) -> Self {
        Self {
            epoch,
            recent: RwLock::default(),
            head: watch::Sender::new(head),
            applied: watch::Sender::new(applied),
            waiting_bytes: AtomicI64::new(0),
            folded: AtomicI64::new(applied.0),
            unfolded: Notify::new(),
            wanted: Notify::new(),
            lines,
        }
    }

    /// Tells this database from every other: positions mean nothing in another epoch. A copy of its files has the same;
    /// what was written after the copy was made is told apart by [`Timeline::hash_at`].
    #[must_use]
    pub fn epoch(&self) -> &str {
        &self.epoch
    }

    /// The last committed line.
    #[must_use]
    pub fn head(&self) -> Position {
        *self.head.borrow()
    }

    /// How far the read models have come.
    #[must_use]
    pub fn applied(&self) -> Position {
        *self.applied.borrow()
    }

    /// Follows the head: changes when lines were committed.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Position> {
        self.head.subscribe()
    }

    /// At most `limit` lines after `after`, in order, without a gap; none if there are none yet.
    ///
    /// # Errors
    /// If retention has taken some of them away, or the database fails.
    pub async fn read_after(&self, after: Position, limit: u32) -> Result<Vec<Line>, ReadError> {
        if let Some(lines) = self.recent_after(after, limit) {
            return Ok(lines);
        }
        let (lines, oldest) = self.lines.read(after, limit).await?;
        if after < oldest {
            return Err(ReadError::Compacted { oldest });
        }
        Ok(lines)
    }

    /// At most `limit` lines before `before`, the last first; fewer only if older ones are not kept.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn read_before(&self, before: Position, limit: u32) -> Result<Vec<Line>, StoreError> {
        if let Some(lines) = self.recent_before(before, limit) {
            return Ok(lines);
        }
        self.lines.read_back(before, limit).await
    }

    fn recent_before(&self, before: Position, limit: u32) -> Option<Vec<Line>> {
        let recent = self.recent.read().unwrap_or_else(PoisonError::into_inner);
        let first = recent.front()?.position;
        if before.0 - first.0 < i64::from(limit) {
            return None;
        }
        let end = usize::try_from(before.0 - first.0).ok()?.min(recent.len());
        Some(recent.range(..end).rev().take(limit as usize).cloned().collect())
    }

    /// The hash of the line at `position` (before the first line, [`GENESIS`]), which depends on all lines up to it. None
    /// if there is no such line yet, or retention has taken away that line and the one after it.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn hash_at(&self, position: Position) -> Result<Option<Hash>, StoreError> {
        match self.recent_hash(position) {
            Some(hash) => Ok(Some(hash)),
            None => self.lines.hash(position).await,
        }
    }

    fn recent_hash(&self, position: Position) -> Option<Hash> {
        let recent = self.recent.read().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(position.0 - recent.front()?.position.0).ok()?;
        recent.get(index).map(|line| line.hash)
    }

    /// From memory, if it goes back far enough.
    fn recent_after(&self, after: Position, limit: u32) -> Option<Vec<Line>> {
        if after >= self.head() {
            return Some(Vec::new());
        }
        let recent = self.recent.read().unwrap_or_else(PoisonError::into_inner);
        let first = recent.front()?.position;
        let skip = usize::try_from(after.next().0 - first.0).ok()?;
        Some(recent.iter().skip(skip).take(limit as usize).cloned().collect())
    }

    /// Lines that have just been committed by this process, and wait in it for the read models.
    pub(crate) fn push(&self, lines: &[Line]) {
        self.waiting_bytes.fetch_add(lines.iter().map(|line| line.body.len() as i64).sum(), Ordering::AcqRel);
        self.found(lines);
    }

    /// Lines that follow the head, committed by whatever process.
    pub(crate) fn found(&self, lines: &[Line]) {
        let (Some(first), Some(last)) = (lines.first(), lines.last()) else { return };
        {
            let mut recent = self.recent.write().unwrap_or_else(PoisonError::into_inner);
            recent.extend(lines.iter().cloned());
            let excess = recent.len().saturating_sub(RECENT);
            recent.drain(..excess);
        }
        self.head.send_replace(last.position);
        let folded = self.folded.load(Ordering::Acquire);
        if last.position.0 - folded >= UNFOLDED || folded + 1 >= first.position.0 {
            self.unfolded.notify_one();
        }
    }

    /// The read models were brought so far, by whatever process.
    pub(crate) fn found_applied(&self, position: Position) {
        self.applied.send_if_modified(|applied| {
            let is_further = *applied < position;
            *applied = position.max(*applied);
            is_further
        });
    }

    /// This process takes over the read models as they are.
    pub(crate) fn fold_from(&self, applied: Position) {
        self.set_folded(applied);
        self.waiting_bytes.store(0, Ordering::Release);
        self.found_applied(applied);
        self.unfolded.notify_one();
    }

    /// Lines that retention took away are not to be had from memory either.
    pub(crate) fn retain(&self, up_to: Position) {
        let mut recent = self.recent.write().unwrap_or_else(PoisonError::into_inner);
        while recent.pop_front_if(|line| line.position <= up_to).is_some() {}
    }

    /// The head as it was found in the database, which may hold lines that memory never saw.
    pub(crate) fn reset(&self, head: Position) {
        self.recent.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.waiting_bytes.store(0, Ordering::Release);
        self.head.send_replace(head);
        self.unfolded.notify_one();
    }

    /// Lets go of the database: only what is in memory can be read from now on.
    pub(crate) async fn close(&self) {
        self.lines.close().await;
    }

    fn folded(&self) -> Position {
        Position(self.folded.load(Ordering::Acquire))
    }

    fn set_folded(&self, position: Position) {
        self.folded.store(position.0, Ordering::Release);
    }

    /// Lines up to there were applied, so many bytes of them.
    fn set_applied(&self, position: Position, bytes: usize) {
        self.waiting_bytes.fetch_sub(bytes as i64, Ordering::AcqRel);
        self.applied.send_replace(position);
    }

    /// Waits until few enough lines wait for the read models.
    pub(crate) async fn caught_up(&self) {
        if self.is_behind(self.applied(), 1) {
            let mut applied = self.applied.subscribe();
            self.wanted.notify_one();
            // An error means that the projector has stopped, as it does at the end.
            let _ = applied.wait_for(|applied| !self.is_behind(*applied, 2)).await;
        }
    }

    /// Whether more than a part of what may wait for the read models does.
    fn is_behind(&self, applied: Position, part: i64) -> bool {
        let lines = self.head().0 - applied.0;
        lines > BACKLOG / part || self.waiting_bytes.load(Ordering::Acquire) > BACKLOG_BYTES / part
    }

    /// Waits until the read models have come to `position`, however long it takes.
    pub(crate) async fn wait_applied(&self, position: Position) {
        let mut applied = self.applied.subscribe();
        self.wanted.notify_one();
        let _ = applied.wait_for(|applied| *applied >= position).await;
    }

    /// Waits until the read models have come to all that is committed now, for at most a second.
    pub(crate) async fn settled(&self) {
        let head = self.head();
        if self.applied() < head {
            let _ = tokio::time::timeout(PATIENCE, self.wait_applied(head)).await;
        }
    }
}
