//! Lists, history and counters, read from the models.

use domain::lease::{LeaseStatus, Outcome};
use domain::{LeaseKey, Timestamp};
use futures::future::BoxFuture;
use sqlx::sqlite::{Sqlite, SqliteConnection, SqlitePool, SqliteRow};
use sqlx::{QueryBuilder, Row as _};

use super::project::RecentRenewals;
use super::rows::{self, grant_columns};
use crate::error::StoreError;
use crate::reading::{
    Background, Counters, Cursor, GrantRow, HistoryQuery, ListQuery, Minute, Page, Reading, SortField,
};
use crate::timeline::Position;

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
        PROGRESS,
        DUE,
    ]
}

/// The statements of lists, for all filters and orders, for the test that prepares them.
#[cfg(test)]
pub(super) fn lists() -> Vec<String> {
    use crate::reading::Sort;
    use domain::{JobKey, Owner, Subject};
    let statuses = [LeaseStatus::Held, LeaseStatus::Breaking]
        .into_iter()
        .chain(Outcome::ALL.into_iter().map(LeaseStatus::Ended))
        .map(Some)
        .chain([None]);
    let fields = [SortField::LeaseKey, SortField::AcquiredAt, SortField::ExpiresAt, SortField::UpdatedAt];
    let mut all = Vec::new();
    for status in statuses {
        for field in fields {
            for (index, current_only) in [true, false, true, false].into_iter().enumerate() {
                let filtered = index > 1;
                let cursor = Cursor { field, value: 1, lease_key: "k".to_owned(), token: 1 };
                let query = ListQuery {
                    current_only,
                    prefix: filtered.then(|| "a".to_owned()),
                    allowed_prefixes: if filtered { vec!["a".to_owned(), "b".to_owned()] } else { Vec::new() },
                    owner: filtered.then(|| Owner::parse("o").ok()).flatten(),
                    job_key: filtered.then(|| JobKey::parse("j").ok()).flatten(),
                    subject: filtered.then(|| Subject::parse("customer:acme").ok()).flatten(),
                    status,
                    sort: Sort { field, descending: filtered },
                    limit: 5,
                    cursor: filtered.then_some(cursor),
                };
                all.push(list_sql(&query, Timestamp::EPOCH).sql().as_str().to_owned());
            }
        }
    }
    all
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
        let mut sql = list_sql(&query, now);
        let mut snapshot = self.views.begin().await?;
        let found = sql.build().fetch_all(&mut *snapshot).await?;
        let mut page = page(&mut snapshot, &found).await?;
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
        if !prefixes.is_empty() {
            let mut counters = Counters::default();
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
        let mut counters = Counters::default();
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
    Ok(Page { rows, next: None, as_of: Position(applied) })
}

/// The least text that is greater than all that begin with `prefix`: its last character that has a successor, replaced
/// by it. Without one, what is greater than every key.
fn after_prefix(prefix: &str) -> String {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // Surrogates are no characters: the one after U+D7FF is U+E000.
        let next = if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            chars.push(next);
            return chars.into_iter().collect();
        }
    }
    "\u{10ffff}".repeat(LeaseKey::MAX_BYTES)
}

/// The prefixes that are not below another of them.
fn outermost(prefixes: &[String]) -> impl Iterator<Item = &str> {
    let inner = |prefix: &String| prefixes.iter().any(|other| other != prefix && prefix.starts_with(other.as_str()));
    let mut seen = std::collections::BTreeSet::new();
    prefixes.iter().filter(move |prefix| !inner(prefix) && seen.insert(prefix.as_str())).map(String::as_str)
}

fn list_sql(query: &ListQuery, now: Timestamp) -> QueryBuilder<Sqlite> {
    let mut sql = QueryBuilder::new(concat!("-- list\nSELECT g.lease_key, ", grant_columns!(), " FROM "));
    sql.push(match (query.current_only, query.subject.is_some()) {
        (true, false) => "keys AS k JOIN grants AS g ON g.token = k.token",
        (true, true) => "subjects AS s JOIN grants AS g ON g.token = s.token JOIN keys AS k ON k.token = g.token",
        (false, false) => "grants AS g",
        (false, true) => "subjects AS s JOIN grants AS g ON g.token = s.token",
    });
    sql.push(" WHERE true");
    let (key, token) = if query.current_only { ("k.lease_key", "k.token") } else { ("g.lease_key", "g.token") };
    if let Some(subject) = &query.subject {
        sql.push(" AND s.subject = ").push_bind(subject.as_str().to_owned());
    }
    if let Some(prefix) = &query.prefix {
        within(&mut sql, key, std::slice::from_ref(prefix));
    }
    if !query.allowed_prefixes.is_empty() {
        within(&mut sql, key, &query.allowed_prefixes);
    }
    if let Some(owner) = &query.owner {
        sql.push(" AND g.owner = ").push_bind(owner.as_str().to_owned());
    }
    if let Some(job_key) = &query.job_key {
        sql.push(" AND g.job_key = ").push_bind(job_key.as_str().to_owned());
    }
    if let Some(status) = query.status {
        with_status(&mut sql, status, now);
    }
    let (column, descending) = match query.sort.field {
        SortField::LeaseKey => (key, query.sort.descending),
        SortField::AcquiredAt => (token, query.sort.descending),
        SortField::ExpiresAt => {
            (if query.current_only { "k.expires_at" } else { "g.expires_at" }, query.sort.descending)
        }
        SortField::UpdatedAt => {
            (if query.current_only { "k.updated_at" } else { "g.updated_at" }, query.sort.descending)
        }
    };
    let (beyond, order) = if descending { (" < ", " DESC") } else { (" > ", "") };
    if let Some(cursor) = &query.cursor {
        match query.sort.field {
            SortField::LeaseKey => {
                sql.push(" AND (").push(column).push(", ").push(token).push(")").push(beyond).push("(");
                sql.push_bind(cursor.lease_key.clone()).push(", ").push_bind(cursor.token).push(")");
            }
            SortField::AcquiredAt => {
                sql.push(" AND ").push(token).push(beyond).push_bind(cursor.token);
            }
            SortField::ExpiresAt | SortField::UpdatedAt => {
                sql.push(" AND (").push(column).push(", ").push(token).push(")").push(beyond).push("(");
                sql.push_bind(cursor.value).push(", ").push_bind(cursor.token).push(")");
            }
        }
    }
    // An index that does not hold keys without a grant serves only a query that cannot want them.
    sql.push(" AND ").push(token).push(" IS NOT NULL ORDER BY ").push(column).push(order);
    if column != token {
        sql.push(", ").push(token).push(order);
    }
    sql.push(" LIMIT ").push_bind(i64::from(query.limit) + 1);
    sql
}

fn within(sql: &mut QueryBuilder<Sqlite>, key: &'static str, prefixes: &[String]) {
    sql.push(" AND (");
    for (index, prefix) in prefixes.iter().enumerate() {
        if index > 0 {
            sql.push(" OR ");
        }
        sql.push("(").push(key).push(" >= ").push_bind(prefix.clone());
        sql.push(" AND ").push(key).push(" < ").push_bind(after_prefix(prefix)).push(")");
    }
    sql.push(")");
}

/// The same rule as `Lease::status`: what is over is over, whether its end is recorded or not.
fn with_status(sql: &mut QueryBuilder<Sqlite>, status: LeaseStatus, now: Timestamp) {
    let now = now.as_micros();
    match status {
        LeaseStatus::Held => {
            sql.push(" AND g.outcome IS NULL AND g.breaking IS NULL AND g.expires_at > ").push_bind(now);
        }
        LeaseStatus::Breaking => {
            sql.push(" AND g.outcome IS NULL AND g.breaking IS NOT NULL AND g.expires_at > ").push_bind(now);
        }
        LeaseStatus::Ended(outcome) => {
            sql.push(" AND (g.outcome = ").push_bind(outcome.as_str());
            let unrecorded = match outcome {
                Outcome::Expired => " OR g.outcome IS NULL AND coalesce(g.break_ends_at > g.expires_at, true)",
                Outcome::Broken => " OR g.outcome IS NULL AND g.break_ends_at <= g.expires_at",
                _ => "",
            };
            if !unrecorded.is_empty() {
                sql.push(unrecorded).push(" AND g.expires_at <= ").push_bind(now);
            }
            sql.push(")");
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_after_all_that_begin_with_it_and_nothing_else() {
        for (prefix, after) in [("a", "b"), ("a/", "a0"), ("a\u{d7ff}", "a\u{e000}"), ("a\u{10ffff}", "b")] {
            assert_eq!(after_prefix(prefix), after);
            assert!(format!("{prefix}\u{10ffff}\u{10ffff}").as_str() < after);
        }
        assert!(after_prefix("").as_str() > "\u{10ffff}z");
    }
}
