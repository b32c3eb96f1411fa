//! Opening the database: its schema, brought up to date once whichever node starts first.

use domain::Timestamp;
use sqlx::PgConnection;
use sqlx::migrate::Migrator;

use super::time::{Told, told_columns};
use super::tx::UNSEEN;
use super::via::Via;
use crate::error::{OpenError, StoreError};
use crate::timeline::{Hash, Position};

/// Held while the schema is brought up to date, and by this transaction alone: the name as a number.
pub(super) const LOCK: &str = "-- lock migrations\nSELECT pg_advisory_xact_lock(7411074110)";
const MAKE_SCHEMA: &str = "CREATE SCHEMA IF NOT EXISTS job_leases";
const MAKE_VIEWS_SCHEMA: &str = "CREATE SCHEMA IF NOT EXISTS job_leases_views";
const FORGET: &str = "DEALLOCATE ALL";
/// That something is there already is no news.
const QUIET: &str = "SET LOCAL client_min_messages = warning";
const HAS_MIGRATIONS: &str = "-- has migrations\nSELECT to_regclass('job_leases.migrations') IS NOT NULL, \
     to_regclass('job_leases.compatibility') IS NOT NULL";
const NEWEST_MIGRATION: &str =
    "-- newest migration\nSELECT coalesce(max(version), 0)::bigint FROM job_leases.migrations";
const OLDEST: &str = "-- oldest program\nSELECT oldest FROM job_leases.compatibility WHERE id = 1";
/// Those at work that do not know the schema up to a number; before that was noted none knew more than the fifth.
const OLDER_NODES: &str = "-- older nodes\nSELECT node FROM job_leases.nodes \
     WHERE coalesce(schema, 5) < $1 AND seen_at > job_leases.clock() - $2 ORDER BY node";
const LOAD_HEAD: &str = concat!(
    "-- load head\nSELECT h.epoch, h.position, h.hash, p.applied, ",
    told_columns!(),
    " FROM job_leases.head AS h, job_leases_views.progress AS p, job_leases.service AS s \
     WHERE h.id = 1 AND p.id = 1 AND s.id = 1"
);

/// After an older backup was put back, tokens must go on above all that were ever given out: above the time, since no more than one
/// is given out each microsecond. Only if it is a second behind, so that nobody draws beyond it meanwhile.
const RAISE_TOKENS: &str = "-- raise tokens\nSELECT setval('job_leases.tokens_given', job_leases.clock()) \
     FROM job_leases.tokens_given WHERE last_value < job_leases.clock() - 1000000";

/// Every statement of this file that can be prepared in a database that is up to date, for the test that does.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![LOCK, HAS_MIGRATIONS, NEWEST_MIGRATION, OLDEST, OLDER_NODES, LOAD_HEAD, RAISE_TOKENS]
}

fn migrations() -> [Migrator; 2] {
    let mut truth = sqlx::migrate!("../../migrations/postgres");
    let mut views = sqlx::migrate!("../../migrations/postgres-views");
    truth.dangerous_set_table_name("job_leases.migrations");
    views.dangerous_set_table_name("job_leases_views.migrations");
    // A lock of the session would be lost behind a pooler; the transaction's lock serves.
    truth.set_locking(false);
    views.set_locking(false);
    // A newer version may have run more of them, which this one can live with.
    truth.set_ignore_missing(true);
    views.set_ignore_missing(true);
    [truth, views]
}

/// The newest schema that this program knows.
pub(super) fn known() -> i64 {
    newest(&sqlx::migrate!("../../migrations/postgres"))
}

fn newest(migrator: &Migrator) -> i64 {
    migrator.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// The schema of a database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schema {
    /// The number of the newest migration; 0 before the first.
    pub(super) found: i64,
    /// The oldest number whose programs may use it.
    oldest: i64,
}

impl Schema {
    pub(super) async fn of(via: &Via, db: &mut PgConnection) -> Result<Self, StoreError> {
        let (exists, noted): (bool, bool) = via.query_as(HAS_MIGRATIONS).fetch_one(&mut *db).await?;
        let found = if exists { via.query_scalar(NEWEST_MIGRATION).fetch_one(&mut *db).await? } else { 0 };
        // Before that was noted nothing newer could be used.
        let oldest = if noted { via.query_scalar(OLDEST).fetch_one(db).await? } else { found };
        Ok(Self { found, oldest })
    }

    /// Refuses what a program that knows the schema up to `known` cannot use.
    fn usable(self, known: i64) -> Result<Self, OpenError> {
        let Self { found, oldest } = self;
        if found > known && oldest > known {
            return Err(OpenError::Newer { database: "the database".to_owned(), found, oldest, known });
        }
        Ok(self)
    }

    /// Refuses what this program does not know all of.
    pub(super) fn known_whole(self) -> Result<Self, OpenError> {
        Self { oldest: self.found, ..self }.usable(known())
    }
}

/// Why a node that is at work cannot go on, if the oldest program that may use the database is this one now.
pub(super) fn outdated(oldest: i64) -> Option<OpenError> {
    Schema { found: oldest, oldest }.usable(known()).err()
}

/// Brings the schema up to date, or refuses one that this program cannot use.
pub(super) async fn migrate(via: &Via) -> Result<Schema, OpenError> {
    migrate_to(via, migrations()).await
}

async fn migrate_to(via: &Via, [truth, views]: [Migrator; 2]) -> Result<Schema, OpenError> {
    // As a transaction that the migrations know of: theirs lie within it.
    let mut tx = via.pool().begin().await.map_err(StoreError::from)?;
    if via.is_pooled() {
        // What prepares statements below does so under names that others on this connection may have taken.
        sqlx::raw_sql(FORGET).execute(&mut *tx).await.map_err(StoreError::from)?;
    }
    sqlx::raw_sql(QUIET).execute(&mut *tx).await.map_err(StoreError::from)?;
    via.query(LOCK).execute(&mut *tx).await.map_err(StoreError::from)?;
    let before = Schema::of(via, &mut tx).await?.usable(newest(&truth))?;
    if before.found == 0 {
        for sql in [MAKE_SCHEMA, MAKE_VIEWS_SCHEMA] {
            sqlx::raw_sql(sql).execute(&mut *tx).await.map_err(StoreError::from)?;
        }
    }
    truth.run(&mut *tx).await?;
    views.run(&mut *tx).await?;
    let schema = Schema::of(via, &mut tx).await?;
    if schema.oldest > before.oldest {
        let older = via.query_scalar(OLDER_NODES).bind(schema.oldest).bind(UNSEEN).fetch_all(&mut *tx).await;
        let nodes: Vec<i64> = older.map_err(StoreError::from)?;
        if !nodes.is_empty() {
            return Err(OpenError::OlderNodes { oldest: schema.oldest, nodes });
        }
    }
    if via.is_pooled() {
        sqlx::raw_sql(FORGET).execute(&mut *tx).await.map_err(StoreError::from)?;
    }
    tx.commit().await.map_err(StoreError::from)?;
    Ok(schema)
}

/// Where the timeline ends, how far the read models have come, and the time.
pub(super) struct Head {
    pub(super) epoch: String,
    pub(super) position: Position,
    pub(super) applied: Position,
    pub(super) now: Timestamp,
}

pub(super) async fn head(via: &Via, db: &mut PgConnection) -> Result<Head, StoreError> {
    via.query(RAISE_TOKENS).execute(&mut *db).await?;
    type Row = (String, i64, Vec<u8>, i64, i64, i64, i64, bool);
    let (epoch, position, hash_there, applied, clock, ahead, since, is_good): Row =
        via.query_as(LOAD_HEAD).fetch_one(db).await?;
    hash(&hash_there)?;
    let now = Told::new((clock, ahead, since, is_good)).time();
    Ok(Head { epoch, position: Position(position), applied: Position(applied), now })
}

pub(super) fn hash(bytes: &[u8]) -> Result<Hash, StoreError> {
    bytes.try_into().map_err(|_| StoreError::corrupt("a hash that is not 32 bytes long"))
}

#[cfg(test)]
mod tests {
    use sqlx::SqlSafeStr as _;
    use sqlx::migrate::{Migration, MigrationType};

    use super::*;
    use crate::store::postgres::{PostgresUrl, life, testing};

    /// The migrations of a version that knows one more.
    fn later(sql: &'static str) -> [Migrator; 2] {
        let [mut truth, views] = migrations();
        let later = Migration::new(9999, "later".into(), MigrationType::Simple, sql.into_sql_str(), false);
        truth.migrations.to_mut().push(later);
        [truth, views]
    }

    #[tokio::test]
    async fn what_nodes_at_work_could_not_live_with_is_not_done_before_they_are_stopped() {
        let database = testing::database().await;
        let (via, _) = PostgresUrl::new(&database.url).ways().unwrap();
        let before = migrate(&via).await.unwrap();
        let mut tx = via.begin().await.unwrap();
        let node = life::enter(&via, &mut tx, Timestamp::from_micros(0)).await.unwrap();
        tx.commit().await.unwrap();
        let raise =
            || later("CREATE TABLE job_leases.later (id bigint); UPDATE job_leases.compatibility SET oldest = 9999");
        let error = migrate_to(&via, raise()).await.unwrap_err();
        assert!(matches!(&error, OpenError::OlderNodes { oldest: 9999, nodes } if nodes == &[node]), "{error}");
        assert!(error.to_string().contains("stop them first"), "{error}");
        // Nothing of it happened.
        let mut tx = via.begin().await.unwrap();
        assert_eq!(Schema::of(&via, &mut tx).await.unwrap().found, before.found);
        tx.commit().await.unwrap();
        life::leave(&via, node).await.unwrap();
        assert_eq!(migrate_to(&via, raise()).await.unwrap().found, 9999);
        let error = migrate(&via).await.unwrap_err();
        assert!(matches!(error, OpenError::Newer { found: 9999, oldest: 9999, .. }), "{error}");
    }

    #[tokio::test]
    async fn what_they_can_live_with_is_done_while_they_are_at_work() {
        let database = testing::database().await;
        let (via, _) = PostgresUrl::new(&database.url).ways().unwrap();
        migrate(&via).await.unwrap();
        let mut tx = via.begin().await.unwrap();
        life::enter(&via, &mut tx, Timestamp::from_micros(0)).await.unwrap();
        tx.commit().await.unwrap();
        migrate_to(&via, later("CREATE TABLE job_leases.later (id bigint)")).await.unwrap();
        assert_eq!(migrate(&via).await.unwrap().found, 9999);
    }
}
