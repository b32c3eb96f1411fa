//! Opening the truth.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use domain::Timestamp;
use futures::future::BoxFuture;
use rand::RngExt as _;
use sqlx::migrate::Migrator;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteExecutor, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, Connection as _};

use crate::clock::{ClockMark, TimeSource};
use crate::error::{OpenError, StoreError};
use crate::timeline::{GENESIS, Hash, Line, Lines, Position};

pub(super) static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/sqlite");

const HAS_MIGRATIONS: &str =
    "-- has migrations\nSELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = '_sqlx_migrations'";
const NEWEST_MIGRATION: &str = "-- newest migration\nSELECT coalesce(max(version), 0) FROM _sqlx_migrations";
const HAS_COMPATIBILITY: &str =
    "-- has compatibility\nSELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'compatibility'";
const OLDEST: &str = "-- oldest program\nSELECT oldest FROM compatibility WHERE id = 1";
const LOAD_HEAD: &str = "-- load head\nSELECT epoch, lived_at, ceiling, boot_id, elapsed, base_position, base_hash \
     FROM head WHERE id = 1";
const INSERT_HEAD: &str = "-- create head\nINSERT INTO head (id, epoch, lived_at, ceiling, boot_id, elapsed, base_hash) \
     VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6)";
const LAST_LINE: &str = "-- last line\nSELECT position, hash FROM timeline ORDER BY position DESC LIMIT 1";
/// That of a line which is held, or of the last that was taken away.
const HASH_AT: &str = "-- hash at\nSELECT coalesce((SELECT hash FROM timeline WHERE position = ?1), \
     (SELECT base_hash FROM head WHERE base_position = ?1))";
const READ_LINES: &str = "-- read lines\nSELECT position, hash, body, (SELECT base_position FROM head) FROM timeline \
     WHERE position > ?1 ORDER BY position LIMIT ?2";
const READ_BACK: &str = "-- read lines backwards\nSELECT position, hash, body FROM timeline WHERE position < ?1 \
     ORDER BY position DESC LIMIT ?2";
const READ_BASE: &str = "-- read base\nSELECT base_position FROM head WHERE id = 1";
const BASE: &str = "-- base\nSELECT epoch, base_position, base_hash FROM head WHERE id = 1";

/// Every statement on the truth in this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![
        HAS_MIGRATIONS,
        NEWEST_MIGRATION,
        HAS_COMPATIBILITY,
        OLDEST,
        LOAD_HEAD,
        INSERT_HEAD,
        LAST_LINE,
        HASH_AT,
        READ_LINES,
        READ_BACK,
        READ_BASE,
        BASE,
    ]
}

pub(super) fn options(path: &Path) -> SqliteConnectOptions {
    plain(path).journal_mode(SqliteJournalMode::Wal)
}

/// Leaves the file's journal as it is.
pub(super) fn plain(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(Duration::from_secs(5))
        .foreign_keys(true)
        .disable_statement_logging()
}

/// The one connection that writes the truth: every commit is flushed before it returns.
pub(super) async fn truth(path: &Path) -> Result<SqliteConnection, OpenError> {
    // The writer checkpoints between batches. Its statement of every size stays prepared.
    let options = options(path)
        .create_if_missing(true)
        .synchronous(SqliteSynchronous::Full)
        .pragma("wal_autocheckpoint", "0")
        .statement_cache_capacity(150);
    let mut db = options.connect().await.map_err(StoreError::from)?;
    let schema = match Schema::of(&mut db).await.map_err(OpenError::from).and_then(|schema| schema.usable(path)) {
        Ok(schema) => schema,
        Err(error) => {
            // The error at hand says more than one of the closing would.
            let _ = db.close().await;
            return Err(error);
        }
    };
    if schema.found <= Schema::known() {
        MIGRATIONS.run(&mut db).await?;
    }
    Ok(db)
}

/// What schema a file has.
#[derive(Clone, Copy)]
pub(super) struct Schema {
    /// The number of the newest migration; 0 for a new file.
    pub(super) found: i64,
    /// The oldest number whose programs may use it.
    oldest: i64,
}

impl Schema {
    /// That of this program.
    pub(super) fn known() -> i64 {
        MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0)
    }

    pub(super) async fn of(db: &mut SqliteConnection) -> Result<Self, StoreError> {
        let exists: i64 = sqlx::query_scalar(HAS_MIGRATIONS).fetch_one(&mut *db).await?;
        let found = if exists == 0 { 0 } else { sqlx::query_scalar(NEWEST_MIGRATION).fetch_one(&mut *db).await? };
        // Before that was noted nothing newer could be used.
        let noted: i64 = sqlx::query_scalar(HAS_COMPATIBILITY).fetch_one(&mut *db).await?;
        let oldest = if noted == 0 { found } else { sqlx::query_scalar(OLDEST).fetch_one(db).await? };
        Ok(Self { found, oldest })
    }

    /// Refuses what this program cannot use.
    fn usable(self, path: &Path) -> Result<Self, OpenError> {
        let (Self { found, oldest }, known) = (self, Self::known());
        if found > known && oldest > known {
            return Err(OpenError::Newer { database: path.display().to_string(), found, oldest, known });
        }
        Ok(self)
    }

    /// Refuses what this program does not know all of.
    pub(super) fn known_whole(self, path: &Path) -> Result<Self, OpenError> {
        Self { oldest: self.found, ..self }.usable(path)
    }
}

/// For a connection that only reads. A backup has no write-ahead log, and cannot be given one by who only reads.
pub(super) fn reading(path: &Path) -> SqliteConnectOptions {
    plain(path).read_only(true)
}

/// A pool that only reads.
pub(super) fn readers(path: &Path, most: u32) -> SqlitePool {
    SqlitePoolOptions::new().max_connections(most).connect_lazy_with(reading(path))
}

/// Where the kept lines begin: up to where retention has taken them away, and the hash of the line there.
pub(super) struct Base {
    pub(super) epoch: String,
    pub(super) position: Position,
    pub(super) hash: Hash,
}

pub(super) async fn base(db: &mut SqliteConnection) -> Result<Base, StoreError> {
    let (epoch, position, stored): (String, i64, Vec<u8>) = sqlx::query_as(BASE).fetch_one(db).await?;
    Ok(Base { epoch, position: Position(position), hash: hash(&stored)? })
}

/// The hash of the line at a position, if that is known: the line is held, or the last that was taken away.
pub(super) async fn hash_at<'c>(db: impl SqliteExecutor<'c>, position: Position) -> Result<Option<Hash>, StoreError> {
    let found: Option<Vec<u8>> = sqlx::query_scalar(HASH_AT).bind(position.0).fetch_one(db).await?;
    found.as_deref().map(hash).transpose()
}

/// The row of `head`, and the last line.
pub(super) struct Head {
    pub(super) epoch: Arc<str>,
    pub(super) mark: ClockMark,
    pub(super) position: Position,
    pub(super) hash: Hash,
    pub(super) base: Position,
}

pub(super) fn hash(bytes: &[u8]) -> Result<Hash, StoreError> {
    bytes.try_into().map_err(|_| StoreError::corrupt("a hash that is not 32 bytes long"))
}

/// Reads the head, making it if the database is new.
pub(super) async fn head(db: &mut SqliteConnection, source: &dyn TimeSource) -> Result<Head, StoreError> {
    type Row = (String, i64, i64, Option<String>, i64, i64, Vec<u8>);
    let row: Option<Row> = sqlx::query_as(LOAD_HEAD).fetch_optional(&mut *db).await?;
    let Some((epoch, lived_at, ceiling, boot_id, elapsed, base, base_hash)) = row else {
        let now = Timestamp::from_micros(source.wall_micros());
        let mark = ClockMark {
            lived_at: now,
            ceiling: now,
            boot_id: source.boot_id(),
            elapsed_micros: source.elapsed_nanos() / 1_000,
        };
        let epoch = new_epoch();
        sqlx::query(INSERT_HEAD)
            .bind(epoch.to_string())
            .bind(now.as_micros())
            .bind(now.as_micros())
            .bind(mark.boot_id.as_deref().map(str::to_owned))
            .bind(mark.elapsed_micros)
            .bind(GENESIS.to_vec())
            .execute(&mut *db)
            .await?;
        return Ok(Head { epoch, mark, position: Position(0), hash: GENESIS, base: Position(0) });
    };
    let last: Option<(i64, Vec<u8>)> = sqlx::query_as(LAST_LINE).fetch_optional(db).await?;
    let (position, last_hash) = last.unwrap_or((base, base_hash));
    Ok(Head {
        epoch: Arc::from(epoch),
        mark: ClockMark {
            lived_at: Timestamp::from_micros(lived_at),
            ceiling: Timestamp::from_micros(ceiling),
            boot_id: boot_id.map(Arc::from),
            elapsed_micros: elapsed,
        },
        position: Position(position),
        hash: hash(&last_hash)?,
        base: Position(base),
    })
}

#[expect(clippy::disallowed_methods, reason = "an epoch must differ from every other; nothing is decided by it")]
pub(super) fn new_epoch() -> Arc<str> {
    Arc::from(format!("{:016x}", rand::rng().random::<u64>()))
}

fn stored_line(position: i64, stored: &[u8], body: String) -> Result<Line, StoreError> {
    Line::stored(Position(position), hash(stored)?, body)
}

/// Stored lines.
pub(super) struct StoredLines(pub(super) SqlitePool);

impl Lines for StoredLines {
    fn read(&self, after: Position, limit: u32) -> BoxFuture<'_, Result<(Vec<Line>, Position), StoreError>> {
        Box::pin(async move {
            let rows: Vec<(i64, Vec<u8>, String, i64)> =
                sqlx::query_as(READ_LINES).bind(after.0).bind(limit).fetch_all(&self.0).await?;
            let base = match rows.first() {
                Some((_, _, _, base)) => *base,
                None => sqlx::query_scalar(READ_BASE).fetch_one(&self.0).await?,
            };
            let lines = rows.into_iter().map(|(position, hash, body, _)| stored_line(position, &hash, body));
            let lines = lines.collect::<Result<_, StoreError>>()?;
            Ok((lines, Position(base)))
        })
    }

    fn read_back(&self, before: Position, limit: u32) -> BoxFuture<'_, Result<Vec<Line>, StoreError>> {
        Box::pin(async move {
            let rows: Vec<(i64, Vec<u8>, String)> =
                sqlx::query_as(READ_BACK).bind(before.0).bind(limit).fetch_all(&self.0).await?;
            rows.into_iter().map(|(position, hash, body)| stored_line(position, &hash, body)).collect()
        })
    }

    fn hash(&self, position: Position) -> BoxFuture<'_, Result<Option<Hash>, StoreError>> {
        Box::pin(hash_at(&self.0, position))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.close())
    }
}
