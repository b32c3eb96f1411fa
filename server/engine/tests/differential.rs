//! The engine on its store against the naive reference: the same commands in the same order, restarts between them, and
//! every answer and every key alike.
//!
//! `JOB_LEASES_SEEDS=from..to` runs other seeds.

#[path = "conformance/fixture.rs"]
#[expect(dead_code, reason = "shared with the conformance suite, which uses more of it")]
mod fixture;
#[expect(dead_code, reason = "shared with the test of the rules, which also has outages and retention")]
mod reference;

use std::collections::HashMap;

use domain::lease::{Acquire, Answer, Command, LeaseId, Reply, Wait};
use domain::{LeaseKey, Owner, Reason, Span};
use engine::{Fault, timeline::Position};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use reference::{Reference, Told, see_key, told, told_refusal};
use tokio::task::JoinHandle;

use fixture::{Fixture, call, lease_key};

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// The one key for which somebody may wait: where several keys come due at once, the order of their tokens is open.
const WAITED_FOR: &str = "a";
const STEPS: usize = 150;

type Waiting = HashMap<u64, JoinHandle<Result<domain::lease::LeaseReading, Fault>>>;

/// Both sides, and what the script remembers.
struct Pair {
    fixture: Fixture,
    reference: Reference,
    chance: StdRng,
    /// Every lease id that was ever told.
    ids: Vec<LeaseId>,
    waiting: Waiting,
    next_waiter: u64,
}

impl Pair {
    async fn new(seed: u64) -> Self {
        let fixture = Fixture::new().await;
        let reference = Reference::new(fixture.engine.rules(), fixture.engine.now().as_micros().unsigned_abs());
        Self {
            fixture,
            reference,
            chance: StdRng::seed_from_u64(seed),
            ids: Vec::new(),
            waiting: Waiting::new(),
            next_waiter: 1,
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.chance.random_range(0..from.len())]
    }

    fn request(&mut self) -> Acquire {
        let mut request = fixture::terms(self.pick(&["one", "two", "three"]));
        request.ttl = Span::millis(self.pick(&[100, 700, 3_000, 10_000]));
        request.lock_delay = Span::millis(self.pick(&[0, 0, 800]));
        request.min_hold = Span::millis(self.pick(&[0, 0, 900]));
        request.max_hold = self.pick(&[None, None, Some(Span::millis(2_000))]);
        request.job_key = self.pick(&[None, Some("job-1")]).and_then(|job| domain::JobKey::parse(job).ok());
        request
    }

    fn command(&mut self) -> Command {
        let id = |pair: &mut Self| {
            let known = pair.ids.clone();
            if known.is_empty() || pair.chance.random_range(0..20) == 0 {
                LeaseId::parse("ls_00000000001").unwrap()
            } else {
                let recent = known.len().saturating_sub(6);
                known[pair.chance.random_range(recent..known.len())]
            }
        };
        let reason = Reason::parse("because").unwrap();
        match self.chance.random_range(0..14) {
            0..=3 => {
                let wait = (self.chance.random_range(0..3) == 0).then(|| Wait::lasting(Span::millis(1_500)));
                Command::Acquire { request: self.request(), wait }
            }
            4 | 5 => {
                let ttl = self.pick(&[None, Some(Span::millis(1_000)), Some(Span::millis(5_000))]);
                Command::Renew { lease_id: id(self), ttl, shorten: self.chance.random() }
            }
            6..=8 => Command::Release { lease_id: id(self) },
            9 => Command::Transfer { lease_id: id(self), to_owner: Owner::parse("four").unwrap() },
            10 => {
                let lease_id = if self.chance.random() { Some(id(self)) } else { None };
                Command::Break { reason, grace: Span::millis(self.pick(&[0, 400, 2_000])), lease_id }
            }
            11 if self.chance.random_range(0..3) == 0 => Command::Quarantine { reason },
            11 | 12 => Command::Lift { reason },
            _ => Command::Validate { token: id(self).token() },
        }
    }

    /// The same command on both sides.
    async fn both(&mut self, key: &LeaseKey, mut command: Command) {
        let now = self.fixture.engine.now();
        let waiter = self.next_waiter;
        if let Command::Acquire { wait, .. } = &mut command {
            *wait = wait.filter(|_| key.as_str() == WAITED_FOR);
        }
        if let Command::Acquire { wait: Some(wait), .. } = &mut command {
            wait.waiter = domain::lease::WaiterId(waiter);
            self.next_waiter += 1;
        }
        let (expected, woken) = self.reference.run(now, key.as_str(), &command, "tk_test", &|_| true);
        let got = if expected == Told::Wait {
            let Command::Acquire { request, .. } = command.clone() else { panic!("{command:?} waits?") };
            let before = self.fixture.queue_length(key.as_str()).await;
            self.waiting.insert(waiter, self.fixture.wait_as(call(), key.as_str(), request, 1_500));
            self.fixture.until_waiting(key.as_str(), before + 1).await;
            Told::Wait
        } else {
            match self.fixture.engine.run(call(), key.clone(), command.clone()).await {
                Ok(done) => {
                    if let Some(delivery) = done.delivery {
                        delivery.delivered();
                    }
                    self.ids.extend(done.value.leases().map(|reading| reading.lease.id()));
                    told(&Answer::Done(done.value), now)
                }
                Err(Fault::Refused(refusal)) => Told::Refused(told_refusal(&refusal)),
                Err(fault) => panic!("{command:?}: {fault}"),
            }
        };
        assert_eq!(got, expected, "{key} {command:?}");
        self.woken(woken).await;
    }

    /// Who was woken on one side was woken on the other, with the same.
    async fn woken(&mut self, woken: Vec<(u64, Told)>) {
        for (waiter, expected) in woken {
            let now = self.fixture.engine.now();
            let got = match self.waiting.remove(&waiter).unwrap().await.unwrap() {
                Ok(reading) => {
                    self.ids.push(reading.lease.id());
                    told(&Answer::Done(Reply::Lease(reading)), now)
                }
                Err(Fault::Refused(refusal)) => Told::Refused(told_refusal(&refusal)),
                Err(fault) => panic!("{fault}"),
            };
            assert_eq!(got, expected, "waiter {waiter}");
        }
    }

    /// Every key looks the same from both sides.
    async fn compare(&mut self) {
        for name in KEYS {
            let key = lease_key(name);
            self.both(&key, Command::Settle).await;
            let now = self.fixture.engine.now();
            let expected = self.reference.see(name, now.as_micros());
            match self.fixture.engine.run(call(), key, Command::Get).await {
                Ok(done) => {
                    let Reply::Key(reading) = done.value else { panic!() };
                    assert_eq!(see_key(&reading, now), expected);
                }
                Err(_) => assert_eq!((expected.lease, expected.quarantine), (None, None)),
            }
        }
    }

    /// Time passes, seen by both, in steps that are no outage.
    async fn pass(&mut self, millis: i64) {
        let mut left = millis;
        while left > 0 {
            let step = left.min(500);
            left -= step;
            self.fixture.hands.pass(step);
            // What is due is done first, as the engine's timers do it.
            self.both(&lease_key(WAITED_FOR), Command::Settle).await;
            let key = lease_key("touch");
            self.both(&key, Command::Acquire { request: fixture::terms("toucher"), wait: None }).await;
            if let Some(id) = self.ids.pop() {
                self.both(&key, Command::Release { lease_id: id }).await;
            }
            self.compare().await;
        }
    }

    async fn restart(&mut self) {
        // Whoever waits is told that the server stops.
        self.fixture.reopen().await;
        for (_, waiter) in self.waiting.drain() {
            assert_eq!(waiter.await.unwrap(), Err(Fault::Stopping));
        }
        self.reference.restart();
        self.reference.tokens_after(self.fixture.engine.now().as_micros().unsigned_abs());
    }
}

async fn run(seed: u64) {
    let mut pair = Pair::new(seed).await;
    for _ in 0..STEPS {
        match pair.chance.random_range(0..20) {
            0 => pair.restart().await,
            1..=5 => {
                let millis = pair.pick(&[1, 99, 400, 1_100]);
                pair.pass(millis).await;
            }
            6 => {
                let requests: Vec<_> = ["a", "c"].into_iter().map(|name| (name.to_owned(), pair.request())).collect();
                let now = pair.fixture.engine.now();
                let (expected, woken) = pair.reference.run_many(now, &requests, &|_| true);
                let requests = requests.into_iter().map(|(name, request)| (lease_key(&name), request)).collect();
                let got = match pair.fixture.engine.acquire_many(call(), requests).await {
                    Ok(done) => {
                        done.delivery.unwrap().delivered();
                        pair.ids.extend(done.value.leases().map(|reading| reading.lease.id()));
                        told(&Answer::Done(done.value), now)
                    }
                    Err(Fault::Refused(refusal)) => Told::Refused(told_refusal(&refusal)),
                    Err(fault) => panic!("{fault}"),
                };
                assert_eq!(got, expected);
                pair.woken(woken).await;
            }
            _ => {
                let key = lease_key(pair.pick(&KEYS));
                let command = pair.command();
                pair.both(&key, command).await;
            }
        }
        pair.compare().await;
    }
    assert!(pair.fixture.engine.timeline().head() > Position(20), "seed {seed} did next to nothing");
}

#[tokio::test]
async fn the_engine_answers_as_the_naive_reference_does() {
    let seeds = std::env::var("JOB_LEASES_SEEDS").unwrap_or_else(|_| "0..25".to_owned());
    let (from, to) = seeds.split_once("..").expect("from..to");
    let (from, to): (u64, u64) = (from.parse().unwrap(), to.parse().unwrap());
    assert!(from < to, "no seeds");
    for seed in from..to {
        println!("seed {seed}");
        run(seed).await;
    }
}
