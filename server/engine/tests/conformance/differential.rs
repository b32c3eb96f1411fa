//! The engine on its store against the naive reference: the same commands in the same order, restarts between them, and
//! every answer and every key alike.
//!
//! `JOB_LEASES_SEEDS=from..to` runs other seeds.

use std::collections::{BTreeMap, HashMap};

use domain::lease::{Acquire, Answer, Command, FencingToken, LeaseId, LeaseReading, Reply, Wait};
use domain::{JobKey, LeaseKey, Owner, Reason, Span};
use engine::{Fault, timeline::Position};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::JoinHandle;

use crate::database;
use crate::fixture::{Fixture, call, lease_key, terms};
use crate::reference::{Reference, Told, see_key, told, told_refusal};

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// The one key for which somebody may wait: where several keys come due at once, the order of their tokens is open.
const WAITED_FOR: &str = "a";
const STEPS: usize = 150;

type Waiting = HashMap<u64, JoinHandle<Result<LeaseReading, Fault>>>;

/// The engine's tokens and the reference's, which counts them one by one. A database may leave some out, but it keeps their
/// order.
#[derive(Default)]
struct Tokens {
    of_reference: BTreeMap<u64, u64>,
}

impl Tokens {
    /// The reference's name of what the engine calls `token`; of one that was never told, the same.
    fn translate(&self, token: FencingToken) -> FencingToken {
        self.of_reference.get(&token.get()).map_or(token, |number| FencingToken::new(*number).unwrap())
    }

    /// The same, of one that was told now, where the reference told `expected`.
    fn translate_told(&mut self, token: u64, expected: u64) -> u64 {
        if database::TOKENS_ARE_DENSE {
            return token;
        }
        if let Some(known) = self.of_reference.get(&token) {
            return *known;
        }
        let before = self.of_reference.range(..token).next_back();
        let after = self.of_reference.range(token..).next();
        let is_in_order =
            before.is_none_or(|(_, number)| *number < expected) && after.is_none_or(|(_, number)| expected < *number);
        assert!(is_in_order, "token {token} is not in the order of grants: between {before:?} and {after:?}");
        self.of_reference.insert(token, expected);
        expected
    }

    /// What the engine told in the reference's tokens, and what the reference told, are the same.
    fn assert_same(&mut self, mut got: Told, mut expected: Told, what: &str) {
        for (token, expected) in tokens_in(&mut got).into_iter().zip(tokens_in(&mut expected)) {
            *token = self.translate_told(*token, *expected);
        }
        assert_eq!(got, expected, "{what}");
    }

    /// A command as the reference knows its lease.
    fn translate_command(&self, command: &Command) -> Command {
        let mut command = command.clone();
        match &mut command {
            Command::Renew { lease_id, .. }
            | Command::Release { lease_id }
            | Command::Transfer { lease_id, .. }
            | Command::Break { lease_id: Some(lease_id), .. } => *lease_id = self.translate(lease_id.token()).into(),
            Command::Validate { token } => *token = self.translate(*token),
            _ => {}
        }
        command
    }
}

fn tokens_in(told: &mut Told) -> Vec<&mut u64> {
    match told {
        Told::Lease(lease) | Told::Released(lease, _) => vec![&mut lease.token],
        Told::Leases(leases) => leases.iter_mut().map(|lease| &mut lease.token).collect(),
        Told::Key(key) => key.lease.iter_mut().map(|lease| &mut lease.token).collect(),
        Told::Verdict(_, token) => token.iter_mut().collect(),
        Told::Nothing | Told::Wait | Told::Refused(_) => Vec::new(),
    }
}

/// Both sides, and what the script remembers.
struct Pair {
    fixture: Fixture,
    reference: Reference,
    chance: StdRng,
    /// Every lease id that was ever told.
    ids: Vec<LeaseId>,
    tokens: Tokens,
    waiting: Waiting,
    next_waiter: u64,
}

impl Pair {
    async fn new(seed: u64) -> Self {
        let fixture = Fixture::new().await;
        let reference = Reference::new(fixture.engine.rules(), fixture.now().as_micros().unsigned_abs());
        Self {
            fixture,
            reference,
            chance: StdRng::seed_from_u64(seed),
            ids: Vec::new(),
            tokens: Tokens::default(),
            waiting: Waiting::new(),
            next_waiter: 1,
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.chance.random_range(0..from.len())]
    }

    fn request(&mut self) -> Acquire {
        let mut request = terms(self.pick(&["one", "two", "three"]));
        request.ttl = Span::millis(self.pick(&[100, 700, 3_000, 10_000]));
        request.lock_delay = Span::millis(self.pick(&[0, 0, 800]));
        request.min_hold = Span::millis(self.pick(&[0, 0, 900]));
        request.max_hold = self.pick(&[None, None, Some(Span::millis(2_000))]);
        request.job_key = self.pick(&[None, Some("job-1")]).and_then(|job| JobKey::parse(job).ok());
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
        let now = self.fixture.now();
        let waiter = self.next_waiter;
        if let Command::Acquire { wait, .. } = &mut command {
            *wait = wait.filter(|_| key.as_str() == WAITED_FOR);
        }
        if let Command::Acquire { wait: Some(wait), .. } = &mut command {
            wait.waiter = domain::lease::WaiterId(waiter);
            self.next_waiter += 1;
        }
        let asked = self.tokens.translate_command(&command);
        let (expected, woken) = self.reference.run(now, key.as_str(), &asked, "tk_test", &|_| true);
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
        self.tokens.assert_same(got, expected, &format!("{key} {command:?}"));
        self.woken(woken).await;
    }

    /// Who was woken on one side was woken on the other, with the same.
    async fn woken(&mut self, woken: Vec<(u64, Told)>) {
        for (waiter, expected) in woken {
            let now = self.fixture.now();
            let got = match self.waiting.remove(&waiter).unwrap().await.unwrap() {
                Ok(reading) => {
                    self.ids.push(reading.lease.id());
                    told(&Answer::Done(Reply::Lease(reading)), now)
                }
                Err(Fault::Refused(refusal)) => Told::Refused(told_refusal(&refusal)),
                Err(fault) => panic!("{fault}"),
            };
            self.tokens.assert_same(got, expected, &format!("waiter {waiter}"));
        }
    }

    /// Every key looks the same from both sides.
    async fn compare(&mut self) {
        for name in KEYS {
            let key = lease_key(name);
            self.both(&key, Command::Settle).await;
            let now = self.fixture.now();
            let expected = self.reference.see(name, now.as_micros());
            match self.fixture.engine.run(call(), key, Command::Get).await {
                Ok(done) => {
                    let Reply::Key(reading) = done.value else { panic!() };
                    self.tokens.assert_same(Told::Key(see_key(&reading, now)), Told::Key(expected), name);
                }
                Err(_) => assert_eq!((expected.lease, expected.quarantine), (None, None)),
            }
        }
    }

    /// Time passes, seen by both, in steps that are no outage.
    async fn pass(&mut self, millis: i64) {
        let mut left = millis;
        while left > 0 {
            left -= self.fixture.pass_half_a_second(left).await;
            // What is due is done first, as the engine's timers do it.
            self.both(&lease_key(WAITED_FOR), Command::Settle).await;
            let key = lease_key("touch");
            self.both(&key, Command::Acquire { request: terms("toucher"), wait: None }).await;
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
        self.reference.tokens_after(self.fixture.now().as_micros().unsigned_abs());
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
                let now = pair.fixture.now();
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
                pair.tokens.assert_same(got, expected, "acquire-many");
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
    assert!(pair.fixture.head().await > Position(20), "seed {seed} did next to nothing");
    pair.fixture.engine.close().await;
}

#[tokio::test]
async fn the_engine_answers_as_the_naive_reference_does() {
    let seeds = std::env::var("JOB_LEASES_SEEDS").unwrap_or_else(|_| database::SEEDS.to_owned());
    let (from, to) = seeds.split_once("..").expect("from..to");
    let (from, to): (u64, u64) = (from.parse().unwrap(), to.parse().unwrap());
    assert!(from < to, "no seeds");
    for seed in from..to {
        println!("seed {seed}");
        run(seed).await;
    }
}
