//! A file that the truth of another database is written to, or that is made ready to be served in its place.

use std::path::Path;

use domain::Timestamp;
use sqlx::sqlite::{SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _};

use super::bulk::Bulk;
use super::files;
use super::open::{self, MIGRATIONS, Schema};
use super::source::{AnswerRow, KeptRow, LinkRow, SessionRow, TokenRow};
use super::tx::append;
use super::verify;
use crate::clock::AHEAD;
use crate::error::{OpenError, StoreError};
use crate::timeline::{Hash, Line, Position};

const COPY: &str = "-- backup: the file\nVACUUM INTO ?1";
const BEGIN: &str = "BEGIN";
const COMMIT: &str = "COMMIT";
const HEAD: &str = "-- backup: head\nINSERT INTO head (id, epoch, lived_at, ceiling, elapsed, base_position, base_hash) \
     VALUES (1, ?1, ?2, ?3, 0, ?4, ?5)";
const FORGET: &str = "-- backup: lines that are gone\nDELETE FROM timeline WHERE position <= ?1";
static KEPT: Bulk<4> =
    Bulk::new("-- backup: kept keys\nINSERT INTO kept_keys (lease_key, state, alive_until) VALUES", 3, "");
static TOKENS: Bulk<4> = Bulk::new(
    "-- backup: tokens\nINSERT INTO tokens (token_id, hash, name, role, prefixes, created_at, expires_at, revoked_at) VALUES",
    8,
    "",
);
static SESSIONS: Bulk<4> = Bulk::new(
    "-- backup: sessions\nINSERT INTO sessions (session_id, hash, name, role, prefixes, token_id, created_at, expires_at, \
     closed_at) VALUES",
    9,
    "",
);
static LINKS: Bulk<4> =
    Bulk::new("-- backup: links\nINSERT INTO sign_in_links (hash, created_at, expires_at) VALUES", 3, "");
static ANSWERS: Bulk<4> = Bulk::new(
    "-- backup: answers\nINSERT INTO idempotency (caller, key, fingerprint, answer, created_at) VALUES",
    5,
    "",
);
const NEW_EPOCH: &str = "-- restore: epoch\nUPDATE head SET epoch = ?1 WHERE id = 1";
/// One that was used since the backup was taken must not be good once more.
const FORGET_LINKS: &str = "-- restore: links\nDELETE FROM sign_in_links";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    let bulk = [&KEPT, &TOKENS, &SESSIONS, &LINKS, &ANSWERS].into_iter().flat_map(|bulk| bulk.all());
    bulk.chain([HEAD, FORGET, NEW_EPOCH, FORGET_LINKS]).collect()
}

/// Copies the truth in a file, whether or not a server has it open, as it is at one moment; and tells how far the read models beside
/// it had come by then, and whether it is of an older version.
///
/// # Errors
/// If it was used by a newer version, is none of ours, or cannot be read.
pub(crate) async fn copy_file(from: &Path, to: &Path) -> Result<(Option<(Position, Hash)>, bool), OpenError> {
    files::must_exist(from)?;
    // Before the lines, which only grow meanwhile.
    let followed = verify::followed(from).await;
    let mut db = open::reading(from).connect().await.map_err(StoreError::from)?;
    let copied = copy(&mut db, from, to).await;
    // It was only read.
    let _ = db.close().await;
    let (epoch, found) = copied?;
    let followed = followed.filter(|progress| progress.epoch == epoch);
    Ok((followed.map(|progress| (progress.applied, progress.hash)), found < Schema::known()))
}

/// Copies it, and gives the epoch and the schema.
async fn copy(db: &mut SqliteConnection, from: &Path, to: &Path) -> Result<(String, i64), OpenError> {
    let found = Schema::of(db).await?.known_whole(from)?.found;
    if found == 0 {
        return Err(OpenError::NotOurs(from.to_owned()));
    }
    let epoch = open::base(db).await?.epoch;
    let name = to.to_str().ok_or_else(|| files::file_error(to)(std::io::ErrorKind::InvalidFilename.into()))?;
    sqlx::query(COPY).bind(name.to_owned()).execute(db).await.map_err(StoreError::from)?;
    Ok((epoch, found))
}

/// Brings a copy to this version.
///
/// # Errors
/// If a migration fails.
pub(crate) async fn bring_up(path: &Path) -> Result<(), OpenError> {
    let mut db = open::plain(path).connect().await.map_err(StoreError::from)?;
    let done = MIGRATIONS.run(&mut db).await;
    db.close().await.map_err(StoreError::from)?;
    Ok(done?)
}

/// Makes a copy a database of its own: ids of events that the other gave out are none of this one.
///
/// # Errors
/// If it cannot be written.
pub(crate) async fn begin_anew(path: &Path) -> Result<(), StoreError> {
    let mut db = open::plain(path).connect().await?;
    sqlx::query(NEW_EPOCH).bind(open::new_epoch().to_string()).execute(&mut db).await?;
    sqlx::query(FORGET_LINKS).execute(&mut db).await?;
    db.close().await?;
    Ok(())
}

/// A new file, of which nothing counts until it is finished.
pub(crate) struct Target(SqliteConnection);

impl Target {
    pub(crate) async fn create(path: &Path) -> Result<Self, OpenError> {
        // Whoever makes it flushes it at the end, and throws it away if it does not come to that.
        let options = open::plain(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Off)
            .synchronous(SqliteSynchronous::Off);
        let mut db = options.connect().await.map_err(StoreError::from)?;
        MIGRATIONS.run(&mut db).await?;
        sqlx::query(BEGIN).execute(&mut db).await.map_err(StoreError::from)?;
        Ok(Self(db))
    }

    /// Lines that follow those before.
    pub(crate) async fn lines(&mut self, lines: &[Line]) -> Result<(), StoreError> {
        Ok(append(&mut self.0, lines).await?)
    }

    /// Takes away lines up to this one.
    pub(crate) async fn forget(&mut self, up_to: Position) -> Result<(), StoreError> {
        sqlx::query(FORGET).bind(up_to.0).execute(&mut self.0).await?;
        Ok(())
    }

    /// Where the lines begin, when the database was last served, and a time that it may have told.
    pub(crate) async fn head(
        &mut self,
        epoch: &str,
        (base, hash): (Position, Hash),
        lived_at: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let ceiling = lived_at.max(now) + AHEAD;
        let query = sqlx::query(HEAD).bind(epoch.to_owned()).bind(lived_at.as_micros());
        let query = query.bind(ceiling.as_micros()).bind(base.0).bind(hash.to_vec());
        query.execute(&mut self.0).await?;
        Ok(())
    }

    pub(crate) async fn kept(&mut self, rows: &[KeptRow]) -> Result<(), StoreError> {
        for (sql, rows) in KEPT.statements(rows) {
            let query = rows.iter().fold(sqlx::query(sql), |query, (key, state, alive)| {
                query.bind(key.clone()).bind(state.clone()).bind(*alive)
            });
            query.execute(&mut self.0).await?;
        }
        Ok(())
    }

    pub(crate) async fn access(
        &mut self,
        tokens: &[TokenRow],
        sessions: &[SessionRow],
        links: &[LinkRow],
    ) -> Result<(), StoreError> {
        for (sql, rows) in TOKENS.statements(tokens) {
            let query = rows.iter().cloned().fold(sqlx::query(sql), |query, row| {
                let (id, hash, name, role, prefixes, created_at, expires_at, revoked_at) = row;
                let query = query.bind(id).bind(hash).bind(name).bind(role).bind(prefixes);
                query.bind(created_at).bind(expires_at).bind(revoked_at)
            });
            query.execute(&mut self.0).await?;
        }
        for (sql, rows) in SESSIONS.statements(sessions) {
            let query = rows.iter().cloned().fold(sqlx::query(sql), |query, row| {
                let (id, hash, name, role, prefixes, token_id, created_at, expires_at, closed_at) = row;
                let query = query.bind(id).bind(hash).bind(name).bind(role).bind(prefixes).bind(token_id);
                query.bind(created_at).bind(expires_at).bind(closed_at)
            });
            query.execute(&mut self.0).await?;
        }
        for (sql, rows) in LINKS.statements(links) {
            let query = rows.iter().cloned().fold(sqlx::query(sql), |query, (hash, created_at, expires_at)| {
                query.bind(hash).bind(created_at).bind(expires_at)
            });
            query.execute(&mut self.0).await?;
        }
        Ok(())
    }

    pub(crate) async fn answers(&mut self, rows: &[AnswerRow]) -> Result<(), StoreError> {
        for (sql, rows) in ANSWERS.statements(rows) {
            let query = rows.iter().cloned().fold(sqlx::query(sql), |query, (caller, key, fingerprint, answer, at)| {
                query.bind(caller).bind(key).bind(fingerprint).bind(answer).bind(at)
            });
            query.execute(&mut self.0).await?;
        }
        Ok(())
    }

    /// That was all.
    pub(crate) async fn finish(mut self) -> Result<(), StoreError> {
        sqlx::query(COMMIT).execute(&mut self.0).await?;
        self.0.close().await?;
        Ok(())
    }
}
