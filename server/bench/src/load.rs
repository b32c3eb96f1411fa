//! Closed loops of callers: each does the next thing as soon as the last is answered. All run on one thread.

use std::cell::Cell;
use std::future::Future;
use std::ops::Range;
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

/// The key of [`Work::OneKey`], which nobody else takes.
const ONE_KEY: &str = "benchmark/one";

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
    /// The keys, by their numbers, from which the callers choose at random, each among its own.
    pub(crate) keys: Range<usize>,
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
    /// Times in microseconds from the sending of a release of the one key until the next caller had it.
    pub(crate) hand_offs: Histogram<u64>,
}

/// Names like those of real jobs, told from each other by their number.
pub(crate) fn key(n: usize) -> String {
    format!("benchmark/nightly/{n:07}")
}

/// Runs a load to its end; `open` connects a caller, who has that number.
pub(crate) async fn run<S, F>(plan: &Plan, open: impl Fn(usize) -> F) -> Result<Outcome>
where
    S: Session + 'static,
    F: Future<Output = Result<S>>,
{
    let mut sessions = Vec::with_capacity(plan.clients);
    for number in 0..plan.clients {
        sessions.push(open(number).await?);
    }
    let began = Instant::now();
    let turn = Rc::new(Turn { until: began + plan.time, last_token: Cell::new(0), given: Cell::new(None) });
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
    let mut outcome = Outcome::new()?;
    outcome.time = began.elapsed();
    for task in tasks {
        outcome.add(&task.await.context("a caller's fault")??)?;
    }
    Ok(outcome)
}

impl Outcome {
    /// That of no time at all.
    pub(crate) fn new() -> Result<Self> {
        let (times, hand_offs) = (Histogram::new(3)?, Histogram::new(3)?);
        Ok(Self { time: Duration::ZERO, done: 0, operations: 0, refused: 0, out_of_order: 0, times, hand_offs })
    }

    /// Takes in another; its time too, which is none for a single caller's.
    pub(crate) fn add(&mut self, other: &Self) -> Result<()> {
        self.time += other.time;
        self.done += other.done;
        self.operations += other.operations;
        self.refused += other.refused;
        self.out_of_order += other.out_of_order;
        self.times.add(&other.times)?;
        self.hand_offs.add(&other.hand_offs)?;
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
    last_token: Cell<u64>,
    /// When the one key was given back, until somebody has it.
    given: Cell<Option<Instant>>,
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
        let mut outcome = Outcome::new()?;
        match self.plan.work {
            Work::Pairs => {
                while Instant::now() < self.turn.until {
                    let key = self.own_key();
                    self.pair(&key, false, &mut outcome).await?;
                }
            }
            Work::OneKey => {
                while Instant::now() < self.turn.until {
                    self.pair(ONE_KEY, true, &mut outcome).await?;
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
        if wait {
            if lease.token > 0 && self.turn.last_token.replace(lease.token) >= lease.token {
                outcome.out_of_order += 1;
            }
            if let Some(given) = self.turn.given.take() {
                outcome.hand_offs.record(micros(given))?;
            }
            self.turn.given.set(Some(Instant::now()));
        }
        self.session.give(key, &lease).await?;
        outcome.done += 1;
        outcome.operations += 2;
        Ok(())
    }

    /// A key that no other caller takes.
    fn own_key(&mut self) -> String {
        let each = (self.plan.keys.len() / self.plan.clients).max(1);
        key(self.first_key() + self.plan.clients * self.chance.below(each))
    }

    /// Several different ones.
    fn own_keys(&mut self) -> Vec<String> {
        let each = (self.plan.keys.len() / self.plan.clients).max(BATCH);
        let first = self.chance.below(each);
        (0..BATCH).map(|n| key(self.first_key() + self.plan.clients * ((first + n) % each))).collect()
    }

    fn first_key(&self) -> usize {
        self.plan.keys.start + self.number
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::future::ready;

    use super::*;

    /// Those that are held, and all that ever were.
    #[derive(Default)]
    struct Keys {
        held: BTreeSet<String>,
        ever: BTreeSet<String>,
    }

    impl Session for Rc<RefCell<Keys>> {
        async fn take(&mut self, key: &str, _: bool) -> Result<Option<Lease>> {
            tokio::task::yield_now().await;
            let mut keys = self.borrow_mut();
            keys.ever.insert(key.to_owned());
            Ok(keys.held.insert(key.to_owned()).then(|| Lease { id: key.to_owned(), token: 0 }))
        }

        async fn give(&mut self, key: &str, lease: &Lease) -> Result<()> {
            tokio::task::yield_now().await;
            assert_eq!(key, lease.id);
            assert!(self.borrow_mut().held.remove(key), "{key} was not held");
            Ok(())
        }

        async fn renew(&mut self, key: &str, _: &Lease) -> Result<()> {
            tokio::task::yield_now().await;
            assert!(self.borrow().held.contains(key), "{key} was not held");
            Ok(())
        }

        async fn batch(&mut self, _: &[String]) -> Result<bool> {
            Ok(false)
        }
    }

    async fn try_out(work: Work) -> (Outcome, BTreeSet<String>) {
        let keys = Rc::<RefCell<Keys>>::default();
        let plan = Plan { work, clients: 3, time: Duration::from_millis(30), keys: 10..19 };
        let outcome = run(&plan, |_| ready(Ok(Rc::clone(&keys)))).await.unwrap();
        assert!(keys.borrow().held.is_empty() && outcome.done > 0);
        // Not the taking of a key.
        let ever = RefCell::take(&keys).ever;
        (outcome, ever)
    }

    #[tokio::test]
    async fn callers_keep_to_keys_of_their_own() {
        for work in [Work::Pairs, Work::Renew] {
            let (outcome, ever) = try_out(work).await;
            assert_eq!((outcome.refused, outcome.hand_offs.len()), (0, 0));
            let allowed: BTreeSet<String> = (10..19).map(key).collect();
            assert!(ever.is_subset(&allowed), "{ever:?}");
        }
    }

    #[tokio::test]
    async fn each_grant_of_the_one_key_but_the_first_is_a_hand_off() {
        let (outcome, ever) = try_out(Work::OneKey).await;
        assert_eq!(ever.len(), 1);
        assert_eq!(outcome.hand_offs.len() + 1, outcome.done);
    }
}
