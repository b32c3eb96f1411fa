//! Opening the read models: as they are if they follow from this timeline, else anew.

use std::path::{Path, PathBuf};

use domain::Timestamp;
use domain::lease::FencingToken;
use futures::future::BoxFuture;
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnection, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _};

use super::files::{beside, file_error};
use super::open::{self, Head};
use super::{kept, project};
use crate::error::{OpenError, StoreError};
use crate::timeline::{Folded, Hash, Position, Projection};

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/sqlite-views");

const NEWEST_MIGRATION: &str = "-- newest migration\nSELECT coalesce(max(version), 0) FROM _sqlx_migrations";
const LOAD_PROGRESS: &str = "-- load progress\nSELECT epoch, applied, hash FROM progress WHERE id = 1";
const INSERT_PROGRESS: &str =
    "-- create progress\nINSERT INTO progress (id, epoch, applied, hash) VALUES (1, ?1, ?2, ?3)";
const HOW_FAR: &str = "-- how far, and how many keys\nSELECT p.applied, c.value FROM progress AS p, counters AS c \
     WHERE p.id = 1 AND c.name = 'keys'";
const GREATEST_TOKEN: &str = "-- greatest token\nSELECT coalesce(max(token), 0) FROM grants";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    let caches = CACHES.map(|(_, sql)| sql);
    [&[NEWEST_MIGRATION, LOAD_PROGRESS, INSERT_PROGRESS, HOW_FAR, GREATEST_TOKEN], &caches[..]].concat()
}

/// The file of the read models.
pub(super) fn path_beside(path: &Path) -> PathBuf {
    beside(path, "-views")
}

/// The read models: the connection that writes them, how far they have come, and the greatest token they know.
pub(super) struct Views {
    pub(super) db: SqliteConnection,
    pub(super) applied: Position,
    pub(super) token: u64,
}

/// How far read models have come, and in what timeline.
pub(super) struct Progress {
    pub(super) epoch: String,
    pub(super) applied: Position,
    /// Of the line there.
    pub(super) hash: Hash,
}

/// Reads how far they have come.
pub(super) async fn progress(db: &mut SqliteConnection) -> Result<Progress, StoreError> {
    let (epoch, applied, hash): (String, i64, Vec<u8>) = sqlx::query_as(LOAD_PROGRESS).fetch_one(db).await?;
    Ok(Progress { epoch, applied: Position(applied), hash: open::hash(&hash)? })
}

/// Opens the read models; makes them anew if they are missing, of another version, or of another database.
///
/// # Errors
/// If they are ahead of the truth, or the files cannot be used.
pub(super) async fn open(path: &Path, head: &Head, truth: &mut SqliteConnection) -> Result<Views, OpenError> {
    let file = path_beside(path);
    if let Some(views) = existing(path, &file, head, truth).await? {
        return Ok(views);
    }
    for suffix in ["", "-wal", "-shm"] {
        let stale = beside(&file, suffix);
        match std::fs::remove_file(&stale) {
            Ok(()) => tracing::warn!(file = %stale.display(), "the read models are rebuilt from the timeline"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(file_error(&stale)(error)),
        }
    }
    let mut db = connect(&file).await?;
    MIGRATIONS.run(&mut db).await?;
    kept::begin_views(&mut db, truth).await?;
    let base = open::base(truth).await?;
    // Last, since models that do not say how far they have come are not believed.
    sqlx::query(INSERT_PROGRESS)
        .bind(base.epoch)
        .bind(base.position.0)
        .bind(base.hash.to_vec())
        .execute(&mut db)
        .await
        .map_err(StoreError::from)?;
    let token = greatest_token(&mut db).await?;
    Ok(Views { db, applied: base.position, token })
}

async fn connect(file: &Path) -> Result<SqliteConnection, OpenError> {
    let options = open::options(file)
        .create_if_missing(true)
        .foreign_keys(false)
        .synchronous(SqliteSynchronous::Normal)
        .pragma("wal_autocheckpoint", "16000");
    Ok(options.connect().await.map_err(StoreError::from)?)
}

async fn existing(
    path: &Path,
    file: &Path,
    head: &Head,
    truth: &mut SqliteConnection,
) -> Result<Option<Views>, OpenError> {
    if !file.exists() {
        return Ok(None);
    }
    // Whatever is wrong with them, they can be made anew.
    let Ok(mut db) = connect(file).await else { return Ok(None) };
    let usable = usable(&mut db, path, head, truth).await;
    if let Ok(Some((applied, token))) = usable {
        return Ok(Some(Views { db, applied, token }));
    }
    // Before anybody touches the files otherwise.
    db.close().await.map_err(StoreError::from)?;
    usable.map(|_| None)
}

/// How far the models have come and the greatest token they know, unless they are to be made anew.
async fn usable(
    db: &mut SqliteConnection,
    path: &Path,
    head: &Head,
    truth: &mut SqliteConnection,
) -> Result<Option<(Position, u64)>, OpenError> {
    let Ok(progress) = progress(db).await else { return Ok(None) };
    if progress.epoch != *head.epoch || !follows(&progress, path, head, truth).await? || !is_of_this_version(db).await {
        return Ok(None);
    }
    Ok(greatest_token(db).await.ok().map(|token| (progress.applied, token)))
}

/// Whether the lines that follow those the models have are all held.
///
/// # Errors
/// If the timeline does not have what the models followed: its end was cut off, or an older copy was put in its place.
/// To make them anew would be to forget the leases in the lines that are missing, and to grant their keys again.
async fn follows(
    progress: &Progress,
    path: &Path,
    head: &Head,
    truth: &mut SqliteConnection,
) -> Result<bool, OpenError> {
    let applied = progress.applied;
    let held = open::hash_at(truth, applied).await?;
    let is_missing = applied > head.position || (applied > head.base && held.is_none());
    if is_missing || held.is_some_and(|held| held != progress.hash) {
        return Err(OpenError::LinesMissing { path: path.to_owned(), views: path_beside(path), applied: applied.0 });
    }
    Ok(held.is_some())
}

/// Whether they are of this version, or could be brought to it: made anew they would lack what retention has taken from the
/// timeline. Those of a newer version can be used if the timeline can, which was seen before.
async fn is_of_this_version(db: &mut SqliteConnection) -> bool {
    let wanted = MIGRATIONS.iter().map(|migration| migration.version).max();
    let found: Result<i64, sqlx::Error> = sqlx::query_scalar(NEWEST_MIGRATION).fetch_one(&mut *db).await;
    let found = found.ok();
    found >= wanted || MIGRATIONS.run(db).await.is_ok()
}

async fn greatest_token(db: &mut SqliteConnection) -> Result<u64, StoreError> {
    let token: i64 = sqlx::query_scalar(GREATEST_TOKEN).fetch_one(db).await?;
    u64::try_from(token).map_err(StoreError::corrupt)
}

/// How much of the file may be kept in memory, in KiB. The pages that a batch touches should find room, or they are written
/// and read again within it; more would only fill up with grants that nobody looks at any more.
const CACHES: [(u64, &str); 3] = [
    (16 << 10, "-- small cache\nPRAGMA cache_size = -16384"),
    (48 << 10, "-- middling cache\nPRAGMA cache_size = -49152"),
    (128 << 10, "-- large cache\nPRAGMA cache_size = -131072"),
];

/// What one key takes up in the tables and indexes that change with it, in bytes, about; and what changing it touches, if
/// no other key is on the same pages.
const KEY_BYTES: u64 = 400;
const KEY_PAGES: u64 = 4 * 4_096;

/// The read models' one writer.
pub(super) struct ViewWriter {
    db: SqliteConnection,
    /// The KiB of its cache, once they are set.
    cache: u64,
}

impl ViewWriter {
    pub(super) const fn new(db: SqliteConnection) -> Self {
        Self { db, cache: 0 }
    }

    async fn write(&mut self, folded: &Folded) -> Result<(), StoreError> {
        // Should an earlier transaction have been left open, nothing of it counts; an error here means that none was.
        let _ = sqlx::query(super::tx::ROLLBACK).execute(&mut self.db).await;
        let (applied, all): (i64, i64) = sqlx::query_as(HOW_FAR).fetch_one(&mut self.db).await?;
        if folded.last.is_some_and(|(last, _)| last.0 <= applied) {
            // Written before, by a commit that failed only to say so.
            return Ok(());
        }
        let changed: usize = folded.stretches.iter().map(|(_, changes)| changes.keys.len()).sum();
        let wanted = (all.unsigned_abs() * KEY_BYTES).min(changed as u64 * KEY_PAGES) / 1_024;
        let [.., largest] = CACHES;
        let (size, sql) = CACHES.into_iter().find(|(size, _)| *size >= wanted).unwrap_or(largest);
        if size != self.cache {
            sqlx::query(sql).execute(&mut self.db).await?;
            self.cache = size;
        }
        project::write(&mut self.db, folded).await
    }
}

impl Projection for ViewWriter {
    fn write<'a>(&'a mut self, folded: &'a Folded) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.write(folded))
    }

    fn make_durable(&mut self) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(project::make_durable(&mut self.db))
    }

    fn forget(
        &mut self,
        ended_before: Timestamp,
        after: Option<FencingToken>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Option<FencingToken>, StoreError>> {
        Box::pin(project::forget(&mut self.db, ended_before, after, limit))
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let Err(error) = self.db.close().await {
                tracing::warn!(%error, "the read models did not close well; the next start makes up for it");
            }
        })
    }
}
