//! SQLite, embedded: one process, two files.
//!
//! `PATH` is the truth: the timeline, and the ordinary tables that change with it, flushed before anything is
//! acknowledged. `PATH-views` holds the read models, which follow. The states of keys live in memory; a key that is not
//! there is read from the models, which then have all that was ever written about it.

mod access;
mod bulk;
mod files;
mod kept;
mod lists;
mod memory;
mod open;
mod project;
mod reading;
mod rows;
mod source;
mod target;
mod tx;
mod verify;
mod views;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::lease::{FencingToken, Outage};
use domain::{Span, Timestamp};
use futures::future::BoxFuture;
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnection, SqlitePool};
use tokio::sync::{MappedMutexGuard, MutexGuard, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::files::{beside, lock_place};
use self::memory::Memory;
pub(crate) use self::reading::SqliteReading;
pub(crate) use self::source::{AnswerRow, KeptRow, LinkRow, SessionRow, Source, TokenRow};
pub(crate) use self::target::{Target, begin_anew, bring_up, copy_file};
pub use self::verify::verify;
use crate::access::Directory;
use crate::clock::{Clock, ClockMark, TimeSource};
use crate::error::{OpenError, StoreError};
use crate::metrics::Metrics;
use crate::store::{Keeper, Store};
use crate::timeline::{self, Position, ReadError, Timeline};

/// No mark of the clock for so long is an outage.
const OUTAGE_AFTER: Span = Span::millis(2_000);

/// How long to wait for the read models when all is read anew: callers are told meanwhile.
const RELOAD_PATIENCE: Duration = Duration::from_secs(2);

/// A mark younger than this need not be renewed by a commit, nor one younger than this by itself: that comes about once a second.
const MARK_EVERY: Span = Span::millis(500);
const MARK_ANEW: Span = Span::millis(200);

/// The embedded store.
pub struct SqliteStore {
    path: PathBuf,
    /// The one connection that writes the truth.
    /// None once closed.
    truth: tokio::sync::Mutex<Option<SqliteConnection>>,
    views: SqlitePool,
    memory: Mutex<Memory>,
    clock: Arc<Clock>,
    timeline: Arc<Timeline>,
    directory: Arc<Directory>,
    metrics: Arc<Metrics>,
    outage_grace: Span,
    /// No answer may carry a later time (microseconds): what is persisted goes so far.
    ceiling: std::sync::atomic::AtomicI64,
    /// Bytes written since the last checkpoint, about.
    unchecked: std::sync::atomic::AtomicU64,
    requests: mpsc::Sender<timeline::Request>,
    stop: CancellationToken,
    follower: Mutex<Option<JoinHandle<()>>>,
    /// Held until the files are closed.
    lock: Mutex<Option<files::Locks>>,
}

impl SqliteStore {
    /// Opens the database at `path`, creating it if it does not exist, and brings the read models up to date.
    ///
    /// # Errors
    /// If another process serves it, a newer version used it, or the files cannot be used.
    pub(crate) async fn open(
        path: &Path,
        outage_grace: Span,
        source: Arc<dyn TimeSource>,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, OpenError> {
        let path = &files::resolve(path)?;
        let lock = files::lock(path)?;
        let mut truth = open::truth(path).await?;
        let head = open::head(&mut truth, &*source).await?;
        let views = match views::open(path, &head, &mut truth).await {
            Ok(views) => views,
            Err(error) => {
                // The error at hand says more than one of the closing would.
                let _ = truth.close().await;
                return Err(error);
            }
        };
        let clock = Arc::new(Clock::start(source, Some(&head.mark)));
        let directory = Arc::new(access::load(&mut truth, clock.now()).await?);

        let lines = Box::new(open::StoredLines(open::readers(path, 4)));
        let timeline = Arc::new(Timeline::new(Arc::clone(&head.epoch), head.position, views.applied, lines));
        let mut projection = Box::new(views::ViewWriter::new(views.db));
        timeline::catch_up(&timeline, &mut *projection).await.map_err(|error| match error {
            ReadError::Store(error) => OpenError::Store(error),
            error @ ReadError::Compacted { .. } => OpenError::Store(StoreError::corrupt(error)),
        })?;

        // Tokens go on after all that were ever given out. Those that catching up has found are below the time, too,
        // unless more than a million were given out each second.
        let token = views.token.max(clock.now().as_micros().cast_unsigned());
        let memory = Memory::new(memory::CAPACITY, head.position, head.hash, token, head.mark.lived_at);
        let (requests, requests_receiver) = mpsc::channel(4);
        let store = Arc::new(Self {
            path: path.to_owned(),
            truth: tokio::sync::Mutex::new(Some(truth)),
            views: open::readers(&views::path_beside(path), 4),
            memory: Mutex::new(memory),
            clock,
            timeline: Arc::clone(&timeline),
            directory,
            metrics,
            outage_grace,
            ceiling: std::sync::atomic::AtomicI64::new(head.mark.ceiling.as_micros()),
            unchecked: std::sync::atomic::AtomicU64::new(files::left_in_log(path)),
            requests,
            stop: CancellationToken::new(),
            follower: Mutex::new(None),
            lock: Mutex::new(Some(lock)),
        });
        let applied = {
            let store = Arc::downgrade(&store);
            move |position| {
                if let Some(store) = store.upgrade() {
                    store.memory().set_applied(position);
                }
            }
        };
        let stop = store.stop.clone();
        let follower =
            tokio::spawn(timeline::follow(timeline, projection, applied, requests_receiver, timeline::LINGER, stop));
        *store.follower.lock().unwrap_or_else(PoisonError::into_inner) = Some(follower);
        Ok(store)
    }

    /// Server time.
    pub(crate) fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    /// The timeline.
    pub(crate) fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    /// Who may call.
    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Reads the read models.
    pub(crate) fn reading(&self) -> SqliteReading {
        SqliteReading::new(self.views.clone())
    }

    /// Stops following, and leaves the files as small as they can be.
    async fn close(&self) {
        self.timeline.settled().await;
        // Of each file the connection that writes comes last: only it can leave no write-ahead log behind.
        self.views.close().await;
        self.stop.cancel();
        let follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(follower) = follower {
            // It ends by itself; that it was aborted or panicked is no reason not to close.
            let _ = follower.await;
        }
        self.timeline.close().await;
        if let Some(truth) = self.truth.lock().await.take()
            && let Err(error) = truth.close().await
        {
            tracing::warn!(%error, path = %self.path.display(), "the database did not close well; the next start makes up for it");
        }
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Makes the read models durable as far as they have come; how far, unless readers were in the way.
    async fn make_views_durable(&self) -> Result<Option<Position>, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.ask(timeline::Request::Durable(reply)).await?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Forgets old grants, a piece at a time: see [`timeline::Projection::forget`].
    async fn forget(
        &self,
        ended_before: Timestamp,
        after: Option<FencingToken>,
        limit: u32,
    ) -> Result<Option<FencingToken>, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.ask(timeline::Request::Forget { ended_before, after, limit, reply }).await?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Whether there are idempotency records older than `before`.
    async fn remembers_before(&self, before: Timestamp) -> Result<bool, StoreError> {
        let mut truth = self.truth().await?;
        Ok(sqlx::query_scalar(tx::REMEMBERS_BEFORE).bind(before.as_micros()).fetch_one(&mut *truth).await?)
    }

    async fn ask(&self, request: timeline::Request) -> Result<(), StoreError> {
        self.requests.send(request).await.map_err(|_| StoreError::Closed)
    }

    async fn truth(&self) -> Result<MappedMutexGuard<'_, SqliteConnection>, StoreError> {
        MutexGuard::try_map(self.truth.lock().await, Option::as_mut).map_err(|_| StoreError::Closed)
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the clock's mark although nothing else is to be written.
    async fn mark(&self) -> Result<(), StoreError> {
        let mark = self.clock.mark();
        let is_young = mark.lived_at.since(self.memory().lived_at) < MARK_ANEW;
        if (is_young && !self.is_ahead()) || self.outage_at(mark.lived_at).is_some() {
            // It was written a moment ago, by a commit; or an outage must be recorded first, by the writer.
            return Ok(());
        }
        let mut truth = self.truth().await?;
        tx::write_mark(&mut truth, &mark).await?;
        self.marked(&mark);
        Ok(())
    }

    /// The mark was persisted.
    fn marked(&self, mark: &ClockMark) {
        self.memory().lived_at = mark.lived_at;
        self.ceiling.store(mark.ceiling.as_micros(), Ordering::Release);
    }

    /// Whether server time has come further than what is persisted: then nothing may be answered by it, since after a crash it
    /// could be told once more.
    fn is_ahead(&self) -> bool {
        self.clock.now().as_micros() > self.ceiling.load(Ordering::Acquire)
    }

    fn outage_at(&self, now: Timestamp) -> Option<Outage> {
        let from = self.memory().lived_at;
        (now.since(from) > OUTAGE_AFTER).then_some(Outage { from, to: now, grace_us: self.outage_grace })
    }

    /// Whether so long has passed since the last mark that an outage must be recorded before anything is read.
    fn is_behind(&self) -> bool {
        self.outage_at(self.clock.now()).is_some()
    }
}

impl Store for SqliteStore {
    type Tx<'s> = tx::SqliteTx<'s>;

    const QUEUES_ARE_STORED: bool = false;

    async fn mark(&self) -> Result<(), StoreError> {
        self.mark().await
    }

    async fn begin(&self) -> Result<tx::SqliteTx<'_>, StoreError> {
        if self.is_ahead() {
            self.mark().await?;
        }
        let mark = self.clock.mark();
        let outage = self.outage_at(mark.lived_at);
        Ok(tx::SqliteTx::new(self, mark, outage))
    }

    async fn reload(&self) -> Result<(), StoreError> {
        let mut truth = self.truth().await?;
        // Whether a transaction is still open is not known; an error here means that none is.
        let _ = sqlx::query(tx::ROLLBACK).execute(&mut *truth).await;
        truth.ping().await?;
        let head = open::head(&mut truth, &crate::clock::SystemTime::default()).await?;
        drop(truth);
        self.timeline.reset(head.position);
        let applied = self.timeline.wait_applied(head.position);
        tokio::time::timeout(RELOAD_PATIENCE, applied).await.map_err(|_| StoreError::Behind)?;
        let mut memory = self.memory();
        let token = memory.token;
        *memory = Memory::new(memory::CAPACITY, head.position, head.hash, token, head.mark.lived_at);
        Ok(())
    }

    async fn caught_up(&self) {
        self.timeline.caught_up().await;
    }
}

impl Keeper for SqliteStore {
    fn is_ahead(&self) -> bool {
        self.is_ahead()
    }

    fn is_behind(&self) -> bool {
        self.is_behind()
    }

    fn settled(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async {
            self.timeline.settled().await;
            Ok(())
        })
    }

    fn come_to(&self, _: Position) -> BoxFuture<'_, Result<bool, StoreError>> {
        // Nobody else writes any.
        Box::pin(async { Ok(false) })
    }

    fn learn_access(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        // Nobody else changes anything.
        Box::pin(async { Ok(()) })
    }

    fn waiting_elsewhere(&self) -> u64 {
        0
    }

    fn is_on_duty(&self) -> bool {
        true
    }

    fn make_views_durable(&self) -> BoxFuture<'_, Result<Option<Position>, StoreError>> {
        Box::pin(self.make_views_durable())
    }

    fn forget(
        &self,
        ended_before: Timestamp,
        after: Option<FencingToken>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Option<FencingToken>, StoreError>> {
        Box::pin(self.forget(ended_before, after, limit))
    }

    fn remembers_before(&self, before: Timestamp) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(self.remembers_before(before))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.close())
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, Executor as _, SqlSafeStr as _};

    use super::*;

    #[tokio::test]
    async fn every_statement_can_be_prepared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leases.db");
        let source: Arc<dyn TimeSource> = Arc::new(crate::clock::SystemTime::default());
        let mut truth = open::truth(&path).await.unwrap();
        let head = open::head(&mut truth, &*source).await.unwrap();
        let mut views = views::open(&path, &head, &mut truth).await.unwrap().db;
        let on_truth = [
            open::statements(),
            tx::statements(),
            kept::statements(),
            access::statements(),
            source::statements(),
            target::statements(),
        ]
        .concat();
        let on_views =
            [views::statements(), tx::view_statements(), project::statements(), reading::statements()].concat();
        assert!(on_truth.len() > 20 && on_views.len() > 30, "{} and {}", on_truth.len(), on_views.len());
        for sql in on_truth {
            truth.prepare(sql.into_sql_str()).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        for sql in on_views {
            views.prepare(sql.into_sql_str()).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        for sql in lists::statements() {
            views.prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
        }
    }
}
