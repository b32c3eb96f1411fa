//! A PostgreSQL database of a test's own, on a server that the environment names.

use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};
use tokio::time::sleep;

use crate::history::Line;
use crate::process::PATIENCE;
use crate::server::named_server;

/// A name that no other run has, were it on another machine.
const NAME: &str = "SELECT 'job_leases_test_' || replace(gen_random_uuid()::text, '-', '')";

/// Cuts connections of nodes: all of them, or those in the middle of a transaction.
const CUT: &str = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity \
     WHERE datname = $1 AND application_name = 'job-leases' AND ($2 OR xact_start IS NOT NULL)";

/// How much was not moved yet from the log to the timeline.
const UNSEQUENCED: &str = "SELECT count(*) FROM job_leases.log";

const LEAVE_BEHIND: &str = "WITH newer AS (INSERT INTO job_leases.migrations (version, description, success, checksum, \
     execution_time) VALUES (9999, 'later', true, '', 0)) UPDATE job_leases.compatibility SET oldest = 9999";

/// All that the product asks goes by `job_leases.clock()`. Being no single expression, this is not made part of the
/// statements that call it: each call sees what was set by then.
const TAKE_CLOCK: &str = "
CREATE SCHEMA IF NOT EXISTS job_leases_test;
CREATE TABLE IF NOT EXISTS job_leases_test.hands (id integer PRIMARY KEY, ahead bigint NOT NULL);
INSERT INTO job_leases_test.hands (id, ahead) VALUES (1, 0) ON CONFLICT DO NOTHING;
CREATE OR REPLACE FUNCTION job_leases.clock() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS
    'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + (SELECT ahead FROM job_leases_test.hands)'";
const MOVE_CLOCK: &str = "UPDATE job_leases_test.hands SET ahead = ahead + $1";

const TIMELINE: &str = "SELECT position, hash, body FROM job_leases.timeline ORDER BY position";

/// A database that is dropped at the end.
pub(crate) struct Postgres {
    name: String,
    /// In the database that is not the tests'.
    server: PgConnectOptions,
    is_left: bool,
}

impl Postgres {
    /// On the server that the environment names.
    pub(crate) async fn new() -> Self {
        Self::on(named_server()).await
    }

    pub(crate) async fn on(server: PgConnectOptions) -> Self {
        let mut admin = server.connect().await.unwrap();
        let name: String = sqlx::query_scalar(NAME).fetch_one(&mut admin).await.unwrap();
        // Nobody can be connected to this template, which would be in the way.
        let create = format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut admin).await.unwrap();
        admin.close().await.unwrap();
        Self { name, server, is_left: false }
    }

    /// One that goes with its server.
    pub(crate) fn of(server: PgConnectOptions, name: &str) -> Self {
        Self { name: name.to_owned(), server, is_left: true }
    }

    fn own(&self) -> PgConnectOptions {
        self.server.clone().database(&self.name)
    }

    /// What a node is told to serve.
    pub(crate) fn url(&self) -> String {
        self.own().to_url_lossy().to_string()
    }

    /// The same, by way of a pooler that listens on this port of this machine.
    pub(crate) fn url_by_pooler(&self, port: u16) -> String {
        let mut url = self.own().host("127.0.0.1").port(port).to_url_lossy();
        url.query_pairs_mut().append_pair("pgbouncer", "true");
        url.to_string()
    }

    async fn connect(&self) -> PgConnection {
        self.own().connect().await.unwrap()
    }

    /// Takes its clock in hand, unless it was taken before: from now on it runs ahead of the true time by so much as it is
    /// set to.
    pub(crate) async fn take_clock(&self) {
        let mut admin = self.connect().await;
        sqlx::raw_sql(TAKE_CLOCK).execute(&mut admin).await.unwrap();
        admin.close().await.unwrap();
    }

    /// Moves its clock, at once for all who ask after this.
    pub(crate) async fn move_clock(&self, micros: i64) {
        let mut admin = self.connect().await;
        sqlx::query(MOVE_CLOCK).bind(micros).execute(&mut admin).await.unwrap();
        admin.close().await.unwrap();
    }

    /// How long a commit takes now.
    pub(crate) async fn commit_time(&self) -> Result<Duration, sqlx::Error> {
        let mut admin = self.own().connect().await?;
        let began = Instant::now();
        sqlx::query(MOVE_CLOCK).bind(0).execute(&mut admin).await?;
        let time = began.elapsed();
        admin.close().await?;
        Ok(time)
    }

    /// Cuts the connections of all nodes, or those in the middle of a transaction; how many.
    pub(crate) async fn cut(&self, all: bool) -> i64 {
        let mut admin = self.connect().await;
        let cut = sqlx::query_scalar(CUT).bind(&self.name).bind(all).fetch_one(&mut admin).await.unwrap();
        admin.close().await.unwrap();
        cut
    }

    /// Waits until all that is committed is in the timeline, which takes a node that lives.
    pub(crate) async fn sequenced(&self) {
        let mut admin = self.connect().await;
        let began = Instant::now();
        loop {
            let left: i64 = sqlx::query_scalar(UNSEQUENCED).fetch_one(&mut admin).await.unwrap();
            if left == 0 {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{left} lines have not come to the timeline");
            sleep(Duration::from_millis(2)).await;
        }
        admin.close().await.unwrap();
    }

    /// A newer version has made it unusable for this one.
    pub(crate) async fn leave_behind(&self) {
        let mut admin = self.connect().await;
        sqlx::query(LEAVE_BEHIND).execute(&mut admin).await.unwrap();
        admin.close().await.unwrap();
    }

    /// The timeline as it stands.
    pub(crate) async fn timeline(&self) -> Vec<Line> {
        let mut admin = self.connect().await;
        let rows: Vec<(i64, Vec<u8>, String)> = sqlx::query_as(TIMELINE).fetch_all(&mut admin).await.unwrap();
        admin.close().await.unwrap();
        rows.into_iter().map(|(position, hash, body)| Line { position, hash, body }).collect()
    }

    /// Leaves it to its server, which goes with it.
    pub(crate) fn leave(&mut self) {
        self.is_left = true;
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        let server = self.server.clone();
        let end = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        let drop = async move {
            let mut admin = server.connect().await?;
            sqlx::raw_sql(AssertSqlSafe(end)).execute(&mut admin).await?;
            admin.close().await
        };
        // On a thread of its own: here a runtime is at work, or at its end.
        let dropping = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(drop)
        });
        // The test's own outcome counts: that a database is left behind is only said.
        if !matches!(dropping.join(), Ok(Ok(()))) {
            eprintln!("the database {} could not be dropped", self.name);
        }
    }
}
