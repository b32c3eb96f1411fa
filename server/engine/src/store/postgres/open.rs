//! Opening the database: its schema, brought up to date once whichever node starts first.

use domain::Timestamp;
use sqlx::PgConnection;
use sqlx::migrate::Migrator;

use super::time::{Told, told_columns};
use super::via::Via;
use crate::error::{OpenError, StoreError};
use crate::timeline::{Hash, Position};

/// Held while the schema is brought up to date, and by this transaction alone: the name as a number.
const LOCK: &str = "-- lock migrations\nSELECT pg_advisory_xact_lock(7411074110)";
const MAKE_SCHEMA: &str = "CREATE SCHEMA IF NOT EXISTS job_leases";
const MAKE_VIEWS_SCHEMA: &str = "CREATE SCHEMA IF NOT EXISTS job_leases_views";
const FORGET: &str = "DEALLOCATE ALL";
/// That something is there already is no news.
const QUIET: &str = "SET LOCAL client_min_messages = warning";
const HAS_MIGRATIONS: &str = "-- has migrations\nSELECT to_regclass('job_leases.migrations') IS NOT NULL";
const NEWEST_MIGRATION: &str =
    "-- newest migration\nSELECT coalesce(max(version), 0)::bigint FROM job_leases.migrations";
const LOAD_HEAD: &str = concat!(
    "-- load head\nSELECT h.epoch, h.position, h.hash, p.applied, ",
    told_columns!(),
    " FROM job_leases.head AS h, job_leases_views.progress AS p, job_leases.service AS s \
     WHERE h.id = 1 AND p.id = 1 AND s.id = 1"
);

/// After an older backup was put back, tokens must go on above all that were ever given out: above the time, since no more than one
/// is given out each microsecond. Only if it is far behind, so that nobody draws beyond it meanwhile.
const RAISE_TOKENS: &str = "-- raise tokens\nSELECT setval('job_leases.tokens_given', job_leases.clock()) \
     FROM job_leases.tokens_given WHERE last_value < job_leases.clock() - 10000000";

/// Every statement of this file that can be prepared in a database that is up to date, for the test that does.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![LOCK, HAS_MIGRATIONS, NEWEST_MIGRATION, LOAD_HEAD, RAISE_TOKENS]
}

fn migrations() -> [Migrator; 2] {
    let mut truth = sqlx::migrate!("../../migrations/postgres");
    let mut views = sqlx::migrate!("../../migrations/postgres-views");
    truth.dangerous_set_table_name("job_leases.migrations");
    views.dangerous_set_table_name("job_leases_views.migrations");
    // A lock of the session would be lost behind a pooler; the transaction's lock serves.
    truth.set_locking(false);
    views.set_locking(false);
    [truth, views]
}

/// Brings the schema up to date, or refuses a newer one.
pub(super) async fn migrate(via: &Via) -> Result<(), OpenError> {
    // As a transaction that the migrations know of: theirs lie within it.
    let mut tx = via.pool().begin().await.map_err(StoreError::from)?;
    let [truth, views] = migrations();
    if via.is_pooled() {
        // What prepares statements below does so under names that others on this connection may have taken.
        sqlx::raw_sql(FORGET).execute(&mut *tx).await.map_err(StoreError::from)?;
    }
    sqlx::raw_sql(QUIET).execute(&mut *tx).await.map_err(StoreError::from)?;
    via.query(LOCK).execute(&mut *tx).await.map_err(StoreError::from)?;
    let exists: bool = via.query_scalar(HAS_MIGRATIONS).fetch_one(&mut *tx).await.map_err(StoreError::from)?;
    if exists {
        let known = truth.iter().map(|migration| migration.version).max().unwrap_or(0);
        let found: i64 = via.query_scalar(NEWEST_MIGRATION).fetch_one(&mut *tx).await.map_err(StoreError::from)?;
        if found > known {
            return Err(OpenError::NewerDatabase { found, known });
        }
    } else {
        for sql in [MAKE_SCHEMA, MAKE_VIEWS_SCHEMA] {
            sqlx::raw_sql(sql).execute(&mut *tx).await.map_err(StoreError::from)?;
        }
    }
    truth.run(&mut *tx).await?;
    views.run(&mut *tx).await?;
    if via.is_pooled() {
        sqlx::raw_sql(FORGET).execute(&mut *tx).await.map_err(StoreError::from)?;
    }
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
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
