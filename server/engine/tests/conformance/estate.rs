//! A database in which there is something of everything, to be moved elsewhere.

use std::sync::Arc;

use domain::lease::{Acquire, Command, KeyState, LeaseReading, Reply, Verdict};
use domain::{Metadata, Reason, Role, Span, Subject};
use engine::Engine;
use engine::engine::Scope;
use engine::reading::{Counters, GrantRow, HistoryQuery};
use engine::timeline::Position;

use crate::fixture::{Hands, call, call_once, delivered, lease_key, refusal, terms};
use crate::lists::all;

const KEYS: [&str; 6] = ["held", "ended", "breaking", "cooling", "quarantined", "again"];

/// What was put there.
pub(crate) struct Estate {
    /// Of a token.
    secret: String,
    held: LeaseReading,
    first: LeaseReading,
    pub(crate) known: Known,
}

/// All that is told of these keys.
#[derive(Debug, PartialEq)]
pub(crate) struct Known {
    states: Vec<KeyState>,
    rows: Vec<GrantRow>,
    history: Vec<GrantRow>,
    pub(crate) counters: Counters,
}

impl Known {
    async fn of(engine: &Engine) -> Self {
        let mut states = Vec::new();
        for key in KEYS {
            let Reply::Key(reading) = run(engine, key, Command::Get).await else { panic!("{key}") };
            states.push(reading.state);
        }
        let history = HistoryQuery { lease_key: lease_key("again"), before: None, limit: 100 };
        Self {
            states,
            rows: engine.list(all()).await.unwrap().page.rows,
            history: engine.history(history).await.unwrap().page.rows,
            counters: engine.counters(&[]).await.unwrap(),
        }
    }
}

pub(crate) async fn run(engine: &Engine, key: &str, command: Command) -> Reply {
    engine.run(call(), lease_key(key), command).await.unwrap().value
}

pub(crate) async fn acquire(engine: &Engine, key: &str, request: Acquire) -> LeaseReading {
    delivered(engine.run(call(), lease_key(key), Command::Acquire { request, wait: None }).await.unwrap())
}

async fn release(engine: &Engine, lease: &LeaseReading) {
    run(engine, lease.lease_key.as_str(), Command::Release { lease_id: lease.lease.id() }).await;
}

pub(crate) fn take() -> Command {
    Command::Acquire { request: terms("once"), wait: None }
}

impl Estate {
    /// How many keys there are.
    pub(crate) const KEYS: u64 = KEYS.len() as u64 + 1;

    /// Fills a database that is new; with lines that retention has taken away, if `forgetful`, which takes an engine that keeps
    /// its timeline for a millisecond.
    pub(crate) async fn fill(engine: &Engine, hands: &Arc<Hands>, forgetful: bool) -> Self {
        let scope = Scope { role: Role::Worker, prefixes: Arc::from([]) };
        let made = engine.create_token(call(), "worker", scope, None).await.unwrap().value;
        let long = |owner: &str| Acquire { ttl: Span::millis(3_600_000), ..terms(owner) };
        let reason = || Reason::parse("test").unwrap();
        let held = Acquire {
            subjects: Arc::from([Subject::parse("customer:acme").unwrap()]),
            metadata: Metadata::parse(r#"{"n":1.50}"#).unwrap(),
            ..long("one")
        };
        let held = acquire(engine, "held", held).await;
        let ended = acquire(engine, "ended", terms("one")).await;
        release(engine, &ended).await;
        acquire(engine, "breaking", long("two")).await;
        let grace = Span::millis(1_800_000);
        run(engine, "breaking", Command::Break { reason: reason(), grace, lease_id: None }).await;
        let cooling = acquire(engine, "cooling", Acquire { min_hold: Span::millis(1_800_000), ..long("three") }).await;
        release(engine, &cooling).await;
        run(engine, "quarantined", Command::Quarantine { reason: reason() }).await;
        let first = acquire(engine, "again", terms("four")).await;
        release(engine, &first).await;
        if forgetful {
            engine.list(all()).await.unwrap();
            hands.pass(2).await;
            engine.retain(call()).await.unwrap();
            assert!(engine.timeline().read_after(Position(0), 1).await.is_err(), "lines were taken away");
        }
        acquire(engine, "again", long("five")).await;
        engine.run(call_once("k", 1), lease_key("once"), take()).await.unwrap();
        let known = Known::of(engine).await;
        Self { secret: made.secret.unwrap(), held, first, known }
    }

    /// All of it is here, and goes on.
    pub(crate) async fn is_whole(&self, engine: &Engine) {
        let mut now = Known::of(engine).await;
        now.counters.as_of = self.known.counters.as_of;
        assert_eq!(now, self.known);
        assert_eq!(engine.authenticate(&self.secret).await.unwrap().unwrap().role, Role::Worker);
        assert!(engine.run(call_once("k", 1), lease_key("once"), take()).await.unwrap().replayed);
        let thief = Command::Acquire { request: terms("thief"), wait: None };
        let refused = refusal(engine.run(call(), lease_key("held"), thief).await);
        assert!(matches!(refused, domain::lease::Refusal::Held(_)), "{refused:?}");
        let renew = Command::Renew { lease_id: self.held.lease.id(), ttl: None, shorten: false };
        let Reply::Lease(renewed) = run(engine, "held", renew).await else { panic!() };
        assert_eq!(renewed.lease.renewals, 1);
        let validate = Command::Validate { token: self.first.lease.token };
        let Reply::Verdict { verdict, .. } = run(engine, "again", validate).await else { panic!() };
        assert_eq!(verdict, Verdict::Stale);
        // Tokens go on above all that were given out, of whatever key.
        let greatest = now.states.iter().filter_map(|state| Some(state.lease.as_ref()?.token)).max().unwrap();
        assert!(acquire(engine, "ended", terms("next")).await.lease.token > greatest);
    }
}
