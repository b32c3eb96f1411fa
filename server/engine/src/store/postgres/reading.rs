//! Lists, history and counters, read from the models.
//!
//! Each is one snapshot, read in a task of its own: whoever asked may hang up, and a statement that is given up half way would
//! spoil its connection for the next.

use std::time::Duration;

use domain::lease::FencingToken;
use domain::{LeaseKey, Timestamp};
use futures::future::BoxFuture;
use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};

use super::follow::whole;
use super::link::Link;
use super::lists::{self, Way};
use super::rows::{self, grant_columns};
use super::via::Via;
use crate::error::StoreError;
use crate::reading::{
    Background, Counters, Cursor, GrantRow, HistoryQuery, ListQuery, Minute, Named, Page, Reading, SortField,
};
use crate::store::prefixes::{after_prefix, outermost};
use crate::timeline::{Position, RecentRenewals};

/// So long may one reading take: nobody waits longer for it.
const PATIENCE: Duration = Duration::from_secs(15);

/// All that is read is of one snapshot. What is looked for is found by an index, and what comes in order is walked in order,
/// whatever PostgreSQL thinks of how many rows there are: a guess that is wrong would read a million of them. What it can do
/// only otherwise it does all the same, but takes it for so expensive that it would compile it first.
pub(super) const SETTINGS: &str = "-- reading: settings\nSET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; \
     SET LOCAL idle_in_transaction_session_timeout = '3s'; SET LOCAL statement_timeout = '10s'; \
     SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SET LOCAL max_parallel_workers_per_gather = 0; \
     SET LOCAL jit = off";
const HISTORY: &str = concat!(
    "-- history\nWITH RECURSIVE chain (token, depth) AS (\
     SELECT coalesce((SELECT previous FROM job_leases_views.grants WHERE token = $2 AND lease_key = $1), \
     CASE WHEN $2 IS NULL THEN (SELECT token FROM job_leases_views.keys WHERE lease_key = $1) END), 1::bigint \
     UNION ALL SELECT o.previous, depth + 1 FROM chain CROSS JOIN LATERAL \
     (SELECT previous FROM job_leases_views.grants WHERE token = chain.token OFFSET 0) AS o \
     WHERE o.previous IS NOT NULL AND depth < $3) \
     SELECT g.lease_key, ",
    grant_columns!(),
    " FROM chain CROSS JOIN LATERAL (SELECT * FROM job_leases_views.grants WHERE token = chain.token OFFSET 0) AS g \
     ORDER BY g.token DESC"
);
const COUNTERS: &str = "-- counters\nSELECT name, value FROM job_leases_views.counters";
const EXPIRED_LIVE: &str =
    "-- due but not swept\nSELECT count(*) FROM job_leases_views.keys WHERE live AND expires_at <= $1";
const COLLISIONS_ON: &str = "-- collisions on a day\nSELECT coalesce(sum(times), 0)::bigint \
     FROM job_leases_views.collisions_by_day WHERE day = $1";
/// Keys are gone through once: differs from SQLite, where to look at one twice costs less than to ask it two things.
const COUNT_BY_PREFIX: &str = "-- counters below a prefix\nSELECT k.keys, k.held, \
     (SELECT coalesce(sum(times), 0)::bigint FROM job_leases_views.collisions WHERE lease_key >= $1 AND lease_key < $2), \
     (SELECT coalesce(sum(times), 0)::bigint FROM job_leases_views.collisions_by_day \
     WHERE day = $4 AND lease_key >= $1 AND lease_key < $2) \
     FROM (SELECT count(token) AS keys, count(*) FILTER (WHERE live AND expires_at > $3) AS held \
     FROM job_leases_views.keys WHERE lease_key >= $1 AND lease_key < $2) AS k";
const RENEWALS: &str = "-- recent renewals\nSELECT g.recent_renewals FROM job_leases_views.keys AS k \
     JOIN job_leases_views.grants AS g ON g.token = k.token WHERE k.lease_key = $1";
const INTERVENTIONS: &str = "-- interventions\nSELECT position, event FROM job_leases_views.interventions \
     WHERE lease_key = $1 ORDER BY position DESC LIMIT 50";
/// With the last minute before, since nothing changes in minutes that are not there.
const MINUTES: &str = "-- minutes\nSELECT minute, granted, renewed, released, cut_short, refused, held \
     FROM job_leases_views.activity \
     WHERE minute >= coalesce((SELECT max(minute) FROM job_leases_views.activity WHERE minute < $1), $1) ORDER BY minute";
const OWNERS: &str = "-- owners that begin so\nSELECT owner FROM job_leases_views.owners WHERE owner >= $1 AND owner < $2 \
     ORDER BY owner LIMIT $3";
const JOBS: &str = "-- jobs that begin so\nSELECT job_key FROM job_leases_views.jobs WHERE job_key >= $1 AND job_key < $2 \
     ORDER BY job_key LIMIT $3";
/// Each is looked for after the last, since one may stand at many grants.
const SUBJECTS: &str = "-- subjects that begin so\nWITH RECURSIVE found (subject, n) AS (\
     SELECT (SELECT min(subject) FROM job_leases_views.subjects WHERE subject >= $1 AND subject < $2), 1::bigint \
     UNION ALL SELECT (SELECT min(s.subject) FROM job_leases_views.subjects AS s WHERE s.subject > found.subject AND s.subject < $2), n + 1 \
     FROM found WHERE found.subject IS NOT NULL AND n < $3) \
     SELECT subject FROM found WHERE subject IS NOT NULL ORDER BY n";
const PROGRESS: &str = "-- progress\nSELECT applied FROM job_leases_views.progress WHERE id = 1";
const DUE: &str = "-- due\nSELECT lease_key FROM job_leases_views.keys WHERE live AND expires_at <= $1 \
     ORDER BY expires_at LIMIT $2";

/// Every statement of this file but the lists, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![
        HISTORY,
        COUNTERS,
        EXPIRED_LIVE,
        COLLISIONS_ON,
        COUNT_BY_PREFIX,
        RENEWALS,
        INTERVENTIONS,
        MINUTES,
        OWNERS,
        JOBS,
        SUBJECTS,
        PROGRESS,
        DUE,
    ]
}

const fn names_of(of: Named) -> &'static str {
    match of {
        Named::Owner => OWNERS,
        Named::Job => JOBS,
        Named::Subject => SUBJECTS,
    }
}

/// Reads the read models of a PostgreSQL database.
#[derive(Clone)]
pub(crate) struct PostgresReading {
    via: Via,
}

impl PostgresReading {
    pub(super) const fn new(via: Via) -> Self {
        Self { via }
    }

    async fn snapshot(&self) -> Result<Link, StoreError> {
        let mut snapshot = self.via.begin().await?;
        sqlx::raw_sql(SETTINGS).execute(&mut *snapshot).await?;
        Ok(snapshot)
    }

    async fn list(self, query: ListQuery, now: Timestamp) -> Result<Page, StoreError> {
        let mut snapshot = self.snapshot().await?;
        let way = Way::choose(&mut snapshot, &query, now).await?;
        let found = lists::sql(&query, way, now).build().persistent(false).fetch_all(&mut *snapshot).await?;
        let mut page = self.page(&mut snapshot, &found).await?;
        if query.count {
            let count = lists::count(&query, way, now).build().persistent(false).fetch_one(&mut *snapshot).await?;
            page.count = Some(u32::try_from(count.try_get::<i64, _>(0)?).map_err(StoreError::corrupt)?);
        }
        snapshot.commit().await?;
        if page.rows.len() > query.limit as usize {
            page.rows.truncate(query.limit as usize);
            page.next = page.rows.last().map(|row| Cursor::after(row, query.sort.field));
        }
        Ok(page)
    }

    async fn history(self, query: HistoryQuery) -> Result<Page, StoreError> {
        let mut snapshot = self.snapshot().await?;
        let found = self
            .via
            .query(HISTORY)
            .bind(query.lease_key.as_str())
            .bind(query.before.map(FencingToken::as_i64))
            .bind(i64::from(query.limit) + 1)
            .fetch_all(&mut *snapshot)
            .await?;
        let mut page = self.page(&mut snapshot, &found).await?;
        snapshot.commit().await?;
        if page.rows.len() > query.limit as usize {
            page.rows.truncate(query.limit as usize);
            page.next = page.rows.last().map(|row| Cursor::after(row, SortField::AcquiredAt));
        }
        Ok(page)
    }

    /// The rows, and how far the models had come when they were read: both of one snapshot, since whoever has the page follows
    /// the timeline from there.
    async fn page(&self, snapshot: &mut PgConnection, found: &[PgRow]) -> Result<Page, StoreError> {
        let mut rows = Vec::with_capacity(found.len());
        for row in found {
            rows.push(GrantRow { lease_key: rows::lease_key(row.try_get("lease_key")?)?, lease: rows::lease(row)? });
        }
        let applied: i64 = self.via.query_scalar(PROGRESS).fetch_one(snapshot).await?;
        Ok(Page { rows, next: None, as_of: Position(applied), count: None })
    }

    async fn counters(self, prefixes: Vec<String>, now: Timestamp) -> Result<Counters, StoreError> {
        let today = now.day();
        // Figures that are subtracted from one another must be of one moment.
        let mut snapshot = self.snapshot().await?;
        let applied: i64 = self.via.query_scalar(PROGRESS).fetch_one(&mut *snapshot).await?;
        let mut counters = Counters { as_of: Position(applied), ..Counters::default() };
        if !prefixes.is_empty() {
            for prefix in outermost(&prefixes) {
                let (keys, held, collisions, on_day): (i64, i64, i64, i64) = self
                    .via
                    .query_as(COUNT_BY_PREFIX)
                    .bind(prefix.to_owned())
                    .bind(after_prefix(prefix))
                    .bind(now.as_micros())
                    .bind(today)
                    .fetch_one(&mut *snapshot)
                    .await?;
                counters.keys += keys;
                counters.held += held;
                counters.collisions += collisions;
                counters.collisions_today += on_day;
            }
            snapshot.commit().await?;
            return Ok(counters);
        }
        let mut live = 0;
        let values: Vec<(String, i64)> = self.via.query_as(COUNTERS).fetch_all(&mut *snapshot).await?;
        for (name, value) in values {
            match name.as_str() {
                "live" => live = value,
                "keys" => counters.keys = value,
                "grants" => counters.grants = Some(value),
                "jobs" => counters.jobs = Some(value),
                "owners" => counters.owners = Some(value),
                "collisions" => counters.collisions = value,
                _ => {}
            }
        }
        let due: i64 = self.via.query_scalar(EXPIRED_LIVE).bind(now.as_micros()).fetch_one(&mut *snapshot).await?;
        counters.held = live - due;
        counters.collisions_today = self.via.query_scalar(COLLISIONS_ON).bind(today).fetch_one(&mut *snapshot).await?;
        snapshot.commit().await?;
        Ok(counters)
    }

    async fn names(self, of: Named, prefix: String, limit: u32) -> Result<Vec<String>, StoreError> {
        let mut snapshot = self.snapshot().await?;
        let after = after_prefix(&prefix);
        let query = self.via.query_scalar(names_of(of)).bind(prefix).bind(after).bind(i64::from(limit));
        let names = query.fetch_all(&mut *snapshot).await?;
        snapshot.commit().await?;
        Ok(names)
    }

    async fn background(self, key: LeaseKey) -> Result<Background, StoreError> {
        let mut snapshot = self.snapshot().await?;
        let key = key.as_str();
        let renewals: Option<String> =
            self.via.query_scalar(RENEWALS).bind(key.to_owned()).fetch_optional(&mut *snapshot).await?;
        let interventions: Vec<(i64, String)> =
            self.via.query_as(INTERVENTIONS).bind(key.to_owned()).fetch_all(&mut *snapshot).await?;
        snapshot.commit().await?;
        Ok(Background {
            renewals: RecentRenewals::read(&renewals.unwrap_or_default()),
            interventions: interventions.into_iter().map(|(position, event)| (Position(position), event)).collect(),
        })
    }

    async fn minutes(self, from: Timestamp) -> Result<Vec<Minute>, StoreError> {
        type Row = (i64, i64, i64, i64, i64, i64, i64);
        let mut snapshot = self.snapshot().await?;
        let rows: Vec<Row> = self.via.query_as(MINUTES).bind(from.minute()).fetch_all(&mut *snapshot).await?;
        snapshot.commit().await?;
        let minute = |(minute, granted, renewed, released, cut_short, refused, held): Row| Minute {
            at: Timestamp::of_minute(minute),
            granted,
            renewed,
            released,
            cut_short,
            refused,
            held,
        };
        Ok(rows.into_iter().map(minute).collect())
    }

    async fn due(self, now: Timestamp, limit: u32) -> Result<Vec<LeaseKey>, StoreError> {
        let mut snapshot = self.snapshot().await?;
        let query = self.via.query_scalar(DUE).bind(now.as_micros()).bind(i64::from(limit));
        let keys: Vec<String> = query.fetch_all(&mut *snapshot).await?;
        snapshot.commit().await?;
        keys.iter().map(|key| rows::lease_key(key)).collect()
    }
}

/// Reads in a task of its own, to its end.
async fn to_its_end<R: Send + 'static>(
    reading: impl Future<Output = Result<R, StoreError>> + Send + 'static,
) -> Result<R, StoreError> {
    whole(async move { tokio::time::timeout(PATIENCE, reading).await.unwrap_or(Err(StoreError::Silent)) }).await
}

impl Reading for PostgresReading {
    fn list(&self, query: ListQuery, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(to_its_end(Self::list(self.clone(), query, now)))
    }

    fn history(&self, query: HistoryQuery) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(to_its_end(Self::history(self.clone(), query)))
    }

    fn counters<'a>(&'a self, prefixes: &'a [String], now: Timestamp) -> BoxFuture<'a, Result<Counters, StoreError>> {
        Box::pin(to_its_end(Self::counters(self.clone(), prefixes.to_vec(), now)))
    }

    fn names(&self, of: Named, prefix: String, limit: u32) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        Box::pin(to_its_end(Self::names(self.clone(), of, prefix, limit)))
    }

    fn background<'a>(&'a self, key: &'a LeaseKey) -> BoxFuture<'a, Result<Background, StoreError>> {
        Box::pin(to_its_end(Self::background(self.clone(), key.clone())))
    }

    fn minutes(&self, from: Timestamp) -> BoxFuture<'_, Result<Vec<Minute>, StoreError>> {
        Box::pin(to_its_end(Self::minutes(self.clone(), from)))
    }

    fn due(&self, now: Timestamp, limit: u32) -> BoxFuture<'_, Result<Vec<LeaseKey>, StoreError>> {
        Box::pin(to_its_end(Self::due(self.clone(), now, limit)))
    }
}
