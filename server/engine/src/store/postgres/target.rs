//! A shared database that another one is copied to.

use domain::Timestamp;
use domain::lease::KeyState;
use sqlx::PgConnection;

use super::link::Link;
use super::url::PostgresUrl;
use super::via::Via;
use super::{kept, open, project, source};
use crate::error::{OpenError, StoreError};
use crate::store::sqlite::{AnswerRow, KeptRow, LinkRow, SessionRow, TokenRow};
use crate::timeline::{Folded, Hash, Line, Position};

const IS_EMPTY: &str = "-- copy: is empty\nSELECT NOT EXISTS (SELECT 1 FROM job_leases.keys) \
     AND NOT EXISTS (SELECT 1 FROM job_leases.tokens) AND NOT EXISTS (SELECT 1 FROM job_leases.timeline) \
     AND NOT EXISTS (SELECT 1 FROM job_leases.log) AND NOT EXISTS (SELECT 1 FROM job_leases.nodes \
     WHERE seen_at > job_leases.clock() - 3000000)";
const BEGIN: &str = "-- copy: head\nUPDATE job_leases.head SET epoch = $1, position = $2, hash = $3, base_position = $2, \
     base_hash = $3 WHERE id = 1";
const MARK: &str = "-- copy: mark\nUPDATE job_leases.service SET lived_at = $1 WHERE id = 1";
const LINES: &str = "-- copy: lines\nINSERT INTO job_leases.timeline (position, hash, body) \
     SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::text[])";
const HEAD: &str = "-- copy: end\nUPDATE job_leases.head SET position = $1, hash = $2 WHERE id = 1";
const KEYS: &str =
    "-- copy: keys\nINSERT INTO job_leases.keys (lease_key, state) SELECT * FROM unnest($1::text[], $2::text[])";
const KEPT: &str = "-- copy: kept keys\nINSERT INTO job_leases.kept_keys (lease_key, state, alive_until) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])";
const TOKENS: &str = "-- copy: tokens\nINSERT INTO job_leases.tokens (token_id, hash, name, role, prefixes, created_at, \
     expires_at, revoked_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
const SESSIONS: &str = "-- copy: sessions\nINSERT INTO job_leases.sessions (session_id, hash, name, role, prefixes, token_id, \
     created_at, expires_at, closed_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const LINKS: &str =
    "-- copy: links\nINSERT INTO job_leases.sign_in_links (hash, created_at, expires_at) VALUES ($1, $2, $3)";
const ANSWERS: &str = "-- copy: answers\nINSERT INTO job_leases.idempotency (caller, key, fingerprint, answer, created_at) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::bigint[])";
/// Above all that were ever given out.
const RAISE_TOKENS: &str = "-- copy: tokens given\nSELECT setval('job_leases.tokens_given', greatest(job_leases.clock(), \
     (SELECT lived_at FROM job_leases.service WHERE id = 1), (SELECT coalesce(max(token), 0) FROM job_leases_views.keys)))";
const CHANGED: &str = "-- copy: access\nUPDATE job_leases.access SET changes = changes + 1 WHERE id = 1";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![IS_EMPTY, BEGIN, MARK, LINES, HEAD, KEYS, KEPT, TOKENS, SESSIONS, LINKS, ANSWERS, RAISE_TOKENS, CHANGED]
}

/// The database, brought up to date.
pub(crate) struct Target(Via);

impl Target {
    pub(crate) async fn open(url: &PostgresUrl) -> Result<Self, OpenError> {
        let (via, _) = url.ways()?;
        open::migrate(&via).await?.known_whole()?;
        Ok(Self(via))
    }

    /// Begins, and keeps nodes from starting meanwhile.
    pub(crate) async fn begin(&self) -> Result<Link, StoreError> {
        let mut link = self.0.begin().await?;
        self.0.query(open::LOCK).execute(&mut *link).await?;
        Ok(link)
    }

    pub(crate) async fn commit(&self, link: Link) -> Result<(), StoreError> {
        link.commit().await
    }

    /// Whether nothing is in it, and nobody serves it.
    pub(crate) async fn is_empty(&self, db: &mut PgConnection) -> Result<bool, StoreError> {
        Ok(self.0.query_scalar(IS_EMPTY).fetch_one(db).await?)
    }

    /// Begins after what retention has taken away.
    pub(crate) async fn begin_timeline(
        &self,
        db: &mut PgConnection,
        epoch: &str,
        (base, hash): (Position, Hash),
        lived_at: Timestamp,
    ) -> Result<(), StoreError> {
        self.0.query(BEGIN).bind(epoch).bind(base.0).bind(hash.as_slice()).execute(&mut *db).await?;
        self.0.query(MARK).bind(lived_at.as_micros()).execute(db).await?;
        Ok(())
    }

    /// What retention has kept.
    pub(crate) async fn kept(&self, db: &mut PgConnection, rows: &[KeptRow]) -> Result<(), StoreError> {
        let keys: Vec<&str> = rows.iter().map(|(key, ..)| key.as_str()).collect();
        let states: Vec<&str> = rows.iter().map(|(_, state, _)| state.as_str()).collect();
        let alive: Vec<Option<i64>> = rows.iter().map(|(.., alive)| *alive).collect();
        self.0.query(KEPT).bind(keys).bind(states).bind(alive).execute(db).await?;
        Ok(())
    }

    /// The read models begin with what was kept.
    pub(crate) async fn begin_views(&self, db: &mut PgConnection) -> Result<(), StoreError> {
        kept::begin_views_in(&self.0, db).await
    }

    /// Lines that follow those before, and what they come to.
    pub(crate) async fn lines(&self, db: &mut PgConnection, lines: &[Line], folded: &Folded) -> Result<(), StoreError> {
        let positions: Vec<i64> = lines.iter().map(|line| line.position.0).collect();
        let hashes: Vec<&[u8]> = lines.iter().map(|line| line.hash.as_slice()).collect();
        let bodies: Vec<&str> = lines.iter().map(|line| &*line.body).collect();
        self.0.query(LINES).bind(positions).bind(hashes).bind(bodies).execute(&mut *db).await?;
        if let Some((position, hash)) = &folded.last {
            self.0.query(HEAD).bind(position.0).bind(hash.as_slice()).execute(&mut *db).await?;
        }
        project::write_in(&self.0, db, folded).await
    }

    pub(crate) async fn keys(&self, db: &mut PgConnection, states: &[&KeyState]) -> Result<(), StoreError> {
        let keys: Vec<&str> = states.iter().map(|state| state.lease_key.as_str()).collect();
        let mut texts = Vec::with_capacity(states.len());
        for state in states {
            texts.push(serde_json::to_string(state).map_err(StoreError::corrupt)?);
        }
        self.0.query(KEYS).bind(keys).bind(texts).execute(db).await?;
        Ok(())
    }

    pub(crate) async fn access(
        &self,
        db: &mut PgConnection,
        tokens: &[TokenRow],
        sessions: &[SessionRow],
        links: &[LinkRow],
    ) -> Result<(), StoreError> {
        for (id, hash, name, role, prefixes, created_at, expires_at, revoked_at) in tokens {
            let query = self.0.query(TOKENS).bind(id).bind(hash).bind(name).bind(role).bind(prefixes);
            query.bind(created_at).bind(expires_at).bind(revoked_at).execute(&mut *db).await?;
        }
        for (id, hash, name, role, prefixes, token_id, created_at, expires_at, closed_at) in sessions {
            let query = self.0.query(SESSIONS).bind(id).bind(hash).bind(name).bind(role).bind(prefixes).bind(token_id);
            query.bind(created_at).bind(expires_at).bind(closed_at).execute(&mut *db).await?;
        }
        for (hash, created_at, expires_at) in links {
            self.0.query(LINKS).bind(hash).bind(created_at).bind(expires_at).execute(&mut *db).await?;
        }
        self.0.query(CHANGED).execute(db).await?;
        Ok(())
    }

    pub(crate) async fn answers(&self, db: &mut PgConnection, rows: &[AnswerRow]) -> Result<(), StoreError> {
        let callers: Vec<&str> = rows.iter().map(|(caller, ..)| caller.as_str()).collect();
        let keys: Vec<&str> = rows.iter().map(|(_, key, ..)| key.as_str()).collect();
        let fingerprints: Vec<&[u8]> = rows.iter().map(|(_, _, fingerprint, ..)| fingerprint.as_slice()).collect();
        let answers: Vec<&str> = rows.iter().map(|(_, _, _, answer, _)| answer.as_str()).collect();
        let times: Vec<i64> = rows.iter().map(|(.., at)| *at).collect();
        let query = self.0.query(ANSWERS).bind(callers).bind(keys).bind(fingerprints).bind(answers).bind(times);
        query.execute(db).await?;
        Ok(())
    }

    /// What stands there now, to be compared: lines after a position.
    pub(crate) async fn stored_lines(
        &self,
        db: &mut PgConnection,
        after: Position,
        limit: u32,
    ) -> Result<Vec<Line>, StoreError> {
        source::lines(&self.0, db, after, limit).await
    }

    /// The same of states of keys, after a name.
    pub(crate) async fn stored_states(
        &self,
        db: &mut PgConnection,
        after: &str,
        limit: u32,
    ) -> Result<Vec<KeyState>, StoreError> {
        let states = source::states(&self.0, db, after, limit).await?;
        Ok(states.into_iter().map(|(state, _)| state).collect())
    }

    /// The last thing.
    pub(crate) async fn end(&self, db: &mut PgConnection) -> Result<(), StoreError> {
        self.0.query(RAISE_TOKENS).execute(db).await?;
        Ok(())
    }

    pub(crate) async fn close(self) {
        self.0.close().await;
    }
}
