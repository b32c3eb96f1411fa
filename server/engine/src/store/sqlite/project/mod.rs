//! Bringing the read models up to a line of the timeline: one transaction for many lines, each key and grant written
//! once, in the order of their names, together with how far the models have come.

mod write;

use domain::Timestamp;
use domain::lease::{FencingToken, KeyState, Outage};
use sqlx::sqlite::SqliteConnection;

use super::rows;
use crate::error::StoreError;
use crate::timeline::{Changes, Folded};

const SET_PROGRESS: &str = "-- project progress\nUPDATE progress SET applied = ?1, hash = ?2 WHERE id = 1";
/// The same rule as `Outage::expiry`, for all leases that were alive at its start.
const THROUGH_OUTAGE_GRANTS: &str = "-- project outage on grants\nUPDATE grants SET expires_at = max(expires_at, \
     min(?2 + min(ttl, ?3), coalesce(max_hold_until, ?4), coalesce(break_ends_at, ?4))) \
     WHERE token IN (SELECT token FROM keys WHERE live = 1 AND expires_at > ?1) AND outcome IS NULL \
     AND acquired_at <= ?1";
const THROUGH_OUTAGE_KEYS: &str = "-- project outage on keys\nUPDATE keys SET expires_at = \
     (SELECT g.expires_at FROM grants AS g WHERE g.token = keys.token) WHERE live = 1 AND expires_at > ?1";
/// Moves all of the write-ahead log into the file and flushes it; tells whether readers were in the way.
const CHECKPOINT: &str = "-- make read models durable\nPRAGMA wal_checkpoint(FULL)";
/// The last of the grants to look at.
const FORGET_SPAN: &str = "-- forget: span\nSELECT max(token), count(*) FROM \
     (SELECT token FROM grants WHERE token > ?1 ORDER BY token LIMIT ?2)";
const FORGET_SUBJECTS: &str = "-- forget: subjects\nDELETE FROM subjects WHERE (subject, token) IN (\
     SELECT s.value, g.token FROM grants AS g, json_each(g.subjects) AS s WHERE g.token > ?1 AND g.token <= ?2 \
     AND g.ended_at < ?3 AND NOT EXISTS (SELECT 1 FROM keys AS k WHERE k.token = g.token))";
const FORGET_GRANTS: &str = "-- forget: grants\nDELETE FROM grants WHERE token > ?1 AND token <= ?2 AND ended_at < ?3 \
     AND NOT EXISTS (SELECT 1 FROM keys AS k WHERE k.token = grants.token)";
/// Minutes are kept as long as grants.
const FORGET_ACTIVITY: &str = "-- forget: activity\nDELETE FROM activity WHERE minute < ?1";
const BEGIN: &str = "BEGIN IMMEDIATE";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

/// Every statement on the read models that writes, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    let singles = [
        SET_PROGRESS,
        THROUGH_OUTAGE_GRANTS,
        THROUGH_OUTAGE_KEYS,
        CHECKPOINT,
        FORGET_SPAN,
        FORGET_SUBJECTS,
        FORGET_GRANTS,
        FORGET_ACTIVITY,
    ];
    write::statements().chain(singles).collect()
}

/// Writes what lines came to, and how far that is in the same transaction.
pub(super) async fn write(db: &mut SqliteConnection, folded: &Folded) -> Result<(), StoreError> {
    sqlx::query(BEGIN).execute(&mut *db).await?;
    let result = write_all(db, folded).await;
    end(db, result).await
}

/// Begins with keys as retention kept them, whose lines are gone. How far the models have come is not said here: until it
/// is, they are made anew at the next start.
pub(super) async fn begin_with(db: &mut SqliteConnection, states: &[KeyState]) -> Result<(), StoreError> {
    let mut changes = Changes::default();
    for state in states {
        changes.kept(state);
    }
    sqlx::query(BEGIN).execute(&mut *db).await?;
    let result = write::changes(&changes, db).await;
    end(db, result).await
}

async fn end(db: &mut SqliteConnection, result: Result<(), StoreError>) -> Result<(), StoreError> {
    match result {
        Ok(()) => {
            sqlx::query(COMMIT).execute(&mut *db).await?;
            Ok(())
        }
        Err(error) => {
            // The error at hand says more than one of the rollback would.
            let _ = sqlx::query(ROLLBACK).execute(&mut *db).await;
            Err(error)
        }
    }
}

async fn write_all(db: &mut SqliteConnection, folded: &Folded) -> Result<(), StoreError> {
    for (outage, changes) in &folded.stretches {
        if let Some(outage) = outage {
            through(db, outage).await?;
        }
        write::changes(changes, db).await?;
    }
    if let Some((position, hash)) = &folded.last {
        sqlx::query(SET_PROGRESS).bind(position.0).bind(hash.as_slice()).execute(db).await?;
    }
    Ok(())
}

/// Makes all that was applied durable; false if a reader was in the way.
pub(super) async fn make_durable(db: &mut SqliteConnection) -> Result<bool, StoreError> {
    let (busy, in_log, moved): (i64, i64, i64) = sqlx::query_as(CHECKPOINT).fetch_one(db).await?;
    Ok(busy == 0 && in_log == moved)
}

/// Forgets grants that are not the last of their key and ended before a time, among the next `limit` after `after`; the
/// last one looked at, if there may be more.
pub(super) async fn forget(
    db: &mut SqliteConnection,
    ended_before: Timestamp,
    after: Option<FencingToken>,
    limit: u32,
) -> Result<Option<FencingToken>, StoreError> {
    if after.is_none() {
        sqlx::query(FORGET_ACTIVITY).bind(ended_before.minute()).execute(&mut *db).await?;
    }
    let after = after.map_or(0, FencingToken::as_i64);
    let (last, count): (Option<i64>, i64) =
        sqlx::query_as(FORGET_SPAN).bind(after).bind(limit).fetch_one(&mut *db).await?;
    let Some(last) = last else { return Ok(None) };
    sqlx::query(BEGIN).execute(&mut *db).await?;
    let mut result = Ok(());
    for sql in [FORGET_SUBJECTS, FORGET_GRANTS] {
        let query = sqlx::query(sql).bind(after).bind(last).bind(ended_before.as_micros());
        result = result.and(query.execute(&mut *db).await.map(|_| ()));
    }
    sqlx::query(if result.is_ok() { COMMIT } else { ROLLBACK }).execute(&mut *db).await?;
    result?;
    if count < i64::from(limit) { Ok(None) } else { rows::token(last).map(Some) }
}

async fn through(db: &mut SqliteConnection, outage: &Outage) -> Result<(), StoreError> {
    let least = outage.grace_us.min(outage.length());
    sqlx::query(THROUGH_OUTAGE_GRANTS)
        .bind(outage.from.as_micros())
        .bind(outage.to.as_micros())
        .bind(least.as_micros())
        .bind(Timestamp::MAX.as_micros())
        .execute(&mut *db)
        .await?;
    sqlx::query(THROUGH_OUTAGE_KEYS).bind(outage.from.as_micros()).execute(db).await?;
    Ok(())
}
