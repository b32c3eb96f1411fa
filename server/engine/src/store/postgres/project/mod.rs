//! Bringing the read models up to a line of the timeline: one transaction for many lines, each key and grant written
//! once, in the order of their names, together with how far the models have come.
//!
//! Whichever node does it, the row of `progress` is its lock: lines are applied only to models that have come to the line
//! before them. A node that was away and comes back finds that another has gone on, and writes nothing.

mod write;

use std::time::Duration;

use domain::Timestamp;
use domain::lease::{FencingToken, KeyState, Outage};
use futures::future::BoxFuture;
use sqlx::postgres::PgConnection;

use super::link::Link;
use super::rows;
use super::via::Via;
use crate::error::StoreError;
use crate::timeline::{Changes, Folded, Projection};

/// A network that swallows everything would hold the models up for ever. Nothing that is written takes as long, not even to
/// extend a million leases through an outage.
const PATIENCE: Duration = Duration::from_secs(600);

/// Rows that are named one by one are looked up one by one, in the order in which they are named. PostgreSQL may not know how
/// few there are, and would then rather read a table from end to end. A node that is paused half way must not keep the lock.
const SETTINGS: &str = "-- project settings\nSET TRANSACTION ISOLATION LEVEL READ COMMITTED; \
     SET LOCAL idle_in_transaction_session_timeout = '3s'; SET LOCAL enable_seqscan = off; \
     SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL jit = off";
/// Until when a lease is extended by an outage, unless it lasts longer anyway.
macro_rules! given {
    () => {
        "least($2 + least(g.ttl, $3), coalesce(g.max_hold_until, $4), coalesce(g.break_ends_at, $4))"
    };
}

const LOCK_PROGRESS: &str = "-- project lock\nSELECT applied FROM job_leases_views.progress WHERE id = 1 FOR UPDATE";
const SET_PROGRESS: &str =
    "-- project progress\nUPDATE job_leases_views.progress SET applied = $1, hash = $2 WHERE id = 1";
/// The same rule as `Outage::expiry`, for all leases that were alive at its start. Differs from SQLite's because PostgreSQL
/// writes a row anew even if nothing in it changes: leases that nothing is given to are left alone.
const THROUGH_OUTAGE_GRANTS: &str = concat!(
    "-- project outage on grants\nUPDATE job_leases_views.grants AS g SET expires_at = ",
    given!(),
    " FROM job_leases_views.keys AS k WHERE k.live AND k.expires_at > $1 AND g.token = k.token AND g.outcome IS NULL \
     AND g.acquired_at <= $1 AND g.expires_at < ",
    given!()
);
const THROUGH_OUTAGE_KEYS: &str = "-- project outage on keys\nUPDATE job_leases_views.keys AS k \
     SET expires_at = g.expires_at FROM job_leases_views.grants AS g \
     WHERE k.live AND k.expires_at > $1 AND g.token = k.token AND k.expires_at <> g.expires_at";
/// The last of the grants to look at.
const FORGET_SPAN: &str = "-- forget: span\nSELECT max(token), count(*) FROM \
     (SELECT token FROM job_leases_views.grants WHERE token > $1 ORDER BY token LIMIT $2) AS g";
const FORGET_SUBJECTS: &str = "-- forget: subjects\nDELETE FROM job_leases_views.subjects AS s USING (\
     SELECT g.token, json_array_elements_text(g.subjects::json) AS subject FROM job_leases_views.grants AS g \
     WHERE g.token > $1 AND g.token <= $2 AND g.ended_at < $3 AND g.subjects <> '[]' \
     AND NOT EXISTS (SELECT 1 FROM job_leases_views.keys AS k WHERE k.token = g.token)) AS old \
     WHERE s.subject = old.subject AND s.token = old.token";
const FORGET_RARE: &str = "-- forget: rare states\nDELETE FROM job_leases_views.rare_states AS r \
     USING job_leases_views.grants AS g WHERE g.token > $1 AND g.token <= $2 AND g.ended_at < $3 \
     AND NOT EXISTS (SELECT 1 FROM job_leases_views.keys AS k WHERE k.token = g.token) \
     AND r.status = g.outcome AND r.token = g.token";
const FORGET_GRANTS: &str = "-- forget: grants\nDELETE FROM job_leases_views.grants AS g \
     WHERE g.token > $1 AND g.token <= $2 AND g.ended_at < $3 \
     AND NOT EXISTS (SELECT 1 FROM job_leases_views.keys AS k WHERE k.token = g.token)";
/// Minutes are kept as long as grants.
const FORGET_ACTIVITY: &str = "-- forget: activity\nDELETE FROM job_leases_views.activity WHERE minute < $1";

/// Every statement on the read models that writes, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    let singles = [
        LOCK_PROGRESS,
        SET_PROGRESS,
        THROUGH_OUTAGE_GRANTS,
        THROUGH_OUTAGE_KEYS,
        FORGET_SPAN,
        FORGET_SUBJECTS,
        FORGET_RARE,
        FORGET_GRANTS,
        FORGET_ACTIVITY,
    ];
    write::statements().chain(singles).collect()
}

/// Begins with keys as retention kept them, whose lines are gone.
pub(super) async fn begin_with(via: &Via, db: &mut PgConnection, states: &[KeyState]) -> Result<(), StoreError> {
    let mut changes = Changes::default();
    for state in states {
        changes.kept(state);
    }
    write::changes(&changes, via, db).await
}

/// Writes what lines came to, in a transaction that is under way, if the models have come to the line before them.
pub(super) async fn write_in(via: &Via, db: &mut PgConnection, folded: &Folded) -> Result<(), StoreError> {
    let Some((last, hash)) = &folded.last else { return Ok(()) };
    let applied: i64 = via.query_scalar(LOCK_PROGRESS).fetch_one(&mut *db).await?;
    if last.0 <= applied {
        // Written before, by a commit that failed only to say so; or by another node.
        return Ok(());
    }
    let before = last.0 - i64::try_from(folded.lines).map_err(StoreError::corrupt)?;
    if before != applied {
        // Another node has gone on with them: one that had the duty before and did not know yet that it is over.
        return Err(StoreError::Overtaken);
    }
    for (outage, changes) in &folded.stretches {
        if let Some(outage) = outage {
            through(via, db, outage).await?;
        }
        write::changes(changes, via, db).await?;
    }
    via.query(SET_PROGRESS).bind(last.0).bind(hash.as_slice()).execute(db).await?;
    Ok(())
}

async fn through(via: &Via, db: &mut PgConnection, outage: &Outage) -> Result<(), StoreError> {
    let least = outage.grace_us.min(outage.length());
    via.query(THROUGH_OUTAGE_GRANTS)
        .bind(outage.from.as_micros())
        .bind(outage.to.as_micros())
        .bind(least.as_micros())
        .bind(Timestamp::MAX.as_micros())
        .execute(&mut *db)
        .await?;
    via.query(THROUGH_OUTAGE_KEYS).bind(outage.from.as_micros()).execute(db).await?;
    Ok(())
}

/// Writes the read models: on one node at a time.
pub(super) struct ViewWriter {
    via: Via,
}

impl ViewWriter {
    pub(super) const fn new(via: Via) -> Self {
        Self { via }
    }

    async fn begin(&self) -> Result<Link, StoreError> {
        let mut tx = self.via.begin().await?;
        sqlx::raw_sql(SETTINGS).execute(&mut *tx).await?;
        Ok(tx)
    }

    async fn write(&self, folded: &Folded) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        write_in(&self.via, &mut tx, folded).await?;
        tx.commit().await
    }

    /// Forgets grants that are not the last of their key and ended before a time, among the next `limit` after `after`; the
    /// last one looked at, if there may be more. A grant that is not the last of its key never becomes it again, so that it
    /// does not matter who writes the models meanwhile.
    async fn forget(
        &self,
        ended_before: Timestamp,
        after: Option<FencingToken>,
        limit: u32,
    ) -> Result<Option<FencingToken>, StoreError> {
        let mut tx = self.begin().await?;
        if after.is_none() {
            self.via.query(FORGET_ACTIVITY).bind(ended_before.minute()).execute(&mut *tx).await?;
        }
        let after = after.map_or(0, FencingToken::as_i64);
        let (last, count): (Option<i64>, i64) =
            self.via.query_as(FORGET_SPAN).bind(after).bind(i64::from(limit)).fetch_one(&mut *tx).await?;
        if let Some(last) = last {
            // What is found by the grants goes before them.
            for sql in [FORGET_SUBJECTS, FORGET_RARE, FORGET_GRANTS] {
                let query = self.via.query(sql).bind(after).bind(last).bind(ended_before.as_micros());
                query.execute(&mut *tx).await?;
            }
        }
        tx.commit().await?;
        last.filter(|_| count >= i64::from(limit)).map(rows::token).transpose()
    }
}

impl Projection for ViewWriter {
    fn write<'a>(&'a mut self, folded: &'a Folded) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            tokio::time::timeout(PATIENCE, Self::write(self, folded)).await.unwrap_or(Err(StoreError::Silent))
        })
    }

    /// They are of the same database as the timeline, and as durable.
    fn make_durable(&mut self) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    fn forget(
        &mut self,
        ended_before: Timestamp,
        after: Option<FencingToken>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Option<FencingToken>, StoreError>> {
        Box::pin(Self::forget(self, ended_before, after, limit))
    }

    /// The way to the database is not this one's to close.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::open;
    use super::super::testing;
    use super::super::url::PostgresUrl;
    use super::*;
    use crate::timeline::{Changes, Position};

    /// Lines of which each refused one duplicate.
    fn lines(first: i64, last: i64) -> Folded {
        let count = last - first + 1;
        let changes = Changes { refused: count, ..Changes::default() };
        Folded {
            stretches: vec![(None, changes)],
            last: Some((Position(last), [7; 32])),
            lines: usize::try_from(count).unwrap(),
            bytes: 0,
        }
    }

    #[tokio::test]
    async fn lines_are_applied_once_and_only_to_models_that_have_come_to_the_line_before() {
        let database = testing::database().await;
        let (via, _) = PostgresUrl::new(&database.url).ways().unwrap();
        open::migrate(&via).await.unwrap();
        let writer = ViewWriter::new(via.clone());
        let other = ViewWriter::new(via.clone());
        for (first, last, is_done, come_to) in [
            (1, 3, true, 3),
            // A commit that failed only to say so is tried again.
            (1, 3, true, 3),
            (2, 3, true, 3),
            // A gap; and lines of which another node has applied some.
            (5, 6, false, 3),
            (3, 5, false, 3),
            (4, 4, true, 4),
        ] {
            assert_eq!(writer.write(&lines(first, last)).await.is_ok(), is_done, "{first} to {last}");
            assert_eq!(counted(&via).await, (come_to, come_to), "{first} to {last}");
        }
        // At once: whoever comes later finds it done, or others gone on.
        let (all, some) = (lines(5, 9), lines(5, 7));
        let (one, two, three) = tokio::join!(writer.write(&all), other.write(&all), other.write(&some));
        let (applied, refused) = counted(&via).await;
        assert_eq!(applied, refused);
        assert!(if one.is_ok() || two.is_ok() { applied == 9 } else { three.is_ok() && applied == 7 }, "{applied}");
    }

    /// How far the models have come, and how many duplicates were refused until there.
    async fn counted(via: &Via) -> (i64, i64) {
        let sql = "SELECT p.applied, c.value FROM job_leases_views.progress AS p, job_leases_views.counters AS c \
            WHERE c.name = 'collisions'";
        sqlx::query_as(sql).fetch_one(via.pool()).await.unwrap()
    }
}
