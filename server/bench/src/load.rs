//! Closed loops of callers: each does the next thing as soon as the last is answered. All run on one thread.

use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use hdrhistogram::Histogram;
use tokio::task::LocalSet;

/// What is to be done over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Work {
    /// Acquire and release of keys that nobody else wants
    Pairs,
    /// Acquire, with waiting, and release of one key that everybody wants
    OneKey,
    /// Renewals
    Renew,
    /// A hundred acquires a request, then a hundred releases
    Batch,
}

impl Work {
    /// As it stands in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pairs => "pairs",
            Self::OneKey => "one key",
            Self::Renew => "renewals",
            Self::Batch => "batch of 100",
        }
    }
}

/// How many operations one request of [`Work::Batch`] carries.
pub(crate) const BATCH: usize = 100;

/// A lease that was taken.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) id: String,
    /// Rises with every grant, where the server has such a thing.
    pub(crate) token: u64,
}

/// One caller's connection to some server of leases.
pub(crate) trait Session: Sized {
    /// Takes a key; `None` if somebody else has it. With `wait`, waits for it where the server can.
    fn take(&mut self, key: &str, wait: bool) -> impl Future<Output = Result<Option<Lease>>>;
    /// Gives it back.
    fn give(&mut self, key: &str, lease: &Lease) -> impl Future<Output = Result<()>>;
    /// Prolongs it.
    fn renew(&mut self, key: &str, lease: &Lease) -> impl Future<Output = Result<()>>;
    /// Takes many keys in one request, and gives them back in another; whether the server can.
    fn batch(&mut self, keys: &[String]) -> impl Future<Output = Result<bool>>;
}

/// A load.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) work: Work,
    pub(crate) clients: usize,
    pub(crate) time: Duration,
    /// How many keys there are, from which the callers choose at random, each among its own.
    pub(crate) keys: usize,
}

impl Plan {
    /// A short one before, which is not measured.
    pub(crate) fn warm_up(&self) -> Self {
        Self { time: Duration::from_millis(500), ..self.clone() }
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) time: Duration,
    /// Pairs of taking and giving back, or renewals.
    pub(crate) done: u64,
    /// Single operations: each taking, giving back, renewal.
    pub(crate) operations: u64,
    /// How often a key was refused since somebody else had it.
    pub(crate) refused: u64,
    /// How often a token was not greater than the one granted before.
    pub(crate) out_of_order: u64,
    /// Times in microseconds: of takings, or of renewals, or of whole requests of many.
    pub(crate) times: Histogram<u64>,
}

/// Names like those of real jobs, told from each other by their number.
pub(crate) fn key(n: usize) -> String {
    format!("benchmark/nightly/{n:07}")
}

/// Runs a load to its end; `open` connects a caller.
pub(crate) async fn run<S, F>(plan: &Plan, open: impl Fn() -> F) -> Result<Outcome>
where
    S: Session + 'static,
    F: Future<Output = Result<S>>,
{
    let mut sessions = Vec::with_capacity(plan.clients);
    for _ in 0..plan.clients {
        sessions.push(open().await?);
    }
    let began = Instant::now();
    let turn = Rc::new(Turn { until: began + plan.time, last_token: std::cell::Cell::new(0) });
    let callers = LocalSet::new();
    let tasks: Vec<_> = sessions
        .into_iter()
        .enumerate()
        .map(|(number, session)| {
            let caller =
                Caller { session, number, plan: plan.clone(), turn: Rc::clone(&turn), chance: Chance::new(number) };
            callers.spawn_local(caller.run())
        })
        .collect();
    callers.await;
    let mut outcome = Outcome::new(began.elapsed())?;
    for task in tasks {
        outcome.add(&task.await.context("a caller's fault")??)?;
    }
    Ok(outcome)
}

impl Outcome {
    fn new(time: Duration) -> Result<Self> {
        let times = Histogram::new(3)?;
        Ok(Self { time, done: 0, operations: 0, refused: 0, out_of_order: 0, times })
    }

    fn add(&mut self, other: &Self) -> Result<()> {
        self.done += other.done;
        self.operations += other.operations;
        self.refused += other.refused;
        self.out_of_order += other.out_of_order;
        self.times.add(&other.times)?;
        Ok(())
    }

    /// How many a second.
    pub(crate) fn rate(&self) -> f64 {
        self.done as f64 / self.time.as_secs_f64()
    }
}

/// What all callers share.
struct Turn {
    until: Instant,
    last_token: std::cell::Cell<u64>,
}

struct Caller<S> {
    session: S,
    number: usize,
    plan: Plan,
    turn: Rc<Turn>,
    chance: Chance,
}

impl<S: Session> Caller<S> {
    async fn run(mut self) -> Result<Outcome> {
        let mut outcome = Outcome::new(Duration::ZERO)?;
        match self.plan.work {
            Work::Pairs => {
                while Instant::now() < self.turn.until {
                    let key = self.own_key();
                    self.pair(&key, false, &mut outcome).await?;
                }
            }
            Work::OneKey => {
                let key = key(0);
                while Instant::now() < self.turn.until {
                    self.pair(&key, true, &mut outcome).await?;
                }
            }
            Work::Renew => {
                let key = self.own_key();
                let lease = self.session.take(&key, false).await?.context("a key of one's own was refused")?;
                while Instant::now() < self.turn.until {
                    let began = Instant::now();
                    self.session.renew(&key, &lease).await?;
                    outcome.times.record(micros(began))?;
                    outcome.done += 1;
                    outcome.operations += 1;
                }
                self.session.give(&key, &lease).await?;
            }
            Work::Batch => {
                while Instant::now() < self.turn.until {
                    let keys = self.own_keys();
                    let began = Instant::now();
                    if !self.session.batch(&keys).await? {
                        break;
                    }
                    outcome.times.record(micros(began))?;
                    outcome.done += BATCH as u64;
                    outcome.operations += 2 * BATCH as u64;
                }
            }
        }
        Ok(outcome)
    }

    async fn pair(&mut self, key: &str, wait: bool, outcome: &mut Outcome) -> Result<()> {
        let began = Instant::now();
        let lease = loop {
            match self.session.take(key, wait).await? {
                Some(lease) => break lease,
                None => outcome.refused += 1,
            }
            if Instant::now() > self.turn.until {
                return Ok(());
            }
        };
        outcome.times.record(micros(began))?;
        if wait && lease.token > 0 && self.turn.last_token.replace(lease.token) >= lease.token {
            outcome.out_of_order += 1;
        }
        self.session.give(key, &lease).await?;
        outcome.done += 1;
        outcome.operations += 2;
        Ok(())
    }

    /// A key that no other caller takes.
    fn own_key(&mut self) -> String {
        let each = (self.plan.keys / self.plan.clients).max(1);
        key(self.number + self.plan.clients * self.chance.below(each))
    }

    /// Several different ones.
    fn own_keys(&mut self) -> Vec<String> {
        let each = (self.plan.keys / self.plan.clients).max(BATCH);
        let first = self.chance.below(each);
        (0..BATCH).map(|n| key(self.number + self.plan.clients * ((first + n) % each))).collect()
    }
}

/// The time in milliseconds within which this part of the requests was answered.
pub(crate) fn millis_at(times: &Histogram<u64>, part: f64) -> f64 {
    times.value_at_quantile(part) as f64 / 1e3
}

pub(crate) fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX).max(1)
}

/// The same choices in every run.
struct Chance(u64);

impl Chance {
    fn new(seed: usize) -> Self {
        Self(seed as u64 * 2 + 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % bound as u64) as usize
    }
}
