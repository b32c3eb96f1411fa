//! A database that nobody serves, read from end to end: to be copied.

use std::path::Path;
use std::sync::Arc;

use domain::Timestamp;
use domain::lease::KeyState;
use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions as _, Connection as _};

use super::open::{self, StoredLines};
use super::{SqliteStore, rows};
use crate::clock::SystemTime;
use crate::error::{OpenError, StoreError};
use crate::metrics::Metrics;
use crate::timeline::{Hash, Line, Lines as _, Position};

const KEYS_AFTER: &str = concat!(
    "-- copy: keys\nSELECT k.lease_key, k.cooling_until, k.quarantine, k.changed_at, ",
    rows::grant_columns!(),
    " FROM keys AS k LEFT JOIN grants AS g ON g.token = k.token WHERE k.lease_key > ?1 ORDER BY k.lease_key LIMIT ?2"
);
const KEPT: &str = "-- copy: kept keys\nSELECT lease_key, state, alive_until FROM kept_keys";
const TOKENS: &str =
    "-- copy: tokens\nSELECT token_id, hash, name, role, prefixes, created_at, expires_at, revoked_at FROM tokens";
const SESSIONS: &str = "-- copy: sessions\nSELECT session_id, hash, name, role, prefixes, token_id, created_at, expires_at, \
     closed_at FROM sessions";
const LINKS: &str = "-- copy: links\nSELECT hash, created_at, expires_at FROM sign_in_links";
const IDEMPOTENCY: &str = "-- copy: idempotency\nSELECT caller, key, fingerprint, answer, created_at FROM idempotency \
     WHERE (caller, key) > (?1, ?2) ORDER BY caller, key LIMIT ?3";
const LIVED_AT: &str = "-- copy: mark\nSELECT lived_at FROM head WHERE id = 1";

/// Every statement of this file on the truth, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![KEPT, TOKENS, SESSIONS, LINKS, IDEMPOTENCY, LIVED_AT]
}

/// Every statement of this file on the read models.
#[cfg(test)]
pub(super) fn view_statements() -> Vec<&'static str> {
    vec![KEYS_AFTER]
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

/// The database, with nobody else at it for as long as this is open.
pub(crate) struct Source {
    store: Arc<SqliteStore>,
    truth: SqliteConnection,
    views: SqliteConnection,
    lines: StoredLines,
    pub(crate) epoch: String,
    pub(crate) base: (Position, Hash),
    /// When it was last served.
    pub(crate) lived_at: Timestamp,
}

impl Source {
    /// Opens it, and brings its read models up to the end of its timeline.
    ///
    /// # Errors
    /// If it is not there, is being served, or cannot be read.
    pub(crate) async fn open(path: &Path) -> Result<Self, OpenError> {
        if !path.exists() {
            let source = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(OpenError::File { path: path.to_owned(), source });
        }
        let metrics = Arc::new(Metrics::default());
        let time = Arc::new(SystemTime::default());
        let store = SqliteStore::open(path, domain::Span::ZERO, time, metrics).await?;
        let mut truth = open::reading(path).connect().await.map_err(StoreError::from)?;
        let views = super::views::path_beside(&path.canonicalize().unwrap_or_else(|_| path.to_owned()));
        let views = open::reading(&views).connect().await.map_err(StoreError::from)?;
        let open::Base { epoch, position, hash } = open::base(&mut truth).await?;
        let lived_at: i64 = sqlx::query_scalar(LIVED_AT).fetch_one(&mut truth).await.map_err(StoreError::from)?;
        let lines = StoredLines(open::readers(path, 1));
        let lived_at = Timestamp::from_micros(lived_at);
        Ok(Self { store, truth, views, lines, epoch, base: (position, hash), lived_at })
    }

    /// Lines after a position, in order.
    pub(crate) async fn lines(&self, after: Position, limit: u32) -> Result<Vec<Line>, StoreError> {
        Ok(self.lines.read(after, limit).await?.0)
    }

    /// States of keys after a name, in the order of their names.
    pub(crate) async fn states(&mut self, after: &str, limit: u32) -> Result<Vec<KeyState>, StoreError> {
        let found = sqlx::query(KEYS_AFTER).bind(after.to_owned()).bind(limit).fetch_all(&mut self.views).await?;
        found.iter().map(rows::key_state).collect()
    }

    pub(crate) async fn kept(&mut self) -> Result<Vec<KeptRow>, StoreError> {
        Ok(sqlx::query_as(KEPT).fetch_all(&mut self.truth).await?)
    }

    pub(crate) async fn tokens(&mut self) -> Result<Vec<TokenRow>, StoreError> {
        Ok(sqlx::query_as(TOKENS).fetch_all(&mut self.truth).await?)
    }

    pub(crate) async fn sessions(&mut self) -> Result<Vec<SessionRow>, StoreError> {
        Ok(sqlx::query_as(SESSIONS).fetch_all(&mut self.truth).await?)
    }

    pub(crate) async fn links(&mut self) -> Result<Vec<LinkRow>, StoreError> {
        Ok(sqlx::query_as(LINKS).fetch_all(&mut self.truth).await?)
    }

    /// Answers after one of these names.
    pub(crate) async fn answers(&mut self, after: (&str, &str), limit: u32) -> Result<Vec<AnswerRow>, StoreError> {
        let query = sqlx::query_as(IDEMPOTENCY).bind(after.0.to_owned()).bind(after.1.to_owned()).bind(limit);
        Ok(query.fetch_all(&mut self.truth).await?)
    }

    /// Lets go of it.
    pub(crate) async fn close(self) {
        self.lines.close().await;
        for db in [self.truth, self.views] {
            // It was only read.
            let _ = db.close().await;
        }
        self.store.close().await;
    }
}
