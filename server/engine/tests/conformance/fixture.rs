//! An engine on a fresh database, with a clock that the test moves.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use domain::lease::{Acquire, Command, LeaseReading, Refusal, Reply, Wait};
use domain::{Actor, ActorKind, LeaseKey, Metadata, Owner, Span};
use engine::clock::TimeSource;
use engine::{Call, Done, Engine, Fault, Idempotency, Options};

/// A clock that stands still until it is told to go on.
pub(crate) struct Hands {
    micros: AtomicI64,
    boot: AtomicI64,
}

impl Hands {
    fn new() -> Arc<Self> {
        Arc::new(Self { micros: AtomicI64::new(1_800_000_000_000_000), boot: AtomicI64::new(1) })
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, millis: i64) {
        self.micros.fetch_add(millis * 1_000, Ordering::SeqCst);
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
        Some(Arc::from(self.boot.load(Ordering::SeqCst).to_string()))
    }
}

/// An engine on a database of its own.
pub(crate) struct Fixture {
    pub(crate) engine: Engine,
    pub(crate) hands: Arc<Hands>,
    folder: tempfile::TempDir,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hands = Hands::new();
        let engine = open(&folder.path().join("leases.db"), &hands).await;
        Self { engine, hands, folder }
    }

    /// The database file.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("leases.db")
    }

    /// The clock, for an engine that is opened otherwise.
    pub(crate) fn time(&self) -> Arc<dyn TimeSource> {
        Arc::clone(&self.hands) as Arc<dyn TimeSource>
    }

    /// Lets time pass as a living server sees it: marked each half second, so that it is no outage.
    pub(crate) async fn pass(&self, millis: i64) {
        let mut left = millis;
        while left > 0 {
            let step = left.min(500);
            self.hands.pass(step);
            left -= step;
            // Any write renews the mark.
            self.touch().await;
        }
    }

    /// A write about nothing in particular.
    pub(crate) async fn touch(&self) {
        let id = self.hands.micros.load(Ordering::SeqCst);
        let lease = self.acquire(&format!("touch/{id}"), "toucher").await.unwrap();
        self.release(&lease).await.unwrap();
    }

    /// Closes the engine and opens it anew on the same file.
    pub(crate) async fn reopen(&mut self) {
        self.engine.close().await;
        self.engine = open(&self.path(), &self.hands).await;
    }

    /// Opens the file anew after `change` was made to it while closed.
    pub(crate) async fn reopen_after(&mut self, change: impl FnOnce(&Path)) {
        self.engine.close().await;
        change(&self.path());
        self.engine = open(&self.path(), &self.hands).await;
    }

    /// Loses the read models: closes the engine, takes their files away, and opens it anew.
    pub(crate) async fn lose_views(&mut self) {
        let remove = |path: &Path| {
            for suffix in ["-views", "-views-wal", "-views-shm"] {
                let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
            }
        };
        self.reopen_after(remove).await;
    }

    pub(crate) async fn acquire(&self, key: &str, owner: &str) -> Result<LeaseReading, Fault> {
        self.acquire_with(key, terms(owner)).await
    }

    pub(crate) async fn acquire_with(&self, key: &str, request: Acquire) -> Result<LeaseReading, Fault> {
        let done = self.engine.run(call(), lease_key(key), Command::Acquire { request, wait: None }).await?;
        Ok(delivered(done))
    }

    /// Waits for a key for so many milliseconds.
    pub(crate) fn wait(
        &self,
        key: &str,
        owner: &str,
        millis: u32,
    ) -> tokio::task::JoinHandle<Result<LeaseReading, Fault>> {
        self.wait_as(call(), key, terms(owner), millis)
    }

    pub(crate) fn wait_as(
        &self,
        call: Call,
        key: &str,
        request: Acquire,
        millis: u32,
    ) -> tokio::task::JoinHandle<Result<LeaseReading, Fault>> {
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

pub(crate) async fn open(path: &Path, hands: &Arc<Hands>) -> Engine {
    let options = Options { time: Arc::clone(hands) as Arc<dyn TimeSource>, ..Options::sqlite(path) };
    Engine::open(options).await.unwrap()
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
