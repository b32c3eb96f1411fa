//! PostgreSQL, shared by any number of nodes.
//!
//! The row of a key is its lock and its state; beside it, in the same transaction, what happened goes to a log. One node at a
//! time moves the log to the timeline, and brings the read models up to it; any node can. Time is the database's.

mod access;
mod follow;
mod former;
mod kept;
mod life;
mod link;
mod lists;
mod log;
mod open;
mod project;
mod queue;
mod reading;
mod retention;
mod rows;
mod sequencer;
mod source;
mod target;
#[cfg(test)]
pub(crate) mod testing;
mod time;
mod tx;
mod url;
mod verify;
mod via;
mod warned;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::lease::{FencingToken, LeaseId, Outage};
use domain::{LeaseKey, Span, Timestamp};
use futures::future::BoxFuture;
use sqlx::PgConnection;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::follow::{StoredLines, whole};
use self::link::{Beginning, in_time};
use self::project::ViewWriter;
pub(crate) use self::reading::PostgresReading;
pub(crate) use self::source::{Ends, Snapshot, Source};
pub(crate) use self::target::Target;
use self::time::{Told, told_columns};
use self::tx::optimistic::Recent;
pub use self::url::PostgresUrl;
pub use self::verify::verify;
use self::via::Via;
use crate::access::{AccessChange, Directory};
use crate::clock::{Clock, TimeSource};
use crate::error::{OpenError, StoreError};
use crate::metrics::Metrics;
use crate::store::{Keeper, Store, Waking};
use crate::timeline::{Position, Projection as _, Record, Timeline};

/// How long a list waits for the read models to come to what was committed when it was asked, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(4);

const UNSETTLED: &str = concat!(
    "-- what is not in the read models\nSELECT h.position, p.applied, (SELECT max(id) FROM job_leases.log), s.lived_at, ",
    told_columns!(),
    " FROM job_leases.head AS h, job_leases_views.progress AS p, job_leases.service AS s \
     WHERE h.id = 1 AND p.id = 1 AND s.id = 1"
);
const UNSEQUENCED: &str = "-- what is not sequenced\nSELECT h.position, p.applied, \
     EXISTS (SELECT 1 FROM job_leases.log WHERE id <= $1) FROM job_leases.head AS h, job_leases_views.progress AS p \
     WHERE h.id = 1 AND p.id = 1";

type Happened = dyn Fn(&[Arc<Record>]) + Send + Sync;

/// What the store has to tell the engine.
pub(crate) struct Hooks {
    /// A waiter of this node was served by another, or can be told that its waiting is over.
    pub(crate) wake: Box<dyn Fn(Waking, Timestamp) + Send + Sync>,
    /// Something happened, here or elsewhere.
    pub(crate) happened: Box<Happened>,
    /// A grant that nobody will hear of.
    pub(crate) undelivered: Box<dyn Fn(LeaseKey, LeaseId) + Send + Sync>,
    /// A key that should be settled, since somebody who waited for it is gone.
    pub(crate) settle: Box<dyn Fn(LeaseKey) + Send + Sync>,
    /// Others have taken this node for dead, and passed over all who wait here.
    pub(crate) abandoned: Box<dyn Fn() + Send + Sync>,
    /// This node can serve no more, and why.
    pub(crate) over: Box<dyn Fn(String) + Send + Sync>,
}

/// The shared store, as one node sees it.
pub struct PostgresStore {
    /// For what is written, and for what must go on in any case.
    via: Via,
    /// For what may take a while.
    reading: Via,
    beginning: Beginning,
    node: i64,
    clock: Arc<Clock>,
    timeline: Arc<Timeline>,
    directory: Arc<Directory>,
    metrics: Arc<Metrics>,
    outage_grace: Span,
    hooks: Hooks,
    queues: queue::Seen,
    recent: Recent,
    /// All outages, with their numbers.
    outages: Mutex<Vec<(i64, Outage)>>,
    /// How often access had been changed when the directory was read.
    access_seen: Mutex<i64>,
    /// One at a time takes lines in.
    following: tokio::sync::Mutex<()>,
    /// One reading of access at a time.
    learning: tokio::sync::Mutex<()>,
    /// Something was committed here.
    logged: Notify,
    /// Somebody waits for what was committed to be sequenced.
    wanted: Notify,
    /// Lines were sequenced here, and must be read.
    moved: Notify,
    /// The token by which this node sequences, if it does.
    term: watch::Sender<Option<i64>>,
    /// Until when upkeep is this node's, in microseconds.
    on_duty_until: AtomicI64,
    waiting_elsewhere: AtomicU64,
    /// Whether this node can serve no more.
    is_over: AtomicBool,
    stop: CancellationToken,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl PostgresStore {
    /// Opens the database, brings its schema up to date, and enters it as a new node.
    ///
    /// # Errors
    /// If it cannot be reached, or a newer version has made it unusable for this one.
    pub(crate) async fn open(
        url: &PostgresUrl,
        outage_grace: Span,
        source: Arc<dyn TimeSource>,
        metrics: Arc<Metrics>,
        hooks: Hooks,
    ) -> Result<Arc<Self>, OpenError> {
        let ((via, reading), ears) = (url.ways()?, url.listening()?);
        patiently(async || open::migrate(&via).await).await?;
        patiently(async || Ok(time::begin(&via).await?)).await?;
        patiently(async || Ok(kept::begin_views(&via).await?)).await?;
        let beginning = Beginning::of(&via).await?;
        let mut tx = via.begin().await?;
        let head = open::head(&via, &mut tx).await?;
        let clock = Clock::following(source, head.now);
        let node = life::enter(&via, &mut tx, head.now).await?;
        let access = access::changes(&via, &mut tx).await?;
        let directory = access::load(&via, &mut tx, head.now).await?;
        tx.commit().await?;
        let lines = Box::new(StoredLines(reading.clone()));
        let timeline = Timeline::new(Arc::from(head.epoch), head.position, head.applied, lines);
        let store = Arc::new(Self {
            via,
            reading,
            beginning,
            node,
            clock: Arc::new(clock),
            timeline: Arc::new(timeline),
            directory: Arc::new(directory),
            metrics,
            outage_grace,
            hooks,
            queues: queue::Seen::default(),
            recent: Recent::default(),
            outages: Mutex::default(),
            access_seen: Mutex::new(access),
            following: tokio::sync::Mutex::default(),
            learning: tokio::sync::Mutex::default(),
            logged: Notify::new(),
            wanted: Notify::new(),
            moved: Notify::new(),
            term: watch::Sender::new(None),
            on_duty_until: AtomicI64::new(0),
            waiting_elsewhere: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            stop: CancellationToken::new(),
            tasks: Mutex::default(),
        });
        // Before anybody is served: the time since the service last lived may be an outage.
        patiently(async || Ok(store.record_outage().await?)).await?;
        life::agree(&store).await?;
        let tasks = vec![
            tokio::spawn(life::live(Arc::clone(&store))),
            tokio::spawn(sequencer::run(Arc::clone(&store))),
            tokio::spawn(follow::lines(Arc::clone(&store))),
            tokio::spawn(follow::wakings(Arc::clone(&store), ears)),
        ];
        *store.tasks.lock().unwrap_or_else(PoisonError::into_inner) = tasks;
        Ok(store)
    }

    /// This node's number.
    const fn node(&self) -> i64 {
        self.node
    }

    /// The first name for a waiter of this node.
    pub(crate) const fn first_waiter(&self) -> u64 {
        queue::first_waiter(self.node)
    }

    /// Server time.
    pub(crate) const fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    /// The timeline.
    pub(crate) const fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    /// Who may call.
    pub(crate) const fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Reads the read models.
    pub(crate) fn reading(&self) -> PostgresReading {
        PostgresReading::new(self.reading.clone())
    }

    /// Takes in what the database told of the time, asked for when so much had elapsed, and at which it was for so long before it told, in
    /// microseconds.
    fn was_told(&self, told: Told, asked: i64, spent: i64) {
        if told.is_good {
            self.clock.observe(told.time());
            self.recent.was_told(told, asked, spent, self.clock.elapsed());
        }
    }

    /// How far the read models have come.
    async fn applied(&self) -> Result<Position, StoreError> {
        follow::ends(&self.via, self.via.begin().await?).await.map(|(_, applied)| applied)
    }

    async fn record_outage(&self) -> Result<(), StoreError> {
        life::record_outage(self).await
    }

    /// All outages up to this one.
    async fn outages(&self, db: &mut PgConnection, last: i64) -> Result<Vec<(i64, Outage)>, StoreError> {
        let known = || self.outages.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = known().last().map_or(0, |(id, _)| *id);
        if newest < last {
            let more = life::outages_after(&self.via, db, newest).await?;
            let mut known = known();
            let newest = known.last().map_or(0, |(id, _)| *id);
            known.extend(more.into_iter().filter(|(id, _)| *id > newest));
        }
        Ok(known().clone())
    }

    /// Reads tokens and sessions anew if they were changed since, which they were so many times.
    async fn know_access(&self, db: &mut PgConnection, changes: i64) -> Result<(), StoreError> {
        let seen = || self.access_seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen() >= changes {
            return Ok(());
        }
        let directory = access::load(&self.via, db, self.clock.now()).await?;
        let mut seen = seen();
        // Meanwhile somebody may have gone further.
        if *seen < changes {
            self.directory.become_as(directory);
            *seen = changes;
        }
        Ok(())
    }

    /// This node has changed access, of which `before` changes were known.
    fn changed_access(&self, changes: &[AccessChange], before: i64) {
        if changes.is_empty() {
            return;
        }
        let mut seen = self.access_seen.lock().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            self.directory.apply(change);
        }
        *seen = i64::max(*seen, before + 1);
    }

    async fn learn_access(&self) -> Result<(), StoreError> {
        let _one = self.learning.lock().await;
        let mut tx = self.via.begin().await?;
        let changes = access::changes(&self.via, &mut tx).await?;
        self.know_access(&mut tx, changes).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Everybody who waits here is told that it was in vain, and nothing is believed of queues any more.
    fn abandon(&self) {
        tracing::warn!(node = self.node, "this node was taken for dead by others; its waiters are turned away");
        self.turn_away();
    }

    fn turn_away(&self) {
        self.queues.clear();
        self.recent.clear();
        (self.hooks.abandoned)();
    }

    /// A newer version has changed the database in a way that this one cannot live with: from now on nothing is written here.
    fn give_up(&self, reason: &OpenError) {
        tracing::error!(node = self.node, %reason, "this node serves no more");
        self.is_over.store(true, Ordering::Release);
        self.stop.cancel();
        (self.hooks.over)(reason.to_string());
        self.turn_away();
    }

    /// Gives other nodes a hint that there is something for them.
    fn hint(&self, mut nodes: Vec<i64>) {
        if nodes.is_empty() {
            return;
        }
        nodes.sort_unstable();
        nodes.dedup();
        let via = self.via.clone();
        tokio::spawn(async move {
            if let Err(error) = follow::hint(&via, &nodes).await {
                tracing::debug!(%error, "a hint could not be given");
            }
        });
    }

    /// Waits until all that is committed now is in the read models, for at most so long: then what there is tells how far it
    /// goes.
    async fn settle(&self, patience: Duration) -> Result<(), StoreError> {
        let mut over = std::pin::pin!(tokio::time::sleep(patience));
        let via = &self.reading;
        let mut tx = via.begin().await?;
        type Row = (i64, i64, Option<i64>, i64, i64, i64, i64, bool);
        let (mut head, mut applied, mut logged, lived_at, clock, ahead, since, is_good): Row =
            in_time(via.query_as(UNSETTLED).fetch_one(&mut *tx)).await?;
        tx.commit().await?;
        let told = Told::new((clock, ahead, since, is_good));
        if told.is_good {
            self.clock.observe(told.time());
        }
        if !told.is_good || self.clock.now().as_micros() - lived_at > tx::OUTAGE_AFTER {
            self.record_outage().await?;
            // Its line is somewhere behind.
            logged = Some(i64::MAX);
        }
        while let Some(last) = logged {
            self.wanted.notify_one();
            tokio::select! {
                () = &mut over => return Ok(()),
                () = tokio::time::sleep(LOOK) => {}
            }
            let mut tx = via.begin().await?;
            let row = via.query_as(UNSEQUENCED).bind(last).fetch_one(&mut *tx);
            let (position, models, is_there): (i64, i64, bool) = in_time(row).await?;
            tx.commit().await?;
            (head, applied) = (position, models);
            if !is_there {
                logged = None;
            }
        }
        let head = Position(head);
        while Position(applied) < head && self.timeline.applied() < head {
            let sequences = self.term.borrow().is_some();
            tokio::select! {
                () = &mut over => return Ok(()),
                () = self.timeline.wait_applied(head), if sequences => {}
                () = tokio::time::sleep(LOOK), if !sequences => {}
            }
            if !sequences {
                applied = self.applied().await?.0;
            }
        }
        Ok(())
    }
}

/// Does what a node needs for its start, once more if a lock was not to be had in time: another node that stands still may hold
/// it, until the database ends its transaction, which takes longer than one attempt and less than two.
async fn patiently<T>(step: impl AsyncFn() -> Result<T, OpenError>) -> Result<T, OpenError> {
    match step().await {
        Err(OpenError::Store(error)) if error.is_held_up() => step().await,
        done => done,
    }
}

impl Store for PostgresStore {
    type Tx<'s> = tx::PostgresTx<'s>;

    const QUEUES_ARE_STORED: bool = true;

    async fn begin(&self) -> Result<tx::PostgresTx<'_>, StoreError> {
        if self.is_over.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        Ok(tx::PostgresTx::new(self))
    }

    async fn mark(&self) -> Result<(), StoreError> {
        // A task of its own does, however long a lane may be held up.
        Ok(())
    }

    async fn reload(&self) -> Result<(), StoreError> {
        self.queues.clear();
        self.recent.clear();
        Ok(())
    }

    async fn caught_up(&self) {
        self.timeline.caught_up().await;
    }
}

impl Keeper for Arc<PostgresStore> {
    fn is_ahead(&self) -> bool {
        false
    }

    fn is_behind(&self) -> bool {
        // Whoever reads or writes looks for an outage by itself.
        false
    }

    fn settled(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        let store = Arc::clone(self);
        Box::pin(whole(async move { store.settle(PATIENCE).await }))
    }

    fn come_to(&self, position: Position) -> BoxFuture<'_, Result<bool, StoreError>> {
        let store = Arc::clone(self);
        Box::pin(whole(async move {
            let mut head = store.timeline.subscribe();
            let found = tokio::time::timeout(PATIENCE, head.wait_for(|head| *head >= position)).await;
            if found.is_ok_and(|found| found.is_ok()) {
                return Ok(true);
            }
            // Nobody has it, unless this node does not hear of what there is.
            let (end, _) = follow::ends(&store.reading, store.reading.begin().await?).await?;
            if end < position { Ok(false) } else { Err(StoreError::Behind) }
        }))
    }

    fn learn_access(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        let store = Arc::clone(self);
        Box::pin(whole(async move { PostgresStore::learn_access(&store).await }))
    }

    fn waiting_elsewhere(&self) -> u64 {
        self.waiting_elsewhere.load(Ordering::Relaxed)
    }

    fn is_on_duty(&self) -> bool {
        self.clock.now().as_micros() < self.on_duty_until.load(Ordering::Acquire)
    }

    fn make_views_durable(&self) -> BoxFuture<'_, Result<Option<Position>, StoreError>> {
        let store = Arc::clone(self);
        // They are committed like everything else.
        Box::pin(whole(async move { store.applied().await.map(Some) }))
    }

    fn forget(
        &self,
        ended_before: Timestamp,
        after: Option<FencingToken>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Option<FencingToken>, StoreError>> {
        let via = self.via.clone();
        Box::pin(whole(async move { ViewWriter::new(via).forget(ended_before, after, limit).await }))
    }

    fn remembers_before(&self, before: Timestamp) -> BoxFuture<'_, Result<bool, StoreError>> {
        let via = self.via.clone();
        Box::pin(whole(async move {
            let mut tx = via.begin().await?;
            let remembers = retention::remembers_before(&via, &mut tx, before).await?;
            tx.commit().await?;
            Ok(remembers)
        }))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.stop.cancel();
            let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
            for task in tasks {
                // It ends by itself; that it panicked is no reason not to close.
                let _ = task.await;
            }
            if let Err(error) = life::leave(&self.via, self.node).await {
                tracing::warn!(%error, "this node could not take its leave; others will notice");
            }
            self.reading.close().await;
            self.via.close().await;
        })
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, Executor as _, SqlSafeStr as _};

    use super::*;

    #[tokio::test]
    async fn every_statement_can_be_prepared() {
        let database = testing::database().await;
        let (via, _) = PostgresUrl::new(&database.url).ways().unwrap();
        open::migrate(&via).await.unwrap();
        let mut db = via.pool().acquire().await.unwrap();
        let fixed = [
            access::statements(),
            follow::statements(),
            former::statements(),
            kept::statements(),
            life::statements(),
            open::statements(),
            project::statements(),
            queue::statements(),
            reading::statements(),
            retention::statements(),
            sequencer::statements(),
            source::statements(),
            target::statements(),
            time::statements(),
            tx::statements(),
            verify::statements(),
            vec![UNSETTLED, UNSEQUENCED],
        ]
        .concat();
        assert!(fixed.len() > 60, "{}", fixed.len());
        for sql in fixed {
            db.prepare(sql.into_sql_str()).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        for sql in lists::statements() {
            db.prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
        }
    }
}
