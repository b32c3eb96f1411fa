//! What retention keeps of keys: when lines are taken away, their keys' states as of the last of them are written in the
//! same transaction, so that read models which were lost can be made anew from here and the lines that are left.
//!
//! It is the replay of the lines themselves and never asks the rows of the keys, which are further by then.

use std::collections::{BTreeMap, BTreeSet};

use domain::LeaseKey;
use domain::lease::{KeyState, Outage};
use sqlx::PgConnection;

use super::link::in_time;
use super::project;
use super::via::Via;
use crate::error::StoreError;
use crate::timeline::{Happening, Position, Record};

/// How many keys at once when the read models are made anew.
const PIECE: i64 = 1_000;

const LINES_UP_TO: &str =
    "-- fold: lines\nSELECT position, body FROM job_leases.timeline WHERE position <= $1 ORDER BY position";
const LOAD_KEPT: &str = "-- fold: keys\nSELECT state FROM job_leases.kept_keys WHERE lease_key = ANY ($1)";
const LOAD_ALIVE: &str = "-- fold: alive\nSELECT state FROM job_leases.kept_keys WHERE alive_until > $1";
const KEPT_AFTER: &str =
    "-- kept keys\nSELECT state FROM job_leases.kept_keys WHERE lease_key > $1 ORDER BY lease_key LIMIT $2";
const KEEP: &str = "-- keep keys\nINSERT INTO job_leases.kept_keys (lease_key, state, alive_until) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]) \
     ON CONFLICT (lease_key) DO UPDATE SET state = excluded.state, alive_until = excluded.alive_until";
const LOCK_PROGRESS: &str = "-- begin views: lock\nSELECT p.applied, h.base_position, h.base_hash \
     FROM job_leases_views.progress AS p, job_leases.head AS h WHERE p.id = 1 AND h.id = 1 FOR UPDATE OF p";
const SET_PROGRESS: &str =
    "-- begin views: progress\nUPDATE job_leases_views.progress SET applied = $1, hash = $2 WHERE id = 1";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![LINES_UP_TO, LOAD_KEPT, LOAD_ALIVE, KEPT_AFTER, KEEP, LOCK_PROGRESS, SET_PROGRESS]
}

type Keys = BTreeMap<LeaseKey, KeyState>;

/// Folds all lines up to this one, which are about to be taken away, into the states of their keys.
pub(super) async fn fold(via: &Via, db: &mut PgConnection, up_to: Position) -> Result<(), StoreError> {
    let lines = via.query_as(LINES_UP_TO).bind(up_to.0).fetch_all(&mut *db);
    let bodies: Vec<(i64, String)> = in_time(lines).await?;
    let mut records = Vec::with_capacity(bodies.len());
    for (position, body) in bodies {
        let record: Record = serde_json::from_str(&body)
            .map_err(|error| StoreError::corrupt(format_args!("line {position} of the timeline: {error}")))?;
        records.push(record);
    }
    let mut keys = named(via, db, &records).await?;
    for record in &records {
        match record {
            Record::Lease(event) => {
                let key = &event.lease_key;
                keys.entry(key.clone()).or_insert_with(|| KeyState::new(key.clone())).apply(event);
            }
            Record::Other(other) => {
                if let Happening::Outage(outage) = &other.happening {
                    through(via, db, &mut keys, outage).await?;
                }
            }
        }
    }
    let names: Vec<&str> = keys.keys().map(LeaseKey::as_str).collect();
    let mut states = Vec::with_capacity(keys.len());
    let mut alive = Vec::with_capacity(keys.len());
    for state in keys.values() {
        states.push(serde_json::to_string(state).map_err(StoreError::corrupt)?);
        let lease = state.lease.as_ref().filter(|lease| lease.ended.is_none());
        alive.push(lease.map(|lease| lease.expires_at.as_micros()));
    }
    in_time(via.query(KEEP).bind(names).bind(states).bind(alive).execute(db)).await?;
    Ok(())
}

/// What was kept before of the keys that the records name.
async fn named(via: &Via, db: &mut PgConnection, records: &[Record]) -> Result<Keys, StoreError> {
    let names: BTreeSet<&str> = records.iter().filter_map(Record::lease_key).map(LeaseKey::as_str).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let found: Vec<String> = in_time(via.query_scalar(LOAD_KEPT).bind(names).fetch_all(db)).await?;
    found.iter().map(|text| state(text).map(|state| (state.lease_key.clone(), state))).collect()
}

/// Reads all keys through an outage: those that are at hand, and those kept before whose lease was alive at its start.
async fn through(via: &Via, db: &mut PgConnection, keys: &mut Keys, outage: &Outage) -> Result<(), StoreError> {
    let alive = via.query_scalar(LOAD_ALIVE).bind(outage.from.as_micros()).fetch_all(db);
    let alive: Vec<String> = in_time(alive).await?;
    for text in &alive {
        let state = state(text)?;
        // What is at hand is newer.
        keys.entry(state.lease_key.clone()).or_insert(state);
    }
    for state in keys.values_mut() {
        state.through(outage);
    }
    Ok(())
}

fn state(text: &str) -> Result<KeyState, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::corrupt(format_args!("a kept key: {error}")))
}

/// Begins new read models with all keys that were kept, if they have not come to where the kept lines begin: then they were made
/// anew.
pub(super) async fn begin_views(via: &Via) -> Result<(), StoreError> {
    let mut tx = via.begin().await?;
    begin_views_in(via, &mut tx).await?;
    tx.commit().await?;
    Ok(())
}

/// The same within a transaction.
pub(super) async fn begin_views_in(via: &Via, db: &mut PgConnection) -> Result<(), StoreError> {
    let (applied, base, hash): (i64, i64, Vec<u8>) = in_time(via.query_as(LOCK_PROGRESS).fetch_one(&mut *db)).await?;
    if applied >= base {
        return Ok(());
    }
    tracing::warn!(applied, base, "the read models begin with what retention has kept");
    let mut after = String::new();
    loop {
        let kept = via.query_scalar(KEPT_AFTER).bind(after.as_str()).bind(PIECE).fetch_all(&mut *db);
        let found: Vec<String> = in_time(kept).await?;
        let states = found.iter().map(|text| state(text)).collect::<Result<Vec<KeyState>, StoreError>>()?;
        let Some(last) = states.last() else { break };
        project::begin_with(via, db, &states).await?;
        last.lease_key.as_str().clone_into(&mut after);
    }
    in_time(via.query(SET_PROGRESS).bind(base).bind(hash).execute(db)).await?;
    Ok(())
}
