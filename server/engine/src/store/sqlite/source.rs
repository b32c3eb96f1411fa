//! The truth in a file that nobody changes meanwhile, read from end to end: to be copied, or restored.

use std::path::Path;

use domain::Timestamp;
use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions as _, Connection as _};

use super::files;
use super::open::{self, Schema, StoredLines};
use crate::error::{OpenError, StoreError};
use crate::timeline::{Hash, Line, Lines as _, Position};

const KEPT: &str = "-- copy: kept keys\nSELECT lease_key, state, alive_until FROM kept_keys WHERE lease_key > ?1 \
     ORDER BY lease_key LIMIT ?2";
const TOKENS: &str =
    "-- copy: tokens\nSELECT token_id, hash, name, role, prefixes, created_at, expires_at, revoked_at FROM tokens";
const SESSIONS: &str = "-- copy: sessions\nSELECT session_id, hash, name, role, prefixes, token_id, created_at, expires_at, \
     closed_at FROM sessions";
const LINKS: &str = "-- copy: links\nSELECT hash, created_at, expires_at FROM sign_in_links";
const IDEMPOTENCY: &str = "-- copy: idempotency\nSELECT caller, key, fingerprint, answer, created_at FROM idempotency \
     WHERE (caller, key) > (?1, ?2) ORDER BY caller, key LIMIT ?3";
const LIVED_AT: &str = "-- copy: mark\nSELECT lived_at FROM head WHERE id = 1";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![KEPT, TOKENS, SESSIONS, LINKS, IDEMPOTENCY, LIVED_AT]
}

/// A row of `tokens`.
pub(crate) type TokenRow = (String, Vec<u8>, String, String, String, i64, Option<i64>, Option<i64>);
/// A row of `sessions`.
pub(crate) type SessionRow = (String, Vec<u8>, String, String, String, Option<String>, i64, i64, Option<i64>);
/// A row of `sign_in_links`.
pub(crate) type LinkRow = (Vec<u8>, i64, i64);
/// A row of `idempotency`.
pub(crate) type AnswerRow = (String, String, Vec<u8>, String, i64);
/// A row of `kept_keys`.
pub(crate) type KeptRow = (String, String, Option<i64>);

/// A file with the truth.
pub(crate) struct Source {
    db: SqliteConnection,
    lines: StoredLines,
    pub(crate) epoch: String,
    pub(crate) base: (Position, Hash),
    /// When it was last served.
    pub(crate) lived_at: Timestamp,
    /// Held until the file is closed.
    locks: Option<files::Locks>,
}

impl Source {
    /// Opens a file that is of this version.
    ///
    /// # Errors
    /// If it is not there, of another version, or cannot be read.
    pub(crate) async fn open(path: &Path) -> Result<Self, OpenError> {
        files::must_exist(path)?;
        let mut db = open::reading(path).connect().await.map_err(StoreError::from)?;
        Schema::of(&mut db).await?.known_whole(path)?;
        let open::Base { epoch, position, hash } = open::base(&mut db).await?;
        let lived_at: i64 = sqlx::query_scalar(LIVED_AT).fetch_one(&mut db).await.map_err(StoreError::from)?;
        let lines = StoredLines(open::readers(path, 1));
        let lived_at = Timestamp::from_micros(lived_at);
        Ok(Self { db, lines, epoch, base: (position, hash), lived_at, locks: None })
    }

    /// Opens the file of a server that is stopped, and keeps every other away; brings it to this version first.
    ///
    /// # Errors
    /// If it is not there, is being served, or cannot be used.
    pub(crate) async fn open_alone(path: &Path) -> Result<Self, OpenError> {
        files::must_exist(path)?;
        let path = &files::resolve(path)?;
        let locks = files::lock(path)?;
        open::truth(path).await?.close().await.map_err(StoreError::from)?;
        Ok(Self { locks: Some(locks), ..Self::open(path).await? })
    }

    /// Lines after a position, in order.
    pub(crate) async fn lines(&self, after: Position, limit: u32) -> Result<Vec<Line>, StoreError> {
        Ok(self.lines.read(after, limit).await?.0)
    }

    /// What retention has kept, after a name.
    pub(crate) async fn kept(&mut self, after: &str, limit: u32) -> Result<Vec<KeptRow>, StoreError> {
        Ok(sqlx::query_as(KEPT).bind(after.to_owned()).bind(limit).fetch_all(&mut self.db).await?)
    }

    pub(crate) async fn tokens(&mut self) -> Result<Vec<TokenRow>, StoreError> {
        Ok(sqlx::query_as(TOKENS).fetch_all(&mut self.db).await?)
    }

    pub(crate) async fn sessions(&mut self) -> Result<Vec<SessionRow>, StoreError> {
        Ok(sqlx::query_as(SESSIONS).fetch_all(&mut self.db).await?)
    }

    pub(crate) async fn links(&mut self) -> Result<Vec<LinkRow>, StoreError> {
        Ok(sqlx::query_as(LINKS).fetch_all(&mut self.db).await?)
    }

    /// Answers after one of these names.
    pub(crate) async fn answers(&mut self, after: (&str, &str), limit: u32) -> Result<Vec<AnswerRow>, StoreError> {
        let query = sqlx::query_as(IDEMPOTENCY).bind(after.0.to_owned()).bind(after.1.to_owned()).bind(limit);
        Ok(query.fetch_all(&mut self.db).await?)
    }

    /// Lets go of it.
    pub(crate) async fn close(self) {
        self.lines.close().await;
        // It was only read.
        let _ = self.db.close().await;
        drop(self.locks);
    }
}
