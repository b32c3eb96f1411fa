//! Writing what lines come to: many rows a statement, in the order of their keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::lease::FencingToken;
use domain::{LeaseKey, Timestamp};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection};

use super::super::bulk::Bulk;
use crate::error::StoreError;
use crate::timeline::{Changes, GrantDelta, KeyDelta, Made, MinuteDelta, Seen};

// "OR ROLLBACK" since a statement that fails takes the whole transaction with it anyway: without it SQLite keeps a copy of
// every page that a statement of many rows changes, to undo that statement alone. (For an upsert it does so all the same.)
static INSERT_GRANTS: Bulk<4> = Bulk::new(
    "-- project grants made\nINSERT OR ROLLBACK INTO grants (token, lease_key, previous, owner, job_key, acquired_at, expires_at, \
     updated_at, ttl, renewals, recent_renewals, max_hold_until, min_hold_until, lock_delay, subjects, metadata, \
     break_ends_at, breaking, outcome, ended_at) VALUES",
    20,
    "",
);
/// Absent values leave what is there; the number of renewals is how many more.
static UPDATE_GRANTS: Bulk<4> = Bulk::new(
    "-- project grants changed\nUPDATE OR ROLLBACK grants SET expires_at = coalesce(d.column2, expires_at), \
     updated_at = d.column3, ttl = coalesce(d.column4, ttl), renewals = renewals + d.column5, \
     break_ends_at = coalesce(d.column6, break_ends_at), breaking = coalesce(d.column7, breaking), \
     outcome = coalesce(d.column8, outcome), ended_at = coalesce(d.column9, ended_at), \
     recent_renewals = substr(recent_renewals || d.column10, -768) FROM (VALUES",
    10,
    ") AS d WHERE grants.token = d.column1",
);
static INSERT_SUBJECTS: Bulk<4> = Bulk::new(
    "-- project subjects\nINSERT OR ROLLBACK INTO subjects (subject, token) VALUES",
    2,
    "ON CONFLICT DO NOTHING",
);
/// Absent values leave what is there.
static UPDATE_KEYS: Bulk<4> = Bulk::new(
    "-- project keys changed\nUPDATE OR ROLLBACK keys SET token = coalesce(d.column2, token), \
     expires_at = coalesce(d.column3, expires_at), updated_at = coalesce(d.column4, updated_at), \
     live = coalesce(d.column5, live), cooling_until = coalesce(d.column6, cooling_until), \
     quarantine = coalesce(d.column7, quarantine), changed_at = d.column8 FROM (VALUES",
    8,
    ") AS d WHERE keys.lease_key = d.column1",
);
/// The same for keys that may be new.
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
static INSERT_INTERVENTIONS: Bulk<4> = Bulk::new(
    "-- project interventions\nINSERT OR ROLLBACK INTO interventions (lease_key, position, event) VALUES",
    3,
    "ON CONFLICT DO NOTHING",
);
static UPSERT_ACTIVITY: Bulk<4> = Bulk::new(
    "-- project activity\nINSERT OR ROLLBACK INTO activity (minute, granted, renewed, released, cut_short, refused) VALUES",
    6,
    "ON CONFLICT (minute) DO UPDATE SET granted = granted + excluded.granted, renewed = renewed + excluded.renewed, \
     released = released + excluded.released, cut_short = cut_short + excluded.cut_short, \
     refused = refused + excluded.refused",
);
const LIVE: &str = "-- leases without a recorded end\nSELECT value FROM counters WHERE name = 'live'";
const SET_HELD: &str = "-- project leases held\nUPDATE activity SET held = ?2 WHERE minute = ?1";
const ADD_TO_COUNTER: &str = "-- project counter\nUPDATE counters SET value = value + ?2 WHERE name = ?1";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> impl Iterator<Item = &'static str> {
    let bulks = [
        &INSERT_GRANTS,
        &UPDATE_GRANTS,
        &INSERT_SUBJECTS,
        &UPDATE_KEYS,
        &UPSERT_KEYS,
        &UPSERT_OWNERS,
        &UPSERT_JOBS,
        &UPSERT_COLLISIONS,
        &UPSERT_COLLISION_DAYS,
        &INSERT_INTERVENTIONS,
        &UPSERT_ACTIVITY,
    ];
    bulks.into_iter().flat_map(Bulk::all).chain([LIVE, ADD_TO_COUNTER, SET_HELD])
}

/// Writes all of it.
pub(super) async fn changes(changes: &Changes, db: &mut SqliteConnection) -> Result<(), StoreError> {
    let mut held: i64 = sqlx::query_scalar(LIVE).fetch_one(&mut *db).await?;
    let granted = i64::try_from(changes.made.len()).unwrap_or(i64::MAX);
    let subjects: Vec<(FencingToken, &str)> = changes
        .made
        .iter()
        .flat_map(|(token, made)| made.lease.subjects.iter().map(|subject| (*token, subject.as_str())))
        .collect();
    let made: Vec<_> = changes.made.values().collect();
    for (sql, rows) in INSERT_GRANTS.statements(&made) {
        rows.iter().fold(sqlx::query(sql), |query, row| bind_grant(query, row)).execute(&mut *db).await?;
    }
    for (sql, rows) in INSERT_SUBJECTS.statements(&subjects) {
        let bind = |query: Bound<'static>, (token, subject): &(FencingToken, &str)| {
            query.bind((*subject).to_owned()).bind(token.as_i64())
        };
        rows.iter().fold(sqlx::query(sql), bind).execute(&mut *db).await?;
    }
    let changed: Vec<_> = changes.changed.iter().collect();
    for (sql, rows) in UPDATE_GRANTS.statements(&changed) {
        let query = rows.iter().fold(sqlx::query(sql), |query, (token, delta)| bind_change(query, **token, delta));
        query.execute(&mut *db).await?;
    }
    let (new, known): (Vec<_>, Vec<_>) = changes.keys.iter().partition(|(_, delta)| delta.is_new);
    for (sql, rows) in UPSERT_KEYS.statements(&new).chain(UPDATE_KEYS.statements(&known)) {
        rows.iter().fold(sqlx::query(sql), |query, (key, delta)| bind_key(query, key, delta)).execute(&mut *db).await?;
    }
    let owners = upsert_seen(db, &UPSERT_OWNERS, &changes.owners).await?;
    let jobs = upsert_seen(db, &UPSERT_JOBS, &changes.jobs).await?;
    let collisions: Vec<_> = changes.collisions.iter().collect();
    for (sql, rows) in UPSERT_COLLISIONS.statements(&collisions) {
        let query = rows.iter().fold(sqlx::query(sql), |query, ((key, owner), (times, at))| {
            query.bind(key.as_str().to_owned()).bind(owner.to_string()).bind(times.cast_signed()).bind(at.as_micros())
        });
        query.execute(&mut *db).await?;
    }
    let days: Vec<_> = changes.collision_days.iter().collect();
    for (sql, rows) in UPSERT_COLLISION_DAYS.statements(&days) {
        let query = rows.iter().fold(sqlx::query(sql), |query, ((day, key), times)| {
            query.bind(*day).bind(key.as_str().to_owned()).bind(times.cast_signed())
        });
        query.execute(&mut *db).await?;
    }
    let first_grants = made.iter().filter(|made| made.previous.is_none()).count();
    let counted = [
        ("grants", granted),
        ("live", changes.live),
        ("keys", i64::try_from(first_grants).unwrap_or(i64::MAX)),
        ("owners", owners),
        ("jobs", jobs),
        ("collisions", changes.refused),
    ];
    for (name, by) in counted {
        if by != 0 {
            sqlx::query(ADD_TO_COUNTER).bind(name).bind(by).execute(&mut *db).await?;
        }
    }
    for (sql, rows) in INSERT_INTERVENTIONS.statements(&changes.interventions) {
        let query = rows.iter().fold(sqlx::query(sql), |query, (key, position, event)| {
            query.bind(key.as_str().to_owned()).bind(position.0).bind(event.to_string())
        });
        query.execute(&mut *db).await?;
    }
    let minutes: Vec<_> = changes.minutes.iter().collect();
    for (sql, rows) in UPSERT_ACTIVITY.statements(&minutes) {
        let query = rows.iter().fold(sqlx::query(sql), |query, (minute, happened)| {
            let MinuteDelta { granted, renewed, released, cut_short, refused, live: _ } = **happened;
            query.bind(**minute).bind(granted).bind(renewed).bind(released).bind(cut_short).bind(refused)
        });
        query.execute(&mut *db).await?;
    }
    for (minute, happened) in minutes {
        held += happened.live;
        sqlx::query(SET_HELD).bind(*minute).bind(held).execute(&mut *db).await?;
    }
    Ok(())
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

fn bind_grant<'q>(query: Bound<'q>, made: &Made) -> Bound<'q> {
    let Made { lease_key, previous, lease, renewals } = made;
    query
        .bind(lease.token.as_i64())
        .bind(lease_key.as_str().to_owned())
        .bind(previous.map(FencingToken::as_i64))
        .bind(lease.owner.as_str().to_owned())
        .bind(lease.job_key.as_ref().map(|job_key| job_key.as_str().to_owned()))
        .bind(lease.acquired_at.as_micros())
        .bind(lease.expires_at.as_micros())
        .bind(lease.updated_at.as_micros())
        .bind(lease.ttl.as_micros())
        .bind(i64::from(lease.renewals))
        .bind(renewals.0.clone())
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

fn bind_change<'q>(query: Bound<'q>, token: FencingToken, delta: &GrantDelta) -> Bound<'q> {
    query
        .bind(token.as_i64())
        .bind(micros(delta.expires_at))
        .bind(delta.updated_at.as_micros())
        .bind(delta.ttl)
        .bind(delta.renewals)
        .bind(delta.breaking.as_ref().map(|(ends_at, _)| ends_at.as_micros()))
        .bind(delta.breaking.as_ref().map(|(_, text)| text.clone()))
        .bind(delta.ended.map(|(outcome, _)| outcome.as_str()))
        .bind(micros(delta.ended.map(|(_, at)| at)))
        .bind(delta.recent.0.clone())
}

fn bind_key<'q>(query: Bound<'q>, key: &LeaseKey, delta: &KeyDelta) -> Bound<'q> {
    query
        .bind(key.as_str().to_owned())
        .bind(delta.token.map(FencingToken::as_i64))
        .bind(micros(delta.expires_at))
        .bind(micros(delta.updated_at))
        .bind(delta.live.map(i64::from))
        .bind(delta.cooling_until)
        .bind(delta.quarantine.clone())
        .bind(delta.changed_at.as_micros())
}
