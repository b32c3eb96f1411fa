//! Moving from SQLite: nothing is left behind, and all of it goes on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::lease::{Acquire, Command, KeyState, LeaseReading, Refusal, Reply, Verdict};
use domain::{Metadata, Reason, Role, Span, Subject};
use engine::engine::{Retention, Scope};
use engine::reading::{Counters, GrantRow, HistoryQuery};
use engine::timeline::Position;
use engine::{CopyError, Database, Engine, OpenError, Options, PostgresUrl, copy};
use tempfile::TempDir;

use crate::fixture::{Fixture, Hands, call, call_once, delivered, lease_key, options, refusal, terms};
use crate::lists::all;

const KEYS: [&str; 6] = ["held", "ended", "breaking", "cooling", "quarantined", "again"];

/// A file that was served for a while.
struct Served {
    _folder: TempDir,
    path: PathBuf,
    secret: String,
    held: LeaseReading,
    first: LeaseReading,
    known: Known,
}

/// All that is told of these keys.
#[derive(Debug, PartialEq)]
struct Known {
    states: Vec<KeyState>,
    rows: Vec<GrantRow>,
    history: Vec<GrantRow>,
    counters: Counters,
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

async fn run(engine: &Engine, key: &str, command: Command) -> Reply {
    engine.run(call(), lease_key(key), command).await.unwrap().value
}

async fn acquire(engine: &Engine, key: &str, request: Acquire) -> LeaseReading {
    delivered(engine.run(call(), lease_key(key), Command::Acquire { request, wait: None }).await.unwrap())
}

async fn release(engine: &Engine, lease: &LeaseReading) {
    run(engine, lease.lease_key.as_str(), Command::Release { lease_id: lease.lease.id() }).await;
}

fn take() -> Command {
    Command::Acquire { request: terms("once"), wait: None }
}

/// With lines that retention took away, if `forgetful`.
async fn served(hands: &Arc<Hands>, forgetful: bool) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leases.db");
    let mut options = Options { time: Arc::clone(hands) as _, ..Options::sqlite(&path) };
    if forgetful {
        options.retention = Retention { timeline: Span::millis(1), ..Retention::default() };
    }
    let engine = Engine::open(options).await.unwrap();
    let scope = Scope { role: Role::Worker, prefixes: Arc::from([]) };
    let made = engine.create_token(call(), "worker", scope, None).await.unwrap().value;
    let long = |owner: &str| Acquire { ttl: Span::millis(3_600_000), ..terms(owner) };
    let reason = || Reason::parse("test").unwrap();
    let held = Acquire {
        subjects: Arc::from([Subject::parse("customer:acme").unwrap()]),
        metadata: Metadata::parse(r#"{"n":1.50}"#).unwrap(),
        ..long("one")
    };
    let held = acquire(&engine, "held", held).await;
    let ended = acquire(&engine, "ended", terms("one")).await;
    release(&engine, &ended).await;
    acquire(&engine, "breaking", long("two")).await;
    let grace = Span::millis(1_800_000);
    run(&engine, "breaking", Command::Break { reason: reason(), grace, lease_id: None }).await;
    let cooling = acquire(&engine, "cooling", Acquire { min_hold: Span::millis(1_800_000), ..long("three") }).await;
    release(&engine, &cooling).await;
    run(&engine, "quarantined", Command::Quarantine { reason: reason() }).await;
    let first = acquire(&engine, "again", terms("four")).await;
    release(&engine, &first).await;
    if forgetful {
        engine.list(all()).await.unwrap();
        hands.pass(2).await;
        engine.retain(call()).await.unwrap();
        assert!(engine.timeline().read_after(Position(0), 1).await.is_err(), "lines were taken away");
    }
    acquire(&engine, "again", long("five")).await;
    engine.run(call_once("k", 1), lease_key("once"), take()).await.unwrap();
    let known = Known::of(&engine).await;
    engine.close().await;
    Served { _folder: folder, path, secret: made.secret.unwrap(), held, first, known }
}

fn url(options: Options) -> PostgresUrl {
    match options.database {
        Database::Postgres(url) => url,
        Database::Sqlite(path) => panic!("{}", path.display()),
    }
}

async fn lines_of(path: &Path) -> (Position, [u8; 32]) {
    let verified = engine::verify(path).await.unwrap();
    (verified.head, verified.hash)
}

async fn everything_goes_on(forgetful: bool) {
    let (database, hands) = Fixture::unopened().await;
    let served = served(&hands, forgetful).await;
    let to = url(database.options());
    let copied = copy(&served.path, &to).await.unwrap();
    assert_eq!((copied.keys, copied.tokens), (KEYS.len() as u64 + 1, 1));
    // The same lines, and nothing else.
    let verified = engine::verify_postgres(&to).await.unwrap();
    assert_eq!((verified.head, verified.hash), lines_of(&served.path).await);

    let engine = Engine::open(options(&database, &hands)).await.unwrap();
    let mut now = Known::of(&engine).await;
    now.counters.as_of = served.known.counters.as_of;
    assert_eq!(now, served.known);
    assert_eq!(engine.authenticate(&served.secret).await.unwrap().unwrap().role, Role::Worker);
    assert!(engine.run(call_once("k", 1), lease_key("once"), take()).await.unwrap().replayed);
    let thief = Command::Acquire { request: terms("thief"), wait: None };
    assert!(matches!(refusal(engine.run(call(), lease_key("held"), thief.clone()).await), Refusal::Held(_)));
    let renew = Command::Renew { lease_id: served.held.lease.id(), ttl: None, shorten: false };
    let Reply::Lease(renewed) = run(&engine, "held", renew).await else { panic!() };
    assert_eq!(renewed.lease.renewals, 1);
    let validate = Command::Validate { token: served.first.lease.token };
    let Reply::Verdict { verdict, .. } = run(&engine, "again", validate).await else { panic!() };
    assert_eq!(verdict, Verdict::Stale);
    // Tokens go on above all that were given out, of whatever key.
    let greatest = now.states.iter().filter_map(|state| Some(state.lease.as_ref()?.token)).max().unwrap();
    assert!(acquire(&engine, "ended", terms("next")).await.lease.token > greatest);
    engine.close().await;
}

#[tokio::test]
async fn everything_that_was_on_sqlite_goes_on_on_postgresql() {
    everything_goes_on(false).await;
}

#[tokio::test]
async fn so_does_what_retention_has_kept_of_lines_that_are_gone() {
    everything_goes_on(true).await;
}

#[tokio::test]
async fn nothing_is_copied_from_a_file_that_is_served_or_to_a_database_that_was_used() {
    let (database, hands) = Fixture::unopened().await;
    let served = served(&hands, false).await;
    let to = url(database.options());
    let server = Engine::open(Options::sqlite(&served.path)).await.unwrap();
    let error = copy(&served.path, &to).await.unwrap_err();
    assert!(matches!(error, CopyError::From(OpenError::InUse(_))), "{error}");
    server.close().await;
    copy(&served.path, &to).await.unwrap();
    let error = copy(&served.path, &to).await.unwrap_err();
    assert!(matches!(error, CopyError::NotEmpty), "{error}");
    let error = copy(&served.path.with_extension("other"), &to).await.unwrap_err();
    assert!(matches!(error, CopyError::From(_)), "{error}");
}
