//! An engine on a fresh database, with a clock that the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use domain::lease::{Acquire, Command, LeaseReading, Refusal, Reply, Wait};
use domain::{Actor, ActorKind, LeaseKey, Metadata, Owner, Span, Timestamp};
use engine::clock::TimeSource;
use engine::engine::Retention;
use engine::timeline::{Line, Position};
use engine::{Call, Done, Engine, Fault, Idempotency, Options};
use tokio::task::JoinHandle;

use crate::database::{self, Database, Dial};

/// When every test begins, in microseconds.
const START: i64 = 1_800_000_000_000_000;

/// A clock that stands still until it is told to go on.
pub(crate) struct Hands {
    micros: AtomicI64,
    dial: Dial,
}

impl Hands {
    /// Lets time pass, for the engines and for the database.
    pub(crate) async fn pass(&self, millis: i64) {
        let micros = millis * 1_000;
        let hands = || {
            self.micros.fetch_add(micros, Ordering::SeqCst);
        };
        self.dial.turn(micros, hands).await;
    }
}

impl TimeSource for Hands {
    fn wall_micros(&self) -> i64 {
        self.micros.load(Ordering::SeqCst)
    }
    fn elapsed_nanos(&self) -> i64 {
        self.micros.load(Ordering::SeqCst) * 1_000
    }
    fn boot_id(&self) -> Option<Arc<str>> {
        Some(Arc::from("1"))
    }
}

/// An engine on a database of its own.
pub(crate) struct Fixture {
    pub(crate) engine: Engine,
    pub(crate) hands: Arc<Hands>,
    pub(crate) database: Arc<Database>,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let (database, hands) = Self::unopened().await;
        let engine = Engine::open(options(&database, &hands)).await.unwrap();
        Self { engine, hands, database }
    }

    /// A database that no engine has ever opened, and its clock.
    pub(crate) async fn unopened() -> (Arc<Database>, Arc<Hands>) {
        let database = Arc::new(Database::new(START).await);
        let hands = hands(&database);
        (database, hands)
    }

    /// How its database is opened.
    pub(crate) fn options(&self) -> Options {
        options(&self.database, &self.hands)
    }

    /// Server time, exactly.
    pub(crate) fn now(&self) -> Timestamp {
        database::now(&self.engine, &self.hands)
    }

    /// Lets time pass as a living server sees it, which marks each half second that it lives: so it is no outage.
    pub(crate) async fn pass(&self, millis: i64) {
        let mut left = millis;
        while left > 0 {
            left -= self.pass_half_a_second(left).await;
            self.touch().await;
        }
    }

    /// The same for half a second at the most; how much that was. On SQLite any write behind it renews the mark.
    pub(crate) async fn pass_half_a_second(&self, most: i64) -> i64 {
        let millis = most.min(500);
        self.hands.pass(millis).await;
        self.database.live().await;
        millis
    }

    /// A write about nothing in particular.
    pub(crate) async fn touch(&self) {
        static TOUCHES: AtomicU64 = AtomicU64::new(0);
        let touch = TOUCHES.fetch_add(1, Ordering::Relaxed);
        let lease = self.acquire(&format!("touch/{touch}"), "toucher").await.unwrap();
        self.release(&lease).await.unwrap();
    }

    /// Closes the engine and opens it anew on the same database.
    pub(crate) async fn reopen(&mut self) {
        self.engine.close().await;
        self.engine = Engine::open(self.options()).await.unwrap();
    }

    /// Loses the read models: closes the engine, takes them away, and opens it anew.
    pub(crate) async fn lose_views(&mut self) {
        self.engine.close().await;
        self.database.lose_views().await;
        self.engine = Engine::open(self.options()).await.unwrap();
    }

    /// The last line, once the timeline has all that was answered.
    pub(crate) async fn head(&self) -> Position {
        self.database.sequenced(&self.engine).await;
        self.engine.timeline().head()
    }

    /// All lines from the first, once the timeline has all that was answered.
    pub(crate) async fn lines(&self) -> Vec<Line> {
        self.database.sequenced(&self.engine).await;
        let mut all: Vec<Line> = Vec::new();
        loop {
            let after = all.last().map_or(Position(0), |line| line.position);
            let more = self.engine.timeline().read_after(after, 7).await.unwrap();
            if more.is_empty() {
                return all;
            }
            all.extend(more);
        }
    }

    pub(crate) async fn acquire(&self, key: &str, owner: &str) -> Result<LeaseReading, Fault> {
        self.acquire_with(key, terms(owner)).await
    }

    pub(crate) async fn acquire_with(&self, key: &str, request: Acquire) -> Result<LeaseReading, Fault> {
        let done = self.engine.run(call(), lease_key(key), Command::Acquire { request, wait: None }).await?;
        Ok(delivered(done))
    }

    /// Waits for a key for so many milliseconds.
    pub(crate) fn wait(&self, key: &str, owner: &str, millis: u32) -> JoinHandle<Result<LeaseReading, Fault>> {
        self.wait_as(call(), key, terms(owner), millis)
    }

    pub(crate) fn wait_as(
        &self,
        call: Call,
        key: &str,
        request: Acquire,
        millis: u32,
    ) -> JoinHandle<Result<LeaseReading, Fault>> {
        let (engine, key) = (self.engine.clone(), lease_key(key));
        let wait = Some(Wait::lasting(Span::millis(millis)));
        tokio::spawn(async move { engine.run(call, key, Command::Acquire { request, wait }).await.map(delivered) })
    }

    pub(crate) async fn renew(&self, lease: &LeaseReading) -> Result<LeaseReading, Fault> {
        let command = Command::Renew { lease_id: lease.lease.id(), ttl: None, shorten: false };
        Ok(delivered(self.engine.run(call(), lease.lease_key.clone(), command).await?))
    }

    pub(crate) async fn release(&self, lease: &LeaseReading) -> Result<Reply, Fault> {
        let command = Command::Release { lease_id: lease.lease.id() };
        Ok(self.engine.run(call(), lease.lease_key.clone(), command).await?.value)
    }

    /// Carries out a command, whatever is answered.
    pub(crate) async fn run(&self, key: &str, command: Command) -> Reply {
        self.engine.run(call(), lease_key(key), command).await.unwrap().value
    }

    pub(crate) async fn queue_length(&self, key: &str) -> usize {
        match self.engine.run(call(), lease_key(key), Command::Get).await.unwrap().value {
            Reply::Key(reading) => reading.queue_length,
            other => panic!("{other:?}"),
        }
    }

    /// Until so many wait for the key.
    pub(crate) async fn until_waiting(&self, key: &str, count: usize) {
        for _ in 0..2_000 {
            if self.queue_length(key).await == count {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        panic!("{} wait for {key}, not {count}", self.queue_length(key).await);
    }
}

/// The hands of a database in which no time has passed.
pub(crate) fn hands(database: &Database) -> Arc<Hands> {
    Arc::new(Hands { micros: AtomicI64::new(START), dial: database.dial() })
}

/// How an engine on this database is opened that goes by this clock.
pub(crate) fn options(database: &Database, hands: &Arc<Hands>) -> Options {
    Options { time: Arc::clone(hands) as Arc<dyn TimeSource>, ..database.options() }
}

/// The same, but no line of the timeline is kept for longer than a millisecond.
pub(crate) fn keeping_no_lines(options: Options) -> Options {
    let retention = Retention { timeline: Span::millis(1), ..options.retention };
    Options { retention, ..options }
}

/// The lease of an answer that was received.
pub(crate) fn delivered(done: Done<Reply>) -> LeaseReading {
    if let Some(delivery) = done.delivery {
        delivery.delivered();
    }
    match done.value {
        Reply::Lease(reading) => reading,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn lease_key(text: &str) -> LeaseKey {
    LeaseKey::parse(text).unwrap()
}

/// Ten seconds, and nothing special.
pub(crate) fn terms(owner: &str) -> Acquire {
    Acquire {
        owner: Owner::parse(owner).unwrap(),
        job_key: None,
        ttl: Span::millis(10_000),
        min_hold: Span::ZERO,
        max_hold: None,
        lock_delay: Span::ZERO,
        subjects: Arc::from([]),
        metadata: Metadata::EMPTY,
    }
}

pub(crate) fn call() -> Call {
    let actor = Actor { kind: ActorKind::Token, id: Arc::from("tk_test"), name: Arc::from("test") };
    Call { actor: Arc::new(actor), request_id: None, idempotency: None }
}

/// A call with an idempotency key, for a request told apart by `fingerprint`.
pub(crate) fn call_once(key: &str, fingerprint: u8) -> Call {
    Call { idempotency: Some(Idempotency { key: Arc::from(key), fingerprint: [fingerprint; 32] }), ..call() }
}

/// The refusal in an answer.
pub(crate) fn refusal<T: std::fmt::Debug>(answer: Result<T, Fault>) -> Refusal {
    match answer {
        Err(Fault::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}
