//! The engine: the one door for writes, and the way to all that can be read.

mod access;
mod attending;
mod delivery;
mod desk;
pub(crate) mod idempotency;
mod lanes;
mod refusals;
mod retention;
mod staging;
mod waiting;
mod work;
mod writer;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::lease::{Acquire, Command, LeaseId, LeaseStatus, Refusal, Reply, Rules, WaiterId, Woken};
use domain::{LeaseKey, Span, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use access::{NewToken, SignedIn};
pub use delivery::Delivery;
pub use retention::Retention;
pub use work::{Call, Done, Scope};

use self::attending::Attending;
use self::desk::Desk;
use self::lanes::{Door, Lanes};
use self::waiting::Presence;
use self::work::{Answered, Outcome, Task, Work};
use crate::access::{Directory, Principal};
use crate::clock::{Clock, SystemTime, TimeSource};
use crate::error::{Fault, OpenError};
use crate::metrics::Metrics;
use crate::reading::{Background, Counters, HistoryQuery, ListQuery, Minute, Named, Page, Reading};
use crate::store::Keeper;
use crate::store::postgres::{Hooks, PostgresStore, PostgresUrl};
use crate::store::sqlite::SqliteStore;
use crate::timeline::{Position, Timeline};

/// Which database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// An embedded database in this file, served by one process.
    Sqlite(PathBuf),
    /// One that several nodes share.
    Postgres(PostgresUrl),
}

/// How to open the engine.
#[derive(Clone)]
pub struct Options {
    /// Which database.
    pub database: Database,
    /// Limits and defaults of leases.
    pub rules: Rules,
    /// How long what is over is kept.
    pub retention: Retention,
    /// Where time is read from.
    pub time: Arc<dyn TimeSource>,
}

impl Options {
    /// On a SQLite file, with the default rules and the system's clock.
    #[must_use]
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        Self::on(Database::Sqlite(path.into()))
    }

    /// On the PostgreSQL database of this URL, with the default rules and the system's clock.
    #[must_use]
    pub fn postgres(url: &str) -> Self {
        Self::on(Database::Postgres(PostgresUrl::new(url)))
    }

    /// On this database, with the default rules and the system's clock.
    #[must_use]
    pub fn on(database: Database) -> Self {
        Self {
            database,
            rules: Rules::default(),
            retention: Retention::default(),
            time: Arc::new(SystemTime::default()),
        }
    }
}

/// The engine. Cheap to clone; all clones are the same engine.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    door: Door,
    attending: Arc<Attending>,
    waiters: AtomicU64,
    store: Arc<dyn Keeper>,
    reading: Box<dyn Reading>,
    clock: Arc<Clock>,
    timeline: Arc<Timeline>,
    directory: Arc<Directory>,
    metrics: Arc<Metrics>,
    rules: Rules,
    retention: Retention,
    healthy: Arc<AtomicBool>,
    over: Arc<watch::Sender<Option<String>>>,
    stop: CancellationToken,
    writers: Mutex<Vec<JoinHandle<()>>>,
}

/// What a list or history answered, and when.
#[derive(Debug)]
pub struct Listed {
    /// The page.
    pub page: Page,
    /// Server time by which states are told.
    pub server_time: Timestamp,
}

impl Engine {
    /// Opens the database, brings what follows from it up to date, and starts to work.
    ///
    /// # Errors
    /// If the database cannot be used, or a newer version has made it unusable for this one; if another process serves it and it
    /// is not one that several may share.
    pub async fn open(options: Options) -> Result<Self, OpenError> {
        let Options { database, rules, retention, time } = options;
        let metrics = Arc::new(Metrics::default());
        // Needs no bound: there is at most one message for each grant under way.
        let (lost_sender, lost) = mpsc::unbounded_channel();
        let desk = Arc::new(Desk::new(Arc::clone(&metrics), lost_sender));
        let attending = Arc::new(Attending::default());
        let healthy = Arc::new(AtomicBool::new(true));
        let over = Arc::new(watch::Sender::new(None));
        let stop = CancellationToken::new();
        let (count, patient) = match &database {
            Database::Sqlite(_) => (1, false),
            Database::Postgres(_) => (lanes::ON_A_SHARED_DATABASE, true),
        };
        let lanes = Lanes::new(count, patient);
        let door = lanes.door();
        let common = lanes::Common {
            rules: rules.clone(),
            metrics: Arc::clone(&metrics),
            desk: Arc::clone(&desk),
            attending: Arc::clone(&attending),
            healthy: Arc::clone(&healthy),
            stop: stop.clone(),
        };
        let (store, reading, clock, timeline, directory, first_waiter, writers): Opened = match database {
            Database::Sqlite(path) => {
                let store = SqliteStore::open(&path, rules.outage_grace, time, Arc::clone(&metrics)).await?;
                let (clock, directory) = (Arc::clone(store.clock()), Arc::clone(store.directory()));
                let writers = lanes.start(&store, &clock, &directory, lost, common);
                let (reading, timeline) = (Box::new(store.reading()), Arc::clone(store.timeline()));
                (store, reading, clock, timeline, directory, 1, writers)
            }
            Database::Postgres(url) => {
                let hooks = hooks(&desk, &attending, &door, &over);
                let grace = rules.outage_grace;
                let store = PostgresStore::open(&url, grace, time, Arc::clone(&metrics), hooks).await?;
                let (clock, directory) = (Arc::clone(store.clock()), Arc::clone(store.directory()));
                let writers = lanes.start(&store, &clock, &directory, lost, common);
                let (reading, timeline) = (Box::new(store.reading()), Arc::clone(store.timeline()));
                let first_waiter = store.first_waiter();
                (Arc::new(store), reading, clock, timeline, directory, first_waiter, writers)
            }
        };
        Ok(Self(Arc::new(Inner {
            door,
            attending,
            waiters: AtomicU64::new(first_waiter),
            store,
            reading,
            clock,
            timeline,
            directory,
            metrics,
            rules,
            retention,
            healthy,
            over,
            stop,
            writers: Mutex::new(writers),
        })))
    }

    /// Stops: what waits at the door is still done, waiters are told, the database is let go. Later calls are refused.
    pub async fn close(&self) {
        self.0.stop.cancel();
        let writers = std::mem::take(&mut *self.0.writers.lock().unwrap_or_else(PoisonError::into_inner));
        if writers.is_empty() {
            return;
        }
        for writer in writers {
            if let Err(error) = writer.await {
                tracing::error!(%error, "a writer did not end well");
            }
        }
        self.0.store.close().await;
    }

    /// Server time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// Server time for an answer.
    ///
    /// # Errors
    /// While it cannot be persisted: after a crash it could go back.
    pub async fn time(&self) -> Result<Timestamp, Fault> {
        let store = &self.0.store;
        if store.is_behind() || store.is_ahead() {
            // The writer records an outage, or renews the clock's mark, before anything else.
            let nothing = Call::system(&Arc::new(domain::Actor::system("clock")));
            self.submit(nothing, Task::Batch(Vec::new()), None).await?;
        }
        if store.is_ahead() { Err(Fault::UNAVAILABLE) } else { Ok(self.now()) }
    }

    /// Limits and defaults of leases.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.0.rules
    }

    /// The timeline.
    #[must_use]
    pub fn timeline(&self) -> &Arc<Timeline> {
        &self.0.timeline
    }

    /// Whether this line is known here. Another node may have told of it a moment before it is: that is waited for.
    ///
    /// # Errors
    /// If it may be there, but this node does not hear of it.
    pub async fn has_come_to(&self, position: Position) -> Result<bool, crate::StoreError> {
        Ok(self.0.timeline.head() >= position || self.0.store.come_to(position).await?)
    }

    /// Who may call.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.0.directory
    }

    /// What is counted and measured, brought up to date.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        let timeline = &self.0.timeline;
        self.0.metrics.backlog.set(timeline.head().0 - timeline.applied().0);
        &self.0.metrics
    }

    /// How many callers wait for a key.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.0.metrics.waiting.get().unsigned_abs() + self.0.store.waiting_elsewhere()
    }

    /// Whether what is done from time to time is this process's to do: of several nodes it is one's.
    #[must_use]
    pub fn is_on_duty(&self) -> bool {
        self.0.store.is_on_duty()
    }

    /// Who has this secret, if anybody has now.
    ///
    /// # Errors
    /// If nobody is known to have it, and whether another node has made it a moment ago cannot be told.
    pub async fn authenticate(&self, secret: &str) -> Result<Option<Arc<Principal>>, Fault> {
        let known = self.directory().authenticate(secret, self.now());
        if known.is_some() {
            return Ok(known);
        }
        self.0.store.learn_access().await.map_err(unavailable)?;
        Ok(self.directory().authenticate(secret, self.now()))
    }

    /// Whether the database answers, as far as the last write told.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let is_over = self.0.over.borrow().is_some();
        self.0.healthy.load(Ordering::Acquire) && !is_over && !self.0.door.is_closed() && !self.0.store.is_ahead()
    }

    /// Waits until this process can serve the database no more, although it was not closed; why. That is when a newer version
    /// has changed a shared database in a way that this one cannot live with.
    pub async fn over(&self) -> String {
        let mut over = self.0.over.subscribe();
        // The engine holds the sender.
        let reason = over.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        reason.unwrap_or_default()
    }

    /// Carries out a command on one key. An acquire that may wait resolves when it is granted, refused or too late;
    /// dropping the future leaves the queue.
    ///
    /// # Errors
    /// If it is refused, or could not be carried out.
    pub async fn run(&self, call: Call, key: LeaseKey, mut command: Command) -> Result<Done<Reply>, Fault> {
        let mut presence = None;
        let mut alive = None;
        if let Command::Acquire { wait: Some(wait), .. } = &mut command {
            wait.waiter = WaiterId(self.0.waiters.fetch_add(1, Ordering::Relaxed));
            let (here, sign) = Presence::new(key.clone(), self.0.door.left(&key).clone());
            presence = Some(here);
            alive = Some(sign);
        }
        let answered = self.submit(call, Task::One(key, command), alive).await;
        if let (Some(presence), Ok(_) | Err(Fault::Refused(_))) = (&mut presence, &answered) {
            presence.answered();
        }
        Ok(answered?.map(reply))
    }

    /// Waits until this lease is over or is to end, at most so long and no longer than it would be held unrenewed; then tells
    /// what the key is, as [`Command::Get`] does.
    ///
    /// # Errors
    /// As for [`Command::Get`], and if the engine stops.
    pub async fn attend(&self, call: Call, key: LeaseKey, lease_id: LeaseId, wait: Span) -> Result<Done<Reply>, Fault> {
        let attendance = self.0.attending.enter(lease_id.token());
        let mut told = std::pin::pin!(attendance.told.notified());
        // From before the state is read, so that nothing falls between.
        told.as_mut().enable();
        let done = self.run(call.clone(), key.clone(), Command::Get).await?;
        let Reply::Key(reading) = &done.value else { return Ok(done) };
        let lease = reading
            .state
            .lease
            .as_ref()
            .filter(|lease| lease.id() == lease_id && lease.status(done.server_time) == LeaseStatus::Held);
        let Some(lease) = lease else { return Ok(done) };
        let most = wait.min(lease.expires_at.since(done.server_time));
        let most = Duration::from_micros(most.as_micros().unsigned_abs());
        tokio::select! {
            () = told => {}
            () = tokio::time::sleep(most) => {}
            () = self.0.stop.cancelled() => return Err(Fault::Stopping),
        }
        self.run(call, key, Command::Get).await
    }

    /// Takes several keys, all or none; none may be named twice.
    ///
    /// # Errors
    /// If any key is not to be had, naming all that are not; or if it could not be carried out.
    pub async fn acquire_many(&self, call: Call, requests: Vec<(LeaseKey, Acquire)>) -> Result<Done<Reply>, Fault> {
        Ok(self.submit(call, Task::Many(requests), None).await?.map(reply))
    }

    /// Carries out independent commands in order, in one transaction. None waits.
    ///
    /// # Errors
    /// If they could not be carried out; refusals are among the results.
    pub async fn batch(
        &self,
        call: Call,
        mut commands: Vec<(LeaseKey, Command)>,
    ) -> Result<Done<Vec<Result<Reply, Refusal>>>, Fault> {
        for (_, command) in &mut commands {
            if let Command::Acquire { wait, .. } = command {
                *wait = None;
            }
        }
        Ok(self.submit(call, Task::Batch(commands), None).await?.map(|outcome| match outcome {
            Outcome::Batch(results) => results,
            Outcome::Reply(_) | Outcome::Access(_) => Vec::new(),
        }))
    }

    /// Grants by any filter, as of all that was committed when this was asked, or of the last second under load.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn list(&self, query: ListQuery) -> Result<Listed, Fault> {
        let server_time = self.settled().await?;
        let page = self.0.reading.list(query, server_time).await.map_err(unavailable)?;
        Ok(Listed { page, server_time })
    }

    /// The grants of one key, the newest first.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn history(&self, query: HistoryQuery) -> Result<Listed, Fault> {
        let server_time = self.settled().await?;
        let page = self.0.reading.history(query).await.map_err(unavailable)?;
        Ok(Listed { page, server_time })
    }

    /// What there is in numbers, of all keys or of those that begin with one of the prefixes.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn counters(&self, prefixes: &[String]) -> Result<Counters, Fault> {
        let server_time = self.settled().await?;
        self.0.reading.counters(prefixes, server_time).await.map_err(unavailable)
    }

    /// At most `limit` names of owners, jobs or subjects that begin so, in their order. They are those of all keys, as far as the read models
    /// have come.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn names(&self, of: Named, prefix: String, limit: u32) -> Result<Vec<String>, Fault> {
        self.0.reading.names(of, prefix, limit).await.map_err(unavailable)
    }

    /// What is known of a key besides its state.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn background(&self, key: &LeaseKey) -> Result<Background, Fault> {
        self.settled().await?;
        self.0.reading.background(key).await.map_err(unavailable)
    }

    /// The minutes since `from` in which anything happened, oldest first, and the one before them.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn minutes(&self, from: Timestamp) -> Result<Vec<Minute>, Fault> {
        self.settled().await?;
        self.0.reading.minutes(from).await.map_err(unavailable)
    }

    /// Records the end of leases that are over, at most `limit`; how many there were. It only tidies: nothing shows or
    /// grants a lease differently for it.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn sweep(&self, call: Call, limit: u32) -> Result<usize, Fault> {
        let due = self.0.reading.due(self.now(), limit).await.map_err(unavailable)?;
        let count = due.len();
        if count > 0 {
            self.batch(call, due.into_iter().map(|key| (key, Command::Settle)).collect()).await?;
            // So that the next sweep does not find the same.
            self.0.store.settled().await.map_err(unavailable)?;
        }
        Ok(count)
    }

    /// Waits for the read models, and reads the time by which states are told. What an outage gave comes first.
    async fn settled(&self) -> Result<Timestamp, Fault> {
        self.time().await?;
        self.0.store.settled().await.map_err(unavailable)?;
        Ok(self.now())
    }

    async fn submit(&self, call: Call, task: Task, alive: Option<Arc<AtomicBool>>) -> Result<Done<Outcome>, Fault> {
        let (reply, answer) = oneshot::channel::<Answered>();
        let work = Work { call, task, reply: Some(reply), alive };
        self.0.door.send(work)?;
        // Without an answer the writer is gone.
        answer.await.unwrap_or(Err(Fault::UNAVAILABLE))
    }
}

type Opened = (Arc<dyn Keeper>, Box<dyn Reading>, Arc<Clock>, Arc<Timeline>, Arc<Directory>, u64, Vec<JoinHandle<()>>);

/// What a database that several nodes share has to tell the engine.
fn hooks(
    desk: &Arc<Desk>,
    attending: &Arc<Attending>,
    door: &Door,
    over: &Arc<watch::Sender<Option<String>>>,
) -> Hooks {
    let wake = {
        let desk = Arc::clone(desk);
        move |waking: crate::store::Waking, now| {
            desk.wake(Woken { waiter: waking.waiter, result: waking.result }, waking.is_kept, now);
        }
    };
    let happened = {
        let attending = Arc::clone(attending);
        move |records: &[Arc<crate::timeline::Record>]| attending.tell(records)
    };
    let undelivered = {
        let lost = desk.lost().clone();
        // Without a lane nobody can end the lease; it expires.
        move |key, lease_id| drop(lost.send((key, lease_id)))
    };
    let settle = {
        let door = door.clone();
        // Only so that the queue is tidied soon.
        move |key: LeaseKey| drop(door.left(&key).send(key.clone()))
    };
    let abandoned = {
        let desk = Arc::clone(desk);
        move || {
            let callers: Vec<waiting::Caller> = desk.callers().drain().collect();
            for caller in callers {
                work::tell(Some(caller.reply), Err(Fault::UNAVAILABLE));
            }
        }
    };
    let over = {
        let over = Arc::clone(over);
        move |reason| drop(over.send_replace(Some(reason)))
    };
    Hooks {
        wake: Box::new(wake),
        happened: Box::new(happened),
        undelivered: Box::new(undelivered),
        settle: Box::new(settle),
        abandoned: Box::new(abandoned),
        over: Box::new(over),
    }
}

fn reply(outcome: Outcome) -> Reply {
    match outcome {
        Outcome::Reply(reply) => reply,
        Outcome::Batch(_) | Outcome::Access(_) => Reply::Nothing,
    }
}

fn unavailable(error: crate::StoreError) -> Fault {
    tracing::error!(%error, "the read models could not be read");
    Fault::UNAVAILABLE
}
