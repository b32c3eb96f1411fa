//! Bringing the read models up to a line of the timeline: one transaction for many lines, each key and grant written
//! once, in the order of their names, together with how far the models have come.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::lease::{Change, Event, FencingToken, KeyState, Lease, Outage, Outcome};
use domain::{LeaseKey, Timestamp};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection};

use super::bulk::Bulk;
use crate::error::StoreError;
use crate::timeline::{Happening, Line, Record};

const MICROS_PER_DAY: i64 = 86_400_000_000;

// "OR ROLLBACK" since a statement that fails takes the whole transaction with it anyway: without it SQLite would keep a copy
// of every page that a statement of many rows changes, to undo that statement alone.
static INSERT_GRANTS: Bulk<4> = Bulk::new(
    "-- project grants made\nINSERT OR ROLLBACK INTO grants (token, lease_key, previous, owner, job_key, acquired_at, expires_at, \
     updated_at, ttl, renewals, max_hold_until, min_hold_until, lock_delay, subjects, metadata, break_ends_at, breaking, \
     outcome, ended_at) VALUES",
    19,
    "",
);
/// Absent values leave what is there; the number of renewals is how many more.
static UPDATE_GRANTS: Bulk<4> = Bulk::new(
    "-- project grants changed\nUPDATE OR ROLLBACK grants SET expires_at = coalesce(d.column2, expires_at), \
     updated_at = d.column3, ttl = coalesce(d.column4, ttl), renewals = renewals + d.column5, \
     break_ends_at = coalesce(d.column6, break_ends_at), breaking = coalesce(d.column7, breaking), \
     outcome = coalesce(d.column8, outcome), ended_at = coalesce(d.column9, ended_at) FROM (VALUES",
    9,
    ") AS d WHERE grants.token = d.column1",
);
static INSERT_SUBJECTS: Bulk<4> = Bulk::new(
    "-- project subjects\nINSERT OR ROLLBACK INTO subjects (subject, token) VALUES",
    2,
    "ON CONFLICT DO NOTHING",
);
/// Absent values leave what is there.
static UPSERT_KEYS: Bulk<4> = Bulk::new(
    "-- project keys\nINSERT OR ROLLBACK INTO keys (lease_key, token, expires_at, updated_at, live, cooling_until, quarantine, \
     changed_at) VALUES",
    8,
    "ON CONFLICT (lease_key) DO UPDATE SET token = coalesce(excluded.token, token), \
     expires_at = coalesce(excluded.expires_at, expires_at), updated_at = coalesce(excluded.updated_at, updated_at), \
     live = coalesce(excluded.live, live), cooling_until = coalesce(excluded.cooling_until, cooling_until), \
     quarantine = coalesce(excluded.quarantine, quarantine), changed_at = excluded.changed_at",
);
static UPSERT_OWNERS: Bulk<4> = Bulk::new(
    "-- project owners\nINSERT OR ROLLBACK INTO owners (owner, first_seen_at, last_seen_at, grants) VALUES",
    4,
    "ON CONFLICT (owner) DO UPDATE SET first_seen_at = min(first_seen_at, excluded.first_seen_at), \
     last_seen_at = max(last_seen_at, excluded.last_seen_at), grants = grants + excluded.grants \
     RETURNING owner AS name, grants",
);
static UPSERT_JOBS: Bulk<4> = Bulk::new(
    "-- project jobs\nINSERT OR ROLLBACK INTO jobs (job_key, first_seen_at, last_seen_at, grants) VALUES",
    4,
    "ON CONFLICT (job_key) DO UPDATE SET first_seen_at = min(first_seen_at, excluded.first_seen_at), \
     last_seen_at = max(last_seen_at, excluded.last_seen_at), grants = grants + excluded.grants \
     RETURNING job_key AS name, grants",
);
static UPSERT_COLLISIONS: Bulk<4> = Bulk::new(
    "-- project collisions\nINSERT OR ROLLBACK INTO collisions (lease_key, owner, times, last_at) VALUES",
    4,
    "ON CONFLICT (lease_key, owner) DO UPDATE SET times = times + excluded.times, last_at = excluded.last_at",
);
static UPSERT_COLLISION_DAYS: Bulk<4> = Bulk::new(
    "-- project collisions by day\nINSERT OR ROLLBACK INTO collisions_by_day (day, lease_key, times) VALUES",
    3,
    "ON CONFLICT (day, lease_key) DO UPDATE SET times = times + excluded.times",
);
const ADD_TO_COUNTER: &str = "-- project counter\nUPDATE counters SET value = value + ?2 WHERE name = ?1";
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
const BEGIN: &str = "BEGIN IMMEDIATE";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    let bulks = [
        &INSERT_GRANTS,
        &UPDATE_GRANTS,
        &INSERT_SUBJECTS,
        &UPSERT_KEYS,
        &UPSERT_OWNERS,
        &UPSERT_JOBS,
        &UPSERT_COLLISIONS,
        &UPSERT_COLLISION_DAYS,
    ];
    let singles = [
        ADD_TO_COUNTER,
        SET_PROGRESS,
        THROUGH_OUTAGE_GRANTS,
        THROUGH_OUTAGE_KEYS,
        CHECKPOINT,
        FORGET_SPAN,
        FORGET_SUBJECTS,
        FORGET_GRANTS,
    ];
    bulks.into_iter().flat_map(Bulk::all).chain(singles).collect()
}

/// Applies lines that follow each other, and says so in the same transaction.
pub(super) async fn apply(db: &mut SqliteConnection, lines: &[Line]) -> Result<(), StoreError> {
    let Some(last) = lines.last() else { return Ok(()) };
    sqlx::query(BEGIN).execute(&mut *db).await?;
    let result = apply_all(db, lines, last).await;
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
    let result = changes.write(db).await;
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

async fn apply_all(db: &mut SqliteConnection, lines: &[Line], last: &Line) -> Result<(), StoreError> {
    let mut changes = Changes::default();
    for line in lines {
        match &*line.record {
            Record::Lease(event) => changes.lease(event),
            Record::Other(other) => match &other.happening {
                // An outage reads what is there: what came before it must be there first.
                Happening::Outage(outage) => {
                    std::mem::take(&mut changes).write(db).await?;
                    through(db, outage).await?;
                }
                Happening::Collisions { refused } => {
                    for refused in refused {
                        changes.collisions(&refused.lease_key, refused.owner.as_str(), refused.times, other.at);
                    }
                }
                _ => {}
            },
        }
    }
    changes.write(db).await?;
    sqlx::query(SET_PROGRESS).bind(last.position.0).bind(last.hash.as_slice()).execute(db).await?;
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
    if count < i64::from(limit) { Ok(None) } else { super::rows::token(last).map(Some) }
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

/// What many lines come to.
#[derive(Default)]
struct Changes {
    made: BTreeMap<FencingToken, (LeaseKey, Option<FencingToken>, Lease)>,
    changed: BTreeMap<FencingToken, GrantDelta>,
    keys: BTreeMap<LeaseKey, KeyDelta>,
    owners: BTreeMap<Arc<str>, Seen>,
    jobs: BTreeMap<Arc<str>, Seen>,
    collisions: BTreeMap<(LeaseKey, Box<str>), (u64, Timestamp)>,
    collision_days: BTreeMap<(i64, LeaseKey), u64>,
    live: i64,
    refused: i64,
}

/// What changes of a grant that was made earlier.
#[derive(Default)]
struct GrantDelta {
    expires_at: Option<Timestamp>,
    updated_at: Timestamp,
    ttl: Option<i64>,
    renewals: i64,
    breaking: Option<(Timestamp, String)>,
    ended: Option<(Outcome, Timestamp)>,
}

#[derive(Default)]
struct KeyDelta {
    token: Option<FencingToken>,
    expires_at: Option<Timestamp>,
    updated_at: Option<Timestamp>,
    live: Option<bool>,
    cooling_until: Option<i64>,
    quarantine: Option<String>,
    changed_at: Timestamp,
}

struct Seen {
    first: Timestamp,
    last: Timestamp,
    grants: i64,
}

impl Seen {
    fn note(map: &mut BTreeMap<Arc<str>, Self>, name: &str, at: Timestamp, grants: i64) {
        match map.get_mut(name) {
            Some(seen) => {
                seen.first = seen.first.min(at);
                seen.last = seen.last.max(at);
                seen.grants += grants;
            }
            None => {
                map.insert(Arc::from(name), Self { first: at, last: at, grants });
            }
        }
    }
}

impl Changes {
    fn lease(&mut self, event: &Event) {
        let key = self.keys.entry(event.lease_key.clone()).or_default();
        key.changed_at = event.at;
        match &event.change {
            Change::Granted(granted) => {
                let lease = Lease::granted(granted, event.at);
                key.token = Some(lease.token);
                key.expires_at = Some(lease.expires_at);
                key.updated_at = Some(event.at);
                key.live = Some(true);
                key.cooling_until = Some(0);
                self.live += 1;
                Seen::note(&mut self.owners, lease.owner.as_str(), event.at, 1);
                if let Some(job_key) = &lease.job_key {
                    Seen::note(&mut self.jobs, job_key.as_str(), event.at, 1);
                }
                self.made.insert(lease.token, (event.lease_key.clone(), granted.previous_token, lease));
                return;
            }
            Change::Quarantined { reason } => {
                // The shape that `key_state` reads back.
                let quarantine =
                    domain::lease::Quarantine { since: event.at, reason: reason.clone(), by: Arc::clone(&event.actor) };
                key.quarantine = serde_json::to_string(&quarantine).ok();
                return;
            }
            Change::Lifted { .. } => {
                key.quarantine = Some(String::new());
                return;
            }
            Change::Renewed(renewed) => key.expires_at = Some(renewed.expires_at),
            Change::Breaking(breaking) => key.expires_at = Some(breaking.expires_at),
            change => {
                if let Some((_, ended)) = change.ended() {
                    key.expires_at = Some(ended.ended_at);
                    key.live = Some(false);
                    key.cooling_until = Some(ended.cooling_until.map_or(0, Timestamp::as_micros));
                    self.live -= 1;
                    Seen::note(&mut self.owners, ended.owner.as_str(), event.at, 0);
                }
            }
        }
        key.updated_at = Some(event.at);
        let Some(token) = event.change.token() else { return };
        if let Some((_, _, lease)) = self.made.get_mut(&token) {
            lease.apply(event);
        } else {
            self.changed.entry(token).or_default().note(event);
        }
    }

    /// A key as retention kept it: of its grants only the last is known.
    fn kept(&mut self, state: &KeyState) {
        let key = self.keys.entry(state.lease_key.clone()).or_default();
        key.changed_at = state.changed_at;
        key.cooling_until = Some(state.cooling_until.map_or(0, Timestamp::as_micros));
        key.quarantine = state.quarantine.as_ref().and_then(|quarantine| serde_json::to_string(quarantine).ok());
        let Some(lease) = &state.lease else { return };
        key.token = Some(lease.token);
        key.expires_at = Some(lease.expires_at);
        key.updated_at = Some(lease.updated_at);
        key.live = Some(lease.ended.is_none());
        self.live += i64::from(lease.ended.is_none());
        Seen::note(&mut self.owners, lease.owner.as_str(), lease.acquired_at, 1);
        Seen::note(&mut self.owners, lease.owner.as_str(), lease.updated_at, 0);
        if let Some(job_key) = &lease.job_key {
            Seen::note(&mut self.jobs, job_key.as_str(), lease.acquired_at, 1);
        }
        self.made.insert(lease.token, (state.lease_key.clone(), None, lease.clone()));
    }

    fn collisions(&mut self, key: &LeaseKey, owner: &str, times: u64, at: Timestamp) {
        let entry = self.collisions.entry((key.clone(), Box::from(owner))).or_insert((0, at));
        entry.0 += times;
        entry.1 = at;
        *self.collision_days.entry((at.as_micros() / MICROS_PER_DAY, key.clone())).or_default() += times;
        self.refused += i64::try_from(times).unwrap_or(i64::MAX);
    }

    async fn write(self, db: &mut SqliteConnection) -> Result<(), StoreError> {
        let granted = i64::try_from(self.made.len()).unwrap_or(i64::MAX);
        let subjects: Vec<(FencingToken, &str)> = self
            .made
            .iter()
            .flat_map(|(token, (_, _, lease))| lease.subjects.iter().map(|subject| (*token, subject.as_str())))
            .collect();
        let made: Vec<_> = self.made.values().collect();
        for (sql, rows) in INSERT_GRANTS.statements(&made) {
            rows.iter().fold(sqlx::query(sql), |query, row| bind_grant(query, row)).execute(&mut *db).await?;
        }
        for (sql, rows) in INSERT_SUBJECTS.statements(&subjects) {
            let bind = |query: Bound<'static>, (token, subject): &(FencingToken, &str)| {
                query.bind((*subject).to_owned()).bind(token.as_i64())
            };
            rows.iter().fold(sqlx::query(sql), bind).execute(&mut *db).await?;
        }
        let changed: Vec<_> = self.changed.iter().collect();
        for (sql, rows) in UPDATE_GRANTS.statements(&changed) {
            let query = rows.iter().fold(sqlx::query(sql), |query, (token, delta)| delta.bind(query, **token));
            query.execute(&mut *db).await?;
        }
        let keys: Vec<_> = self.keys.iter().collect();
        for (sql, rows) in UPSERT_KEYS.statements(&keys) {
            rows.iter().fold(sqlx::query(sql), |query, (key, delta)| delta.bind(query, key)).execute(&mut *db).await?;
        }
        let owners = upsert_seen(db, &UPSERT_OWNERS, &self.owners).await?;
        let jobs = upsert_seen(db, &UPSERT_JOBS, &self.jobs).await?;
        let collisions: Vec<_> = self.collisions.iter().collect();
        for (sql, rows) in UPSERT_COLLISIONS.statements(&collisions) {
            let query = rows.iter().fold(sqlx::query(sql), |query, ((key, owner), (times, at))| {
                query
                    .bind(key.as_str().to_owned())
                    .bind(owner.to_string())
                    .bind(times.cast_signed())
                    .bind(at.as_micros())
            });
            query.execute(&mut *db).await?;
        }
        let days: Vec<_> = self.collision_days.iter().collect();
        for (sql, rows) in UPSERT_COLLISION_DAYS.statements(&days) {
            let query = rows.iter().fold(sqlx::query(sql), |query, ((day, key), times)| {
                query.bind(*day).bind(key.as_str().to_owned()).bind(times.cast_signed())
            });
            query.execute(&mut *db).await?;
        }
        let first_grants = made.iter().filter(|(_, previous, _)| previous.is_none()).count();
        let counted = [
            ("grants", granted),
            ("live", self.live),
            ("keys", i64::try_from(first_grants).unwrap_or(i64::MAX)),
            ("owners", owners),
            ("jobs", jobs),
            ("collisions", self.refused),
        ];
        for (name, by) in counted {
            if by != 0 {
                sqlx::query(ADD_TO_COUNTER).bind(name).bind(by).execute(&mut *db).await?;
            }
        }
        Ok(())
    }
}

type Bound<'q> = Query<'q, Sqlite, SqliteArguments>;

/// Adds to owners or jobs, and says how many are new: those whose grants are all from now.
async fn upsert_seen(
    db: &mut SqliteConnection,
    bulk: &'static Bulk<4>,
    seen: &BTreeMap<Arc<str>, Seen>,
) -> Result<i64, StoreError> {
    let rows: Vec<_> = seen.iter().collect();
    let mut new = 0;
    for (sql, rows) in bulk.statements(&rows) {
        let query = rows.iter().fold(sqlx::query_as::<_, (String, i64)>(sql), |query, (name, seen)| {
            query.bind(name.to_string()).bind(seen.first.as_micros()).bind(seen.last.as_micros()).bind(seen.grants)
        });
        for (name, grants) in query.fetch_all(&mut *db).await? {
            if seen.get(name.as_str()).is_some_and(|seen| seen.grants == grants) {
                new += 1;
            }
        }
    }
    Ok(new)
}

fn micros(time: Option<Timestamp>) -> Option<i64> {
    time.map(Timestamp::as_micros)
}

fn bind_grant<'q>(query: Bound<'q>, row: &(LeaseKey, Option<FencingToken>, Lease)) -> Bound<'q> {
    let (key, previous, lease) = row;
    query
        .bind(lease.token.as_i64())
        .bind(key.as_str().to_owned())
        .bind(previous.map(FencingToken::as_i64))
        .bind(lease.owner.as_str().to_owned())
        .bind(lease.job_key.as_ref().map(|job_key| job_key.as_str().to_owned()))
        .bind(lease.acquired_at.as_micros())
        .bind(lease.expires_at.as_micros())
        .bind(lease.updated_at.as_micros())
        .bind(lease.ttl.as_micros())
        .bind(i64::from(lease.renewals))
        .bind(micros(lease.max_hold_until))
        .bind(micros(lease.min_hold_until))
        .bind(lease.lock_delay.as_micros())
        .bind(serde_json::to_string(&lease.subjects).unwrap_or_else(|_| "[]".to_owned()))
        .bind(lease.metadata.as_str().to_owned())
        .bind(lease.breaking.as_ref().map(|breaking| breaking.ends_at.as_micros()))
        .bind(lease.breaking.as_ref().and_then(|breaking| serde_json::to_string(breaking).ok()))
        .bind(lease.ended.map(|ended| ended.outcome.as_str()))
        .bind(micros(lease.ended.map(|ended| ended.at)))
}

impl GrantDelta {
    fn note(&mut self, event: &Event) {
        self.updated_at = event.at;
        match &event.change {
            Change::Renewed(renewed) => {
                self.expires_at = Some(renewed.expires_at);
                self.ttl = Some(renewed.ttl_us.as_micros());
                self.renewals += 1;
            }
            Change::Breaking(requested) => {
                self.expires_at = Some(requested.expires_at);
                let breaking = domain::lease::Breaking {
                    ends_at: requested.ends_at,
                    asked_at: event.at,
                    reason: requested.reason.clone(),
                    by: Arc::clone(&event.actor),
                };
                self.breaking = serde_json::to_string(&breaking).ok().map(|text| (requested.ends_at, text));
            }
            change => {
                if let Some((outcome, ended)) = change.ended() {
                    self.expires_at = Some(ended.ended_at);
                    self.ended = Some((outcome, ended.ended_at));
                }
            }
        }
    }

    fn bind<'q>(&self, query: Bound<'q>, token: FencingToken) -> Bound<'q> {
        query
            .bind(token.as_i64())
            .bind(micros(self.expires_at))
            .bind(self.updated_at.as_micros())
            .bind(self.ttl)
            .bind(self.renewals)
            .bind(self.breaking.as_ref().map(|(ends_at, _)| ends_at.as_micros()))
            .bind(self.breaking.as_ref().map(|(_, text)| text.clone()))
            .bind(self.ended.map(|(outcome, _)| outcome.as_str()))
            .bind(micros(self.ended.map(|(_, at)| at)))
    }
}

impl KeyDelta {
    fn bind<'q>(&self, query: Bound<'q>, key: &LeaseKey) -> Bound<'q> {
        query
            .bind(key.as_str().to_owned())
            .bind(self.token.map(FencingToken::as_i64))
            .bind(micros(self.expires_at))
            .bind(micros(self.updated_at))
            .bind(self.live.map(i64::from))
            .bind(self.cooling_until)
            .bind(self.quarantine.clone())
            .bind(self.changed_at.as_micros())
    }
}
