//! Lists, history and counters, read from the models.

use domain::{LeaseKey, Timestamp};
use futures::future::BoxFuture;
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteRow};

use super::lists::{self, Way};
use super::rows::{self, grant_columns};
use crate::error::StoreError;
use crate::reading::{
    Background, Counters, Cursor, GrantRow, HistoryQuery, ListQuery, Minute, Named, Page, Reading, SortField,
};
use crate::store::prefixes::{after_prefix, outermost};
use crate::timeline::{Position, RecentRenewals};

const HISTORY: &str = concat!(
    "-- history\nWITH RECURSIVE chain (token, depth) AS (\
     SELECT coalesce((SELECT previous FROM grants WHERE token = ?2 AND lease_key = ?1), \
     CASE WHEN ?2 IS NULL THEN (SELECT token FROM keys WHERE lease_key = ?1) END), 1 \
     UNION ALL SELECT g.previous, depth + 1 FROM chain JOIN grants AS g ON g.token = chain.token \
     WHERE g.previous IS NOT NULL AND depth < ?3) \
     SELECT g.lease_key, ",
    grant_columns!(),
    " FROM chain JOIN grants AS g ON g.token = chain.token ORDER BY g.token DESC"
);
const COUNTERS: &str = "-- counters\nSELECT name, value FROM counters";
const EXPIRED_LIVE: &str = "-- due but not swept\nSELECT count(*) FROM keys WHERE live = 1 AND expires_at <= ?1";
const COLLISIONS_ON: &str =
    "-- collisions on a day\nSELECT coalesce(sum(times), 0) FROM collisions_by_day WHERE day = ?1";
const COUNT_BY_PREFIX: &str = "-- counters below a prefix\nSELECT \
     (SELECT count(*) FROM keys WHERE lease_key >= ?1 AND lease_key < ?2 AND token IS NOT NULL), \
     (SELECT count(*) FROM keys WHERE lease_key >= ?1 AND lease_key < ?2 AND live = 1 AND expires_at > ?3), \
     (SELECT coalesce(sum(times), 0) FROM collisions WHERE lease_key >= ?1 AND lease_key < ?2), \
     (SELECT coalesce(sum(times), 0) FROM collisions_by_day WHERE day = ?4 AND lease_key >= ?1 AND lease_key < ?2)";
const RENEWALS: &str = "-- recent renewals\nSELECT g.recent_renewals FROM keys AS k JOIN grants AS g ON g.token = k.token \
     WHERE k.lease_key = ?1";
const INTERVENTIONS: &str = "-- interventions\nSELECT position, event FROM interventions WHERE lease_key = ?1 \
     ORDER BY position DESC LIMIT 50";
/// With the last minute before, since nothing changes in minutes that are not there.
const MINUTES: &str = "-- minutes\nSELECT minute, granted, renewed, released, cut_short, refused, held FROM activity \
     WHERE minute >= coalesce((SELECT max(minute) FROM activity WHERE minute < ?1), ?1) ORDER BY minute";
const OWNERS: &str = "-- owners that begin so\nSELECT owner FROM owners WHERE owner >= ?1 AND owner < ?2 \
     ORDER BY owner LIMIT ?3";
const JOBS: &str = "-- jobs that begin so\nSELECT job_key FROM jobs WHERE job_key >= ?1 AND job_key < ?2 \
     ORDER BY job_key LIMIT ?3";
/// Each is looked for after the last, since one may stand at many grants.
const SUBJECTS: &str = "-- subjects that begin so\nWITH RECURSIVE found (subject, n) AS (\
     SELECT (SELECT min(subject) FROM subjects WHERE subject >= ?1 AND subject < ?2), 1 \
     UNION ALL SELECT (SELECT min(s.subject) FROM subjects AS s WHERE s.subject > found.subject AND s.subject < ?2), n + 1 \
     FROM found WHERE found.subject IS NOT NULL AND n < ?3) \
     SELECT subject FROM found WHERE subject IS NOT NULL ORDER BY n";
const PROGRESS: &str = "-- progress\nSELECT applied FROM progress WHERE id = 1";
const DUE: &str = "-- due\nSELECT lease_key FROM keys WHERE live = 1 AND expires_at <= ?1 ORDER BY expires_at LIMIT ?2";

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

/// Reads the read models of the embedded store.
#[derive(Clone)]
pub(crate) struct SqliteReading {
    views: SqlitePool,
}

impl SqliteReading {
    pub(super) const fn new(views: SqlitePool) -> Self {
        Self { views }
    }

    async fn list(&self, query: ListQuery, now: Timestamp) -> Result<Page, StoreError> {
        let mut snapshot = self.views.begin().await?;
        let way = Way::choose(&mut snapshot, &query).await?;
        let mut sql = lists::sql(&query, way, now);
        let found = sql.build().fetch_all(&mut *snapshot).await?;
        let mut page = page(&mut snapshot, &found).await?;
        if query.count {
            let count = lists::count(&query, way, now).build_query_scalar().fetch_one(&mut *snapshot).await?;
            page.count = Some(count);
        }
        snapshot.commit().await?;
        if page.rows.len() > query.limit as usize {
            page.rows.truncate(query.limit as usize);
            page.next = page.rows.last().map(|row| Cursor::after(row, query.sort.field));
        }
        Ok(page)
    }

    async fn history(&self, query: HistoryQuery) -> Result<Page, StoreError> {
        let mut snapshot = self.views.begin().await?;
        let found = sqlx::query(HISTORY)
            .bind(query.lease_key.as_str().to_owned())
            .bind(query.before.map(domain::lease::FencingToken::as_i64))
            .bind(i64::from(query.limit) + 1)
            .fetch_all(&mut *snapshot)
            .await?;
        let mut page = page(&mut snapshot, &found).await?;
        snapshot.commit().await?;
        if page.rows.len() > query.limit as usize {
            page.rows.truncate(query.limit as usize);
            page.next = page.rows.last().map(|row| Cursor::after(row, SortField::AcquiredAt));
        }
        Ok(page)
    }

    async fn counters(&self, prefixes: &[String], now: Timestamp) -> Result<Counters, StoreError> {
        let today = now.day();
        // Figures that are subtracted from one another must be of one moment.
        let mut snapshot = self.views.begin().await?;
        let mut counters = Counters {
            as_of: Position(sqlx::query_scalar(PROGRESS).fetch_one(&mut *snapshot).await?),
            ..Counters::default()
        };
        if !prefixes.is_empty() {
            for prefix in outermost(prefixes) {
                let (keys, held, collisions, on_day): (i64, i64, i64, i64) = sqlx::query_as(COUNT_BY_PREFIX)
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
        for (name, value) in sqlx::query_as::<_, (String, i64)>(COUNTERS).fetch_all(&mut *snapshot).await? {
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
        let due: i64 = sqlx::query_scalar(EXPIRED_LIVE).bind(now.as_micros()).fetch_one(&mut *snapshot).await?;
        counters.held = live - due;
        counters.collisions_today = sqlx::query_scalar(COLLISIONS_ON).bind(today).fetch_one(&mut *snapshot).await?;
        snapshot.commit().await?;
        Ok(counters)
    }

    async fn names(&self, of: Named, prefix: String, limit: u32) -> Result<Vec<String>, StoreError> {
        let after = after_prefix(&prefix);
        Ok(sqlx::query_scalar(names_of(of)).bind(prefix).bind(after).bind(limit).fetch_all(&self.views).await?)
    }

    async fn background(&self, key: &LeaseKey) -> Result<Background, StoreError> {
        let mut snapshot = self.views.begin().await?;
        let key = key.as_str();
        let renewals: Option<String> =
            sqlx::query_scalar(RENEWALS).bind(key.to_owned()).fetch_optional(&mut *snapshot).await?;
        let interventions: Vec<(i64, String)> =
            sqlx::query_as(INTERVENTIONS).bind(key.to_owned()).fetch_all(&mut *snapshot).await?;
        snapshot.commit().await?;
        Ok(Background {
            renewals: RecentRenewals::read(&renewals.unwrap_or_default()),
            interventions: interventions.into_iter().map(|(position, event)| (Position(position), event)).collect(),
        })
    }

    async fn minutes(&self, from: Timestamp) -> Result<Vec<Minute>, StoreError> {
        type Row = (i64, i64, i64, i64, i64, i64, i64);
        let first = from.minute();
        let rows: Vec<Row> = sqlx::query_as(MINUTES).bind(first).fetch_all(&self.views).await?;
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

    async fn due(&self, now: Timestamp, limit: u32) -> Result<Vec<LeaseKey>, StoreError> {
        let keys: Vec<String> =
            sqlx::query_scalar(DUE).bind(now.as_micros()).bind(limit).fetch_all(&self.views).await?;
        keys.iter().map(|key| rows::lease_key(key)).collect()
    }
}

/// The rows, and how far the models had come when they were read: both of one snapshot, since whoever has the page follows
/// the timeline from there.
async fn page(snapshot: &mut SqliteConnection, found: &[SqliteRow]) -> Result<Page, StoreError> {
    let mut rows = Vec::with_capacity(found.len());
    for row in found {
        rows.push(GrantRow { lease_key: rows::lease_key(row.try_get("lease_key")?)?, lease: rows::lease(row)? });
    }
    let applied: i64 = sqlx::query_scalar(PROGRESS).fetch_one(snapshot).await?;
    Ok(Page { rows, next: None, as_of: Position(applied), count: None })
}

impl Reading for SqliteReading {
    fn list(&self, query: ListQuery, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(self.list(query, now))
    }

    fn history(&self, query: HistoryQuery) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(self.history(query))
    }

    fn counters<'a>(&'a self, prefixes: &'a [String], now: Timestamp) -> BoxFuture<'a, Result<Counters, StoreError>> {
        Box::pin(self.counters(prefixes, now))
    }

    fn names(&self, of: Named, prefix: String, limit: u32) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        Box::pin(self.names(of, prefix, limit))
    }

    fn background<'a>(&'a self, key: &'a LeaseKey) -> BoxFuture<'a, Result<Background, StoreError>> {
        Box::pin(self.background(key))
    }

    fn minutes(&self, from: Timestamp) -> BoxFuture<'_, Result<Vec<Minute>, StoreError>> {
        Box::pin(self.minutes(from))
    }

    fn due(&self, now: Timestamp, limit: u32) -> BoxFuture<'_, Result<Vec<LeaseKey>, StoreError>> {
        Box::pin(self.due(now, limit))
    }
}
