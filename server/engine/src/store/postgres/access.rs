//! Tokens, sessions and sign-in links: ordinary tables, changed in the transaction of their events, and read anew by every node
//! when another has changed them.

use std::sync::Arc;

use domain::{Role, Timestamp};
use sqlx::PgConnection;

use super::link::in_time;
use super::via::Via;
use crate::access::{AccessChange, Directory, SecretHash, Session, SignInLink, Token};
use crate::error::StoreError;

const INSERT_TOKEN: &str = "-- create token\nINSERT INTO job_leases.tokens (token_id, hash, name, role, prefixes, created_at, \
     expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7)";
const REVOKE_TOKEN: &str = "-- revoke token\nUPDATE job_leases.tokens SET revoked_at = $2 WHERE token_id = $1";
const CLOSE_SESSIONS_OF_TOKEN: &str = "-- close sessions of token\nUPDATE job_leases.sessions SET closed_at = $2 WHERE token_id = $1 AND closed_at IS NULL";
const INSERT_SESSION: &str = "-- open session\nINSERT INTO job_leases.sessions (session_id, hash, name, role, prefixes, \
     token_id, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
const CLOSE_SESSION: &str = "-- close session\nUPDATE job_leases.sessions SET closed_at = $2 WHERE session_id = $1";
const INSERT_LINK: &str =
    "-- create sign-in link\nINSERT INTO job_leases.sign_in_links (hash, created_at, expires_at) VALUES ($1, $2, $3)";
const DELETE_LINK: &str = "-- use up sign-in link\nDELETE FROM job_leases.sign_in_links WHERE hash = $1";
const CHANGED: &str = "-- access was changed\nUPDATE job_leases.access SET changes = changes + 1 WHERE id = 1";
const CHANGES: &str = "-- changes of access\nSELECT changes FROM job_leases.access WHERE id = 1";
const LOAD_TOKENS: &str = "-- load tokens\nSELECT token_id, hash, name, role, prefixes, created_at, expires_at, revoked_at \
     FROM job_leases.tokens";
const LOAD_SESSIONS: &str = "-- load sessions\nSELECT session_id, hash, name, role, prefixes, token_id, created_at, \
     expires_at FROM job_leases.sessions WHERE closed_at IS NULL AND expires_at > $1";
const LOAD_LINKS: &str = "-- load sign-in links\nSELECT hash, created_at, expires_at FROM job_leases.sign_in_links \
     WHERE expires_at > $1";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![
        INSERT_TOKEN,
        REVOKE_TOKEN,
        CLOSE_SESSIONS_OF_TOKEN,
        INSERT_SESSION,
        CLOSE_SESSION,
        INSERT_LINK,
        DELETE_LINK,
        CHANGED,
        CHANGES,
        LOAD_TOKENS,
        LOAD_SESSIONS,
        LOAD_LINKS,
    ]
}

fn prefixes_as_json(prefixes: &[Arc<str>]) -> Result<String, StoreError> {
    serde_json::to_string(prefixes).map_err(StoreError::corrupt)
}

/// Writes changes, and that there were some.
pub(super) async fn write(via: &Via, db: &mut PgConnection, changes: &[AccessChange]) -> Result<(), StoreError> {
    for change in changes {
        write_one(via, db, change).await?;
    }
    if !changes.is_empty() {
        in_time(via.query(CHANGED).execute(db)).await?;
    }
    Ok(())
}

async fn write_one(via: &Via, db: &mut PgConnection, change: &AccessChange) -> Result<(), StoreError> {
    let query = match change {
        AccessChange::CreateToken(hash, token) => via
            .query(INSERT_TOKEN)
            .bind(&*token.token_id)
            .bind(hash.0.as_slice())
            .bind(&*token.name)
            .bind(token.role.as_str())
            .bind(prefixes_as_json(&token.prefixes)?)
            .bind(token.created_at.as_micros())
            .bind(token.expires_at.map(Timestamp::as_micros)),
        AccessChange::RevokeToken(id, at) => {
            let close = via.query(CLOSE_SESSIONS_OF_TOKEN).bind(&**id).bind(at.as_micros());
            in_time(close.execute(&mut *db)).await?;
            via.query(REVOKE_TOKEN).bind(&**id).bind(at.as_micros())
        }
        AccessChange::OpenSession { hash, session, link } => {
            if let Some(link) = link {
                in_time(via.query(DELETE_LINK).bind(link.0.as_slice()).execute(&mut *db)).await?;
            }
            via.query(INSERT_SESSION)
                .bind(&*session.session_id)
                .bind(hash.0.as_slice())
                .bind(&*session.name)
                .bind(session.role.as_str())
                .bind(prefixes_as_json(&session.prefixes)?)
                .bind(session.token_id.as_deref())
                .bind(session.created_at.as_micros())
                .bind(session.expires_at.as_micros())
        }
        AccessChange::CloseSession(id, at) => via.query(CLOSE_SESSION).bind(&**id).bind(at.as_micros()),
        AccessChange::CreateLink(hash, link) => via
            .query(INSERT_LINK)
            .bind(hash.0.as_slice())
            .bind(link.created_at.as_micros())
            .bind(link.expires_at.as_micros()),
    };
    in_time(query.execute(db)).await?;
    Ok(())
}

/// How often it was changed.
pub(super) async fn changes(via: &Via, db: &mut PgConnection) -> Result<i64, StoreError> {
    in_time(via.query_scalar(CHANGES).fetch_one(db)).await
}

type TokenRow = (String, Vec<u8>, String, String, String, i64, Option<i64>, Option<i64>);
type SessionRow = (String, Vec<u8>, String, String, String, Option<String>, i64, i64);

fn hash(bytes: &[u8]) -> Result<SecretHash, StoreError> {
    bytes.try_into().map(SecretHash).map_err(StoreError::corrupt)
}

fn role(text: &str) -> Result<Role, StoreError> {
    Role::parse(text).ok_or_else(|| StoreError::corrupt(text))
}

/// Reads all tokens, and what is alive of the rest at `now`.
pub(super) async fn load(via: &Via, db: &mut PgConnection, now: Timestamp) -> Result<Directory, StoreError> {
    let directory = Directory::default();
    let tokens: Vec<TokenRow> = in_time(via.query_as(LOAD_TOKENS).fetch_all(&mut *db)).await?;
    for (token_id, secret, name, kind, prefixes, created_at, expires_at, revoked_at) in tokens {
        let token = Token {
            token_id: Arc::from(token_id),
            name: Arc::from(name),
            role: role(&kind)?,
            prefixes: serde_json::from_str(&prefixes).map_err(StoreError::corrupt)?,
            created_at: Timestamp::from_micros(created_at),
            expires_at: expires_at.map(Timestamp::from_micros),
            revoked_at: revoked_at.map(Timestamp::from_micros),
        };
        directory.apply(&AccessChange::CreateToken(hash(&secret)?, token));
    }
    let sessions = via.query_as(LOAD_SESSIONS).bind(now.as_micros()).fetch_all(&mut *db);
    let sessions: Vec<SessionRow> = in_time(sessions).await?;
    for (session_id, secret, name, kind, prefixes, token_id, created_at, expires_at) in sessions {
        let session = Session {
            session_id: Arc::from(session_id),
            name: Arc::from(name),
            role: role(&kind)?,
            prefixes: serde_json::from_str(&prefixes).map_err(StoreError::corrupt)?,
            token_id: token_id.map(Arc::from),
            created_at: Timestamp::from_micros(created_at),
            expires_at: Timestamp::from_micros(expires_at),
        };
        directory.apply(&AccessChange::OpenSession { hash: hash(&secret)?, session, link: None });
    }
    let links = via.query_as(LOAD_LINKS).bind(now.as_micros()).fetch_all(db);
    let links: Vec<(Vec<u8>, i64, i64)> = in_time(links).await?;
    for (secret, created_at, expires_at) in links {
        let link = SignInLink {
            created_at: Timestamp::from_micros(created_at),
            expires_at: Timestamp::from_micros(expires_at),
        };
        directory.apply(&AccessChange::CreateLink(hash(&secret)?, link));
    }
    Ok(directory)
}
