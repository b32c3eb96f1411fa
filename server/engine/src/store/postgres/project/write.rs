//! Writing what lines come to: many rows a statement, in the order of their keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::lease::{FencingToken, LeaseStatus};
use domain::{LeaseKey, Timestamp};
use sqlx::Row as _;
use sqlx::postgres::{PgArguments, PgBindIterExt as _, PgConnection, Postgres};
use sqlx::query::Query;

use super::super::rows;
use super::super::via::Via;
use crate::error::StoreError;
use crate::timeline::{Changes, GrantDelta, KeyDelta, Made, MinuteDelta, Seen};

/// So many rows are one statement. Each of their columns is one parameter, so that the statement is the same for any number of
/// rows: differs from SQLite, which has no arrays.
const MOST: usize = 4_096;

const INSERT_GRANTS: &str = "-- project grants made\nINSERT INTO job_leases_views.grants (token, lease_key, previous, owner, \
     job_key, acquired_at, expires_at, updated_at, ttl, renewals, recent_renewals, max_hold_until, min_hold_until, lock_delay, \
     subjects, metadata, break_ends_at, breaking, outcome, ended_at) SELECT * FROM unnest($1::bigint[], $2::text[], \
     $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], \
     $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::text[], $17::bigint[], $18::text[], $19::text[], \
     $20::bigint[])";
/// Absent values leave what is there; the number of renewals is how many more.
const UPDATE_GRANTS: &str = "-- project grants changed\nUPDATE job_leases_views.grants AS g \
     SET expires_at = coalesce(d.expires_at, g.expires_at), updated_at = d.updated_at, ttl = coalesce(d.ttl, g.ttl), \
     renewals = g.renewals + d.renewals, break_ends_at = coalesce(d.break_ends_at, g.break_ends_at), \
     breaking = coalesce(d.breaking, g.breaking), outcome = coalesce(d.outcome, g.outcome), \
     ended_at = coalesce(d.ended_at, g.ended_at), recent_renewals = right(g.recent_renewals || d.recent_renewals, 768) \
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], \
     $9::bigint[], $10::text[]) AS d (token, expires_at, updated_at, ttl, renewals, break_ends_at, breaking, outcome, \
     ended_at, recent_renewals) WHERE g.token = d.token";
const INSERT_SUBJECTS: &str = "-- project subjects\nINSERT INTO job_leases_views.subjects (subject, token) \
     SELECT * FROM unnest($1::text[], $2::bigint[]) ON CONFLICT DO NOTHING";
const INSERT_RARE: &str = "-- project rare states\nINSERT INTO job_leases_views.rare_states (status, token) \
     SELECT * FROM unnest($1::text[], $2::bigint[]) ON CONFLICT DO NOTHING";
/// Those that were breaking and have ended.
const DELETE_BREAKING: &str = "-- project breaks that are over\nDELETE FROM job_leases_views.rare_states AS r \
     USING job_leases_views.grants AS g WHERE r.status = 'breaking' AND g.token = r.token AND g.outcome IS NOT NULL";
/// Absent values leave what is there.
const UPDATE_KEYS: &str = "-- project keys changed\nUPDATE job_leases_views.keys AS k SET token = coalesce(d.token, k.token), \
     expires_at = coalesce(d.expires_at, k.expires_at), updated_at = coalesce(d.updated_at, k.updated_at), \
     live = coalesce(d.live, k.live), cooling_until = coalesce(d.cooling_until, k.cooling_until), \
     quarantine = coalesce(d.quarantine, k.quarantine), changed_at = d.changed_at \
     FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::boolean[], $6::bigint[], $7::text[], $8::bigint[]) \
     AS d (lease_key, token, expires_at, updated_at, live, cooling_until, quarantine, changed_at) \
     WHERE k.lease_key = d.lease_key";
/// The same for keys that may be new.
const UPSERT_KEYS: &str = "-- project keys\nINSERT INTO job_leases_views.keys AS k (lease_key, token, expires_at, updated_at, \
     live, cooling_until, quarantine, changed_at) SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], \
     $5::boolean[], $6::bigint[], $7::text[], $8::bigint[]) ON CONFLICT (lease_key) DO UPDATE \
     SET token = coalesce(excluded.token, k.token), expires_at = coalesce(excluded.expires_at, k.expires_at), \
     updated_at = coalesce(excluded.updated_at, k.updated_at), live = coalesce(excluded.live, k.live), \
     cooling_until = coalesce(excluded.cooling_until, k.cooling_until), \
     quarantine = coalesce(excluded.quarantine, k.quarantine), changed_at = excluded.changed_at";
const UPSERT_OWNERS: &str = "-- project owners\nINSERT INTO job_leases_views.owners AS o (owner, first_seen_at, last_seen_at, \
     grants) SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) ON CONFLICT (owner) DO UPDATE \
     SET first_seen_at = least(o.first_seen_at, excluded.first_seen_at), \
     last_seen_at = greatest(o.last_seen_at, excluded.last_seen_at), grants = o.grants + excluded.grants \
     RETURNING o.owner AS name, o.grants";
const UPSERT_JOBS: &str = "-- project jobs\nINSERT INTO job_leases_views.jobs AS j (job_key, first_seen_at, last_seen_at, \
     grants) SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) ON CONFLICT (job_key) DO UPDATE \
     SET first_seen_at = least(j.first_seen_at, excluded.first_seen_at), \
     last_seen_at = greatest(j.last_seen_at, excluded.last_seen_at), grants = j.grants + excluded.grants \
     RETURNING j.job_key AS name, j.grants";
const UPSERT_COLLISIONS: &str = "-- project collisions\nINSERT INTO job_leases_views.collisions AS c (lease_key, owner, times, \
     last_at) SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) ON CONFLICT (lease_key, owner) DO UPDATE \
     SET times = c.times + excluded.times, last_at = excluded.last_at";
const UPSERT_COLLISION_DAYS: &str = "-- project collisions by day\nINSERT INTO job_leases_views.collisions_by_day AS c \
     (day, lease_key, times) SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[]) \
     ON CONFLICT (day, lease_key) DO UPDATE SET times = c.times + excluded.times";
const INSERT_INTERVENTIONS: &str = "-- project interventions\nINSERT INTO job_leases_views.interventions (lease_key, position, \
     event) SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[]) ON CONFLICT DO NOTHING";
const UPSERT_ACTIVITY: &str = "-- project activity\nINSERT INTO job_leases_views.activity AS a (minute, granted, renewed, \
     released, cut_short, refused, held) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], \
     $5::bigint[], $6::bigint[], $7::bigint[]) ON CONFLICT (minute) DO UPDATE SET granted = a.granted + excluded.granted, \
     renewed = a.renewed + excluded.renewed, released = a.released + excluded.released, \
     cut_short = a.cut_short + excluded.cut_short, refused = a.refused + excluded.refused, held = excluded.held";
const LIVE: &str = "-- leases without a recorded end\nSELECT value FROM job_leases_views.counters WHERE name = 'live'";
const ADD_TO_COUNTERS: &str = "-- project counters\nUPDATE job_leases_views.counters AS c SET value = c.value + d.more \
     FROM unnest($1::text[], $2::bigint[]) AS d (name, more) WHERE c.name = d.name";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> impl Iterator<Item = &'static str> {
    let all = [
        INSERT_GRANTS,
        UPDATE_GRANTS,
        INSERT_SUBJECTS,
        INSERT_RARE,
        DELETE_BREAKING,
        UPDATE_KEYS,
        UPSERT_KEYS,
        UPSERT_OWNERS,
        UPSERT_JOBS,
        UPSERT_COLLISIONS,
        UPSERT_COLLISION_DAYS,
        INSERT_INTERVENTIONS,
        UPSERT_ACTIVITY,
        LIVE,
        ADD_TO_COUNTERS,
    ];
    all.into_iter()
}

/// Writes all of it.
pub(super) async fn changes(changes: &Changes, via: &Via, db: &mut PgConnection) -> Result<(), StoreError> {
    let held: i64 = via.query_scalar(LIVE).fetch_one(&mut *db).await?;
    grants(changes, via, db).await?;
    rare_states(changes, via, db).await?;
    keys(changes, via, db).await?;
    let owners = upsert_seen(via, db, UPSERT_OWNERS, &changes.owners).await?;
    let jobs = upsert_seen(via, db, UPSERT_JOBS, &changes.jobs).await?;
    collisions(changes, via, db).await?;
    let first_grants = changes.made.values().filter(|made| made.previous.is_none()).count();
    let counted = [
        ("grants", i64::try_from(changes.made.len()).unwrap_or(i64::MAX)),
        ("live", changes.live),
        ("keys", i64::try_from(first_grants).unwrap_or(i64::MAX)),
        ("owners", owners),
        ("jobs", jobs),
        ("collisions", changes.refused),
    ];
    let (names, more): (Vec<&str>, Vec<i64>) = counted.into_iter().filter(|(_, by)| *by != 0).unzip();
    if !names.is_empty() {
        via.query(ADD_TO_COUNTERS).bind(names).bind(more).execute(&mut *db).await?;
    }
    for rows in changes.interventions.chunks(MOST) {
        via.query(INSERT_INTERVENTIONS)
            .bind(rows.iter().map(|(key, _, _)| key.as_str()).bind_iter())
            .bind(rows.iter().map(|(_, position, _)| position.0).bind_iter())
            .bind(rows.iter().map(|(_, _, event)| &**event).bind_iter())
            .execute(&mut *db)
            .await?;
    }
    activity(changes, held, via, db).await
}

async fn grants(changes: &Changes, via: &Via, db: &mut PgConnection) -> Result<(), StoreError> {
    let made: Vec<_> = changes.made.values().collect();
    for rows in made.chunks(MOST) {
        bind_grants(via.query(INSERT_GRANTS), rows).execute(&mut *db).await?;
    }
    let subjects: Vec<(FencingToken, &str)> = changes
        .made
        .iter()
        .flat_map(|(token, made)| made.lease.subjects.iter().map(|subject| (*token, subject.as_str())))
        .collect();
    for rows in subjects.chunks(MOST) {
        via.query(INSERT_SUBJECTS)
            .bind(rows.iter().map(|(_, subject)| *subject).bind_iter())
            .bind(rows.iter().map(|(token, _)| token.as_i64()).bind_iter())
            .execute(&mut *db)
            .await?;
    }
    let changed: Vec<_> = changes.changed.iter().collect();
    for rows in changed.chunks(MOST) {
        bind_changes(via.query(UPDATE_GRANTS), rows).execute(&mut *db).await?;
    }
    Ok(())
}

/// Notes which grants are in a rare state, and that they are in it no longer. Differs from SQLite, whose indexes with a
/// condition see to it.
async fn rare_states(changes: &Changes, via: &Via, db: &mut PgConnection) -> Result<(), StoreError> {
    let made = changes.made.iter().map(|(token, made)| {
        let ended = made.lease.ended.map(|ended| ended.outcome);
        (*token, ended, made.lease.breaking.is_some())
    });
    let changed = changes.changed.iter().map(|(token, delta)| {
        let ended = delta.ended.map(|(outcome, _)| outcome);
        (*token, ended, delta.breaking.is_some())
    });
    let rare: Vec<(&'static str, FencingToken)> = made
        .chain(changed)
        .filter_map(|(token, ended, is_breaking)| {
            let status = match ended {
                Some(outcome) => LeaseStatus::Ended(outcome),
                None if is_breaking => LeaseStatus::Breaking,
                None => LeaseStatus::Held,
            };
            rows::is_rare(status).then_some((status.as_str(), token))
        })
        .collect();
    for rows in rare.chunks(MOST) {
        via.query(INSERT_RARE)
            .bind(rows.iter().map(|(status, _)| *status).bind_iter())
            .bind(rows.iter().map(|(_, token)| token.as_i64()).bind_iter())
            .execute(&mut *db)
            .await?;
    }
    if changes.changed.values().any(|delta| delta.ended.is_some()) {
        via.query(DELETE_BREAKING).execute(db).await?;
    }
    Ok(())
}

async fn keys(changes: &Changes, via: &Via, db: &mut PgConnection) -> Result<(), StoreError> {
    let (new, known): (Vec<_>, Vec<_>) = changes.keys.iter().partition(|(_, delta)| delta.is_new);
    for (sql, all) in [(UPSERT_KEYS, new), (UPDATE_KEYS, known)] {
        for rows in all.chunks(MOST) {
            bind_keys(via.query(sql), rows).execute(&mut *db).await?;
        }
    }
    Ok(())
}

/// Adds to owners or jobs, and says how many are new: those whose grants are all from now.
async fn upsert_seen(
    via: &Via,
    db: &mut PgConnection,
    sql: &'static str,
    seen: &BTreeMap<Arc<str>, Seen>,
) -> Result<i64, StoreError> {
    let all: Vec<_> = seen.iter().collect();
    let mut new = 0;
    for rows in all.chunks(MOST) {
        let found = via
            .query(sql)
            .bind(rows.iter().map(|(name, _)| &***name).bind_iter())
            .bind(rows.iter().map(|(_, seen)| seen.first.as_micros()).bind_iter())
            .bind(rows.iter().map(|(_, seen)| seen.last.as_micros()).bind_iter())
            .bind(rows.iter().map(|(_, seen)| seen.grants).bind_iter())
            .fetch_all(&mut *db)
            .await?;
        for row in &found {
            let (name, grants): (&str, i64) = (row.try_get("name")?, row.try_get("grants")?);
            if seen.get(name).is_some_and(|seen| seen.grants == grants) {
                new += 1;
            }
        }
    }
    Ok(new)
}

async fn collisions(changes: &Changes, via: &Via, db: &mut PgConnection) -> Result<(), StoreError> {
    let all: Vec<_> = changes.collisions.iter().collect();
    for rows in all.chunks(MOST) {
        via.query(UPSERT_COLLISIONS)
            .bind(rows.iter().map(|((key, _), _)| key.as_str()).bind_iter())
            .bind(rows.iter().map(|((_, owner), _)| &**owner).bind_iter())
            .bind(rows.iter().map(|(_, (times, _))| times.cast_signed()).bind_iter())
            .bind(rows.iter().map(|(_, (_, at))| at.as_micros()).bind_iter())
            .execute(&mut *db)
            .await?;
    }
    let days: Vec<_> = changes.collision_days.iter().collect();
    for rows in days.chunks(MOST) {
        via.query(UPSERT_COLLISION_DAYS)
            .bind(rows.iter().map(|((day, _), _)| *day).bind_iter())
            .bind(rows.iter().map(|((_, key), _)| key.as_str()).bind_iter())
            .bind(rows.iter().map(|(_, times)| times.cast_signed()).bind_iter())
            .execute(&mut *db)
            .await?;
    }
    Ok(())
}

/// Adds to the minutes, of which each tells how many leases were held at its end: `held` before the first of them.
async fn activity(changes: &Changes, mut held: i64, via: &Via, db: &mut PgConnection) -> Result<(), StoreError> {
    let minutes: Vec<(i64, MinuteDelta, i64)> = changes
        .minutes
        .iter()
        .map(|(minute, happened)| {
            held += happened.live;
            (*minute, *happened, held)
        })
        .collect();
    for rows in minutes.chunks(MOST) {
        via.query(UPSERT_ACTIVITY)
            .bind(rows.iter().map(|(minute, _, _)| *minute).bind_iter())
            .bind(rows.iter().map(|(_, happened, _)| happened.granted).bind_iter())
            .bind(rows.iter().map(|(_, happened, _)| happened.renewed).bind_iter())
            .bind(rows.iter().map(|(_, happened, _)| happened.released).bind_iter())
            .bind(rows.iter().map(|(_, happened, _)| happened.cut_short).bind_iter())
            .bind(rows.iter().map(|(_, happened, _)| happened.refused).bind_iter())
            .bind(rows.iter().map(|(_, _, held)| *held).bind_iter())
            .execute(&mut *db)
            .await?;
    }
    Ok(())
}

type Bound = Query<'static, Postgres, PgArguments>;

fn micros(time: Option<Timestamp>) -> Option<i64> {
    time.map(Timestamp::as_micros)
}

/// As it is stored; nothing if it cannot be written as JSON.
fn json(value: &(impl serde::Serialize + ?Sized)) -> Option<String> {
    serde_json::to_string(value).ok()
}

fn bind_grants(query: Bound, rows: &[&Made]) -> Bound {
    let leases = || rows.iter().map(|made| &made.lease);
    let breaking = || leases().map(|lease| lease.breaking.as_ref());
    let ended = || leases().map(|lease| lease.ended);
    query
        .bind(leases().map(|lease| lease.token.as_i64()).bind_iter())
        .bind(rows.iter().map(|made| made.lease_key.as_str()).bind_iter())
        .bind(rows.iter().map(|made| made.previous.map(FencingToken::as_i64)).bind_iter())
        .bind(leases().map(|lease| lease.owner.as_str()).bind_iter())
        .bind(leases().map(|lease| lease.job_key.as_ref().map(|job_key| job_key.as_str())).bind_iter())
        .bind(leases().map(|lease| lease.acquired_at.as_micros()).bind_iter())
        .bind(leases().map(|lease| lease.expires_at.as_micros()).bind_iter())
        .bind(leases().map(|lease| lease.updated_at.as_micros()).bind_iter())
        .bind(leases().map(|lease| lease.ttl.as_micros()).bind_iter())
        .bind(leases().map(|lease| i64::from(lease.renewals)).bind_iter())
        .bind(rows.iter().map(|made| made.renewals.0.as_str()).bind_iter())
        .bind(leases().map(|lease| micros(lease.max_hold_until)).bind_iter())
        .bind(leases().map(|lease| micros(lease.min_hold_until)).bind_iter())
        .bind(leases().map(|lease| lease.lock_delay.as_micros()).bind_iter())
        .bind(leases().map(|lease| json(&lease.subjects).unwrap_or_else(|| "[]".to_owned())).bind_iter())
        .bind(leases().map(|lease| lease.metadata.as_str()).bind_iter())
        .bind(breaking().map(|breaking| breaking.map(|breaking| breaking.ends_at.as_micros())).bind_iter())
        .bind(breaking().map(|breaking| breaking.and_then(json)).bind_iter())
        .bind(ended().map(|ended| ended.map(|ended| ended.outcome.as_str())).bind_iter())
        .bind(ended().map(|ended| micros(ended.map(|ended| ended.at))).bind_iter())
}

fn bind_changes(query: Bound, rows: &[(&FencingToken, &GrantDelta)]) -> Bound {
    let deltas = || rows.iter().map(|(_, delta)| *delta);
    query
        .bind(rows.iter().map(|(token, _)| token.as_i64()).bind_iter())
        .bind(deltas().map(|delta| micros(delta.expires_at)).bind_iter())
        .bind(deltas().map(|delta| delta.updated_at.as_micros()).bind_iter())
        .bind(deltas().map(|delta| delta.ttl).bind_iter())
        .bind(deltas().map(|delta| delta.renewals).bind_iter())
        .bind(deltas().map(|delta| micros(delta.breaking.as_ref().map(|(ends_at, _)| *ends_at))).bind_iter())
        .bind(deltas().map(|delta| delta.breaking.as_ref().map(|(_, text)| text.as_str())).bind_iter())
        .bind(deltas().map(|delta| delta.ended.map(|(outcome, _)| outcome.as_str())).bind_iter())
        .bind(deltas().map(|delta| micros(delta.ended.map(|(_, at)| at))).bind_iter())
        .bind(deltas().map(|delta| delta.recent.0.as_str()).bind_iter())
}

fn bind_keys(query: Bound, rows: &[(&LeaseKey, &KeyDelta)]) -> Bound {
    let deltas = || rows.iter().map(|(_, delta)| *delta);
    query
        .bind(rows.iter().map(|(key, _)| key.as_str()).bind_iter())
        .bind(deltas().map(|delta| delta.token.map(FencingToken::as_i64)).bind_iter())
        .bind(deltas().map(|delta| micros(delta.expires_at)).bind_iter())
        .bind(deltas().map(|delta| micros(delta.updated_at)).bind_iter())
        .bind(deltas().map(|delta| delta.live).bind_iter())
        .bind(deltas().map(|delta| delta.cooling_until).bind_iter())
        .bind(deltas().map(|delta| delta.quarantine.as_deref()).bind_iter())
        .bind(deltas().map(|delta| delta.changed_at.as_micros()).bind_iter())
}
