//! The database under test: PostgreSQL, on a server that the environment names, a database of its own for each fixture.
//!
//! Its time is its own: all that the engine asks goes by `job_leases.clock()`. Here a trigger replaces that function as soon
//! as the migrations have made it, so that it tells what the test says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use domain::Timestamp;
use engine::clock::TimeSource as _;
use engine::{Engine, Options, PostgresUrl, Verified, VerifyError};
use futures::TryStreamExt as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use crate::fixture::{Fixture, Hands};
use crate::server::named_server;
pub(crate) use crate::way::SEEDS;
use crate::way::Way;

/// Whether every token is one more than the last: a command that is refused or tried again may leave some out.
pub(crate) const TOKENS_ARE_DENSE: bool = false;

/// A name that no other run has, were it on another machine.
const NAME: &str = "SELECT 'job_leases_test_' || replace(gen_random_uuid()::text, '-', '')";

const HANDS: &str = "
CREATE SCHEMA job_leases_test;
CREATE TABLE job_leases_test.hands (micros bigint NOT NULL);
CREATE FUNCTION job_leases_test.take_the_clock() RETURNS event_trigger LANGUAGE plpgsql AS $trigger$
BEGIN
    -- The replacement is a function made anew, too.
    IF EXISTS (
        SELECT 1 FROM pg_event_trigger_ddl_commands() AS made JOIN pg_proc ON pg_proc.oid = made.objid
        WHERE made.object_identity = 'job_leases.clock()' AND pg_proc.prosrc NOT LIKE '%job_leases_test%'
    ) THEN
        CREATE OR REPLACE FUNCTION job_leases.clock() RETURNS bigint LANGUAGE sql VOLATILE
            AS 'SELECT micros FROM job_leases_test.hands';
    END IF;
END $trigger$;
CREATE EVENT TRIGGER take_the_clock ON ddl_command_end WHEN TAG IN ('CREATE FUNCTION')
    EXECUTE FUNCTION job_leases_test.take_the_clock()";

const SET_HANDS: &str = "INSERT INTO job_leases_test.hands (micros) VALUES ($1)";

/// Whoever has read the time comes first, to its end: an old time that came after the engine's hands have moved would look
/// as if time had stood still.
const STOP_HANDS: &str = "LOCK TABLE job_leases_test.hands IN ACCESS EXCLUSIVE MODE";
const MOVE_HANDS: &str = "UPDATE job_leases_test.hands SET micros = micros + $1";

const CUT: &str = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
     WHERE datname = current_database() AND application_name = 'job-leases'";

/// By this servers are told apart.
const BE_ANOTHER: &str = "CREATE OR REPLACE FUNCTION job_leases.server() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT 7::bigint'";

/// What nodes do each second, of which none has passed where hours pass at once.
const LIVE: [&str; 2] = [
    "UPDATE job_leases.service SET lived_at = greatest(lived_at, job_leases.clock() + ahead)",
    "UPDATE job_leases.nodes SET seen_at = greatest(seen_at, job_leases.clock())",
];

/// Whether anything was not moved yet from the log to the timeline, and how far that goes.
const SEQUENCED: &str = "SELECT EXISTS (SELECT 1 FROM job_leases.log), (SELECT position FROM job_leases.head)";

/// As `BEGIN_WRITING` of the store, and with the settings of its connections.
const STAND_STILL: &str = "SET idle_in_transaction_session_timeout = '3s'; BEGIN; \
     SELECT pg_advisory_xact_lock_shared(7411074111)";

const LOSE_VIEWS: &str = "DROP SCHEMA job_leases_views CASCADE; CREATE SCHEMA job_leases_views";

const REFUSE_POISON: &str = "
CREATE FUNCTION job_leases_test.refuse_poison() RETURNS trigger LANGUAGE plpgsql AS $trigger$
BEGIN
    RAISE EXCEPTION 'poisoned';
END $trigger$;
CREATE TRIGGER refuse_poison BEFORE INSERT ON job_leases.log
    FOR EACH ROW WHEN (NEW.body LIKE '%poison%') EXECUTE FUNCTION job_leases_test.refuse_poison()";

/// What a version later than this one might add.
const BE_NEWER: &str = "ALTER TABLE job_leases.keys ADD COLUMN note text; \
     CREATE TABLE job_leases.notes (id bigint PRIMARY KEY); ALTER TABLE job_leases_views.keys ADD COLUMN note text; \
     INSERT INTO job_leases.migrations (version, description, success, checksum, execution_time) \
     VALUES (9999, 'later', true, '', 0); \
     INSERT INTO job_leases_views.migrations (version, description, success, checksum, execution_time) \
     VALUES (9999, 'later', true, '', 0)";
const RAISE: &str = "UPDATE job_leases.compatibility SET oldest = greatest(oldest, $1)";

const APPEND: &str = "INSERT INTO job_leases.log (body) VALUES ($1)";

const TABLES: &str = "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables \
     WHERE schemaname NOT IN ('pg_catalog', 'information_schema')";

/// Server time: the database's, exactly. The engine knows it as of its last statement.
pub(crate) fn now(_: &Engine, hands: &Hands) -> Timestamp {
    Timestamp::from_micros(hands.wall_micros())
}

/// A database of its own.
pub(crate) struct Database {
    name: String,
    /// In the database that is not the tests'.
    server: PgConnectOptions,
    own: PgConnectOptions,
    pool: PgPool,
    way: Way,
    /// How often it was asked how to open it.
    opened: AtomicU32,
}

impl Database {
    pub(crate) async fn new(micros: i64) -> Self {
        let server = named_server();
        // Nobody can be connected to this template, which would be in the way.
        let database = Self::made_from(&server, "template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'").await;
        sqlx::raw_sql(HANDS).execute(&database.pool).await.unwrap();
        sqlx::query(SET_HANDS).bind(micros).execute(&database.pool).await.unwrap();
        database
    }

    async fn made_from(server: &PgConnectOptions, template: &str) -> Self {
        let mut admin = server.connect().await.unwrap();
        let name: String = sqlx::query_scalar(NAME).fetch_one(&mut admin).await.unwrap();
        admin.close().await.unwrap();
        on_server(server, format!("CREATE DATABASE {name} TEMPLATE {template}")).await.unwrap();
        let own = server.clone().database(&name);
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(own.clone());
        let way = Way::to(&own);
        Self { name, server: server.clone(), own, pool, way, opened: AtomicU32::new(0) }
    }

    /// Another one that is as this one is now, byte by byte, while nobody serves it.
    pub(crate) async fn as_it_is(&self) -> Arc<Self> {
        let cut = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'", self.name);
        on_server(&self.server, cut).await.unwrap();
        Arc::new(Self::made_from(&self.server, &self.name).await)
    }

    /// How to open it.
    pub(crate) fn options(&self) -> Options {
        let (host, port) = self.place();
        self.way.options((&host, port), self.opened.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn dial(&self) -> Dial {
        Dial(self.pool.clone())
    }

    /// Shows that all nodes live that there are.
    pub(crate) async fn live(&self) {
        // Apart from each other, so that no node waits for one while it holds the other.
        for sign in LIVE {
            sqlx::query(sign).execute(&self.pool).await.unwrap();
        }
    }

    /// Another server takes over, whose clock is ahead of the one before by so many milliseconds.
    pub(crate) async fn take_over(&self, ahead: i64) {
        let mut tx = self.pool.begin().await.unwrap();
        sqlx::query(STOP_HANDS).execute(&mut *tx).await.unwrap();
        // With the server go its connections: what waits for the hands would take its clock for the old one's.
        sqlx::query(CUT).execute(&mut *tx).await.unwrap();
        sqlx::query(MOVE_HANDS).bind(ahead * 1_000).execute(&mut *tx).await.unwrap();
        sqlx::raw_sql(BE_ANOTHER).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// Sets its clock back, and nobody else's.
    pub(crate) async fn set_back(&self, millis: i64) {
        sqlx::query(MOVE_HANDS).bind(-millis * 1_000).execute(&self.pool).await.unwrap();
    }

    /// When the service last showed that it lives, in microseconds.
    pub(crate) async fn mark(&self) -> i64 {
        sqlx::query_scalar("SELECT lived_at FROM job_leases.service").fetch_one(&self.pool).await.unwrap()
    }

    /// Waits until the timeline has all that was answered, and this engine knows of it.
    pub(crate) async fn sequenced(&self, engine: &Engine) {
        for _ in 0..5_000 {
            let (is_waiting, head): (bool, i64) = sqlx::query_as(SEQUENCED).fetch_one(&self.pool).await.unwrap();
            if !is_waiting && engine.timeline().head().0 >= head {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("what was answered has not come to the timeline");
    }

    /// Takes the read models away, while nobody serves the database.
    pub(crate) async fn lose_views(&self) {
        sqlx::raw_sql(LOSE_VIEWS).execute(&self.pool).await.unwrap();
    }

    /// All that it holds.
    pub(crate) async fn content(&self) -> Vec<u8> {
        let mut db = self.own.connect().await.unwrap();
        let tables: Vec<String> = sqlx::query_scalar(TABLES).fetch_all(&mut db).await.unwrap();
        let mut content = Vec::new();
        for table in tables {
            // Binary, so that bytes come as they are.
            let copy = format!("COPY {table} TO STDOUT (FORMAT binary)");
            let mut pieces = db.copy_out_raw(&copy).await.unwrap();
            while let Some(piece) = pieces.try_next().await.unwrap() {
                content.extend_from_slice(&piece);
            }
        }
        db.close().await.unwrap();
        content
    }

    /// From now on no line can be written that says `poison`.
    pub(crate) async fn refuse_poison(&self) {
        sqlx::raw_sql(REFUSE_POISON).execute(&self.pool).await.unwrap();
    }

    /// A version later than this one has used it, and from now on it takes one that knows its schema so far at least.
    pub(crate) async fn be_newer(&self, oldest: i64) {
        let mut tx = self.pool.begin().await.unwrap();
        sqlx::raw_sql(BE_NEWER).execute(&mut *tx).await.unwrap();
        sqlx::query(RAISE).bind(oldest).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// Something happens that no engine of this version would write.
    pub(crate) async fn append(&self, body: &str) {
        sqlx::query(APPEND).bind(body).execute(&self.pool).await.unwrap();
    }

    /// Changes it behind the engine's back.
    pub(crate) async fn change(&self, sql: &'static str) {
        let changed = sqlx::query(sql).execute(&self.pool).await.unwrap();
        assert_eq!(changed.rows_affected(), 1, "{sql}");
    }

    /// Keeps what is committed from being given a position.
    pub(crate) async fn hold_sequencer(&self) -> Held {
        let mut db = self.own.connect().await.unwrap();
        sqlx::raw_sql("BEGIN; SELECT 1 FROM job_leases.head FOR UPDATE").execute(&mut db).await.unwrap();
        Held(db)
    }

    /// Checks its timeline.
    pub(crate) async fn verify(&self) -> Result<Verified, VerifyError> {
        engine::verify_postgres(&PostgresUrl::new(self.own.to_url_lossy().as_str())).await
    }

    /// Changes what a line says of `one`.
    pub(crate) async fn rewrite_line(&self, position: i64) {
        let rewrite = "UPDATE job_leases.timeline SET body = replace(body, 'one', 'two') WHERE position = $1";
        self.change_line(rewrite, position).await;
    }

    /// Takes a line away.
    pub(crate) async fn remove_line(&self, position: i64) {
        self.change_line("DELETE FROM job_leases.timeline WHERE position = $1", position).await;
    }

    async fn change_line(&self, sql: &'static str, position: i64) {
        let changed = sqlx::query(sql).bind(position).execute(&self.pool).await.unwrap();
        assert_eq!(changed.rows_affected(), 1);
    }

    /// Keeps everybody else from writing. Time must not pass meanwhile: who has read it and stands before this does not let
    /// go of it.
    pub(crate) async fn hold(&self) -> Held {
        let mut db = self.own.connect().await.unwrap();
        sqlx::raw_sql("BEGIN; LOCK TABLE job_leases.log IN EXCLUSIVE MODE").execute(&mut db).await.unwrap();
        Held(db)
    }

    /// Locks one key, as another node does that decides about it.
    pub(crate) async fn hold_key(&self, key: &str) -> Held {
        let mut db = self.own.connect().await.unwrap();
        sqlx::raw_sql("BEGIN").execute(&mut db).await.unwrap();
        let lock = "SELECT FROM job_leases.keys WHERE lease_key = $1 FOR NO KEY UPDATE";
        sqlx::query(lock).bind(key).fetch_one(&mut db).await.unwrap();
        Held(db)
    }

    /// Holds what a node holds that changes leases, and does nothing, until the database ends it as it ends such a node's.
    pub(crate) async fn stand_still(&self) -> PgConnection {
        let mut db = self.own.connect().await.unwrap();
        sqlx::raw_sql(STAND_STILL).execute(&mut db).await.unwrap();
        db
    }

    /// Where the way to it begins: host and port.
    pub(crate) fn place(&self) -> (String, u16) {
        self.way.begins_at()
    }

    /// How to open it by what leads there, as the node of this number.
    pub(crate) fn options_by(&self, before: SocketAddr, node: u32) -> Options {
        self.way.options((&before.ip().to_string(), before.port()), node)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let server = self.server.clone();
        let end = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        // On a thread of its own: here a runtime is at work, or at its end.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(on_server(&server, end))
        });
        // The test's own outcome counts: that a database is left behind is only said.
        if !matches!(dropping.join(), Ok(Ok(()))) {
            eprintln!("the database {} could not be dropped", self.name);
        }
    }
}

/// One statement beside the tests' databases.
async fn on_server(server: &PgConnectOptions, sql: String) -> Result<(), sqlx::Error> {
    let mut admin = server.connect().await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await?;
    admin.close().await
}

/// What moves the database's time.
pub(crate) struct Dial(PgPool);

impl Dial {
    /// Moves it together with the engine's hands, so that no statement sees one without the other.
    pub(crate) async fn turn(&self, micros: i64, hands: impl FnOnce()) {
        let mut tx = self.0.begin().await.unwrap();
        sqlx::query(STOP_HANDS).execute(&mut *tx).await.unwrap();
        sqlx::query(MOVE_HANDS).bind(micros).execute(&mut *tx).await.unwrap();
        hands();
        tx.commit().await.unwrap();
    }
}

/// A database that somebody keeps everybody else from writing.
pub(crate) struct Held(PgConnection);

impl Held {
    pub(crate) async fn let_go(mut self) {
        sqlx::raw_sql("ROLLBACK").execute(&mut self.0).await.unwrap();
    }
}

impl Fixture {
    /// A second node on the same database, in the same time.
    pub(crate) async fn another(&self) -> Self {
        let engine = Engine::open(self.options()).await.unwrap();
        Self { engine, hands: Arc::clone(&self.hands), database: Arc::clone(&self.database) }
    }
}
