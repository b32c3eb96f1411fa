//! What retention keeps of keys: when lines are taken away, their keys' states as of the last of them are written in the
//! same transaction. Without it, read models that are lost after that could not be made anew, and a lease that is held
//! would be unknown.
//!
//! It is the replay of the lines themselves and never asks the read models: what is wrong with those is mended from here.

use std::collections::BTreeMap;

use domain::LeaseKey;
use domain::lease::{KeyState, Outage};
use sqlx::sqlite::SqliteConnection;

use super::bulk::Bulk;
use super::project;
use crate::error::StoreError;
use crate::timeline::{Happening, Position, Record};

/// How many keys at once when the read models are made anew.
const PIECE: u32 = 1_000;

const LINES_UP_TO: &str = "-- fold: lines\nSELECT position, body FROM timeline WHERE position <= ?1 ORDER BY position";
const LOAD_KEPT: &str =
    "-- fold: keys\nSELECT k.state FROM json_each(?1) AS w JOIN kept_keys AS k ON k.lease_key = w.value";
const LOAD_ALIVE: &str = "-- fold: alive\nSELECT state FROM kept_keys WHERE alive_until > ?1";
const KEPT_AFTER: &str = "-- kept keys\nSELECT state FROM kept_keys WHERE lease_key > ?1 ORDER BY lease_key LIMIT ?2";
static KEEP: Bulk<4> = Bulk::new(
    "-- keep keys\nINSERT INTO kept_keys (lease_key, state, alive_until) VALUES",
    3,
    "ON CONFLICT (lease_key) DO UPDATE SET state = excluded.state, alive_until = excluded.alive_until",
);

/// Every statement of this file, all on the truth, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    KEEP.all().chain([LINES_UP_TO, LOAD_KEPT, LOAD_ALIVE, KEPT_AFTER]).collect()
}

/// Folds all lines up to this one, which are about to be taken away, into the states of their keys.
pub(super) async fn fold(truth: &mut SqliteConnection, up_to: Position) -> Result<(), StoreError> {
    let bodies: Vec<(i64, String)> = sqlx::query_as(LINES_UP_TO).bind(up_to.0).fetch_all(&mut *truth).await?;
    let mut records = Vec::with_capacity(bodies.len());
    for (position, body) in bodies {
        let record: Record = serde_json::from_str(&body)
            .map_err(|error| StoreError::corrupt(format_args!("line {position} of the timeline: {error}")))?;
        records.push(record);
    }
    let mut keys = named(truth, &records).await?;
    for record in &records {
        match record {
            Record::Lease(event) => {
                let key = &event.lease_key;
                keys.entry(key.clone()).or_insert_with(|| KeyState::new(key.clone())).apply(event);
            }
            Record::Other(other) => {
                if let Happening::Outage(outage) = &other.happening {
                    through(truth, &mut keys, outage).await?;
                }
            }
        }
    }
    let keys: Vec<KeyState> = keys.into_values().collect();
    for (sql, states) in KEEP.statements(&keys) {
        let mut query = sqlx::query(sql);
        for state in states {
            let alive = state.lease.as_ref().filter(|lease| lease.ended.is_none());
            query = query
                .bind(state.lease_key.as_str().to_owned())
                .bind(serde_json::to_string(state).map_err(StoreError::corrupt)?)
                .bind(alive.map(|lease| lease.expires_at.as_micros()));
        }
        query.execute(&mut *truth).await?;
    }
    Ok(())
}

type Keys = BTreeMap<LeaseKey, KeyState>;

/// What was kept before of the keys that the records name.
async fn named(truth: &mut SqliteConnection, records: &[Record]) -> Result<Keys, StoreError> {
    let names: std::collections::BTreeSet<&LeaseKey> = records.iter().filter_map(Record::lease_key).collect();
    let names = serde_json::to_string(&names).map_err(StoreError::corrupt)?;
    let found: Vec<String> = sqlx::query_scalar(LOAD_KEPT).bind(names).fetch_all(truth).await?;
    found.iter().map(|text| state(text).map(|state| (state.lease_key.clone(), state))).collect()
}

/// Reads all keys through an outage: those that are at hand, and those kept before whose lease was alive at its start.
async fn through(truth: &mut SqliteConnection, keys: &mut Keys, outage: &Outage) -> Result<(), StoreError> {
    let from = outage.from.as_micros();
    let alive: Vec<String> = sqlx::query_scalar(LOAD_ALIVE).bind(from).fetch_all(truth).await?;
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

/// Begins new read models with all keys that were kept.
pub(super) async fn begin_views(views: &mut SqliteConnection, truth: &mut SqliteConnection) -> Result<(), StoreError> {
    let mut after = String::new();
    loop {
        let found: Vec<String> =
            sqlx::query_scalar(KEPT_AFTER).bind(after.clone()).bind(PIECE).fetch_all(&mut *truth).await?;
        let states = found.iter().map(|text| state(text)).collect::<Result<Vec<KeyState>, StoreError>>()?;
        let Some(last) = states.last() else { return Ok(()) };
        project::begin_with(views, &states).await?;
        last.lease_key.as_str().clone_into(&mut after);
    }
}
