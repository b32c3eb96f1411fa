//! Rows of the read models as what they stand for.

use std::sync::Arc;

use domain::lease::{Breaking, Ending, FencingToken, Lease, LeaseStatus, Outcome};
use domain::{JobKey, LeaseKey, Metadata, Owner, Span, Subject, Timestamp};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::error::StoreError;

/// The columns of `grants` that [`lease`] reads, from a table known as `g`.
macro_rules! grant_columns {
    () => {
        "g.token, g.owner, g.job_key, g.acquired_at, g.expires_at, g.updated_at, g.ttl, g.renewals, g.max_hold_until, \
         g.min_hold_until, g.lock_delay, g.subjects, g.metadata, g.breaking, g.outcome, g.ended_at"
    };
}
pub(super) use grant_columns;

pub(super) fn token(number: i64) -> Result<FencingToken, StoreError> {
    u64::try_from(number)
        .ok()
        .and_then(FencingToken::new)
        .ok_or_else(|| StoreError::corrupt(format_args!("fencing token {number}")))
}

fn time(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

pub(super) fn lease_key(text: &str) -> Result<LeaseKey, StoreError> {
    LeaseKey::parse(text).map_err(|error| StoreError::corrupt(format_args!("lease key {text:?} {error}")))
}

/// Whether grants in this state are few among all: these are noted in `rare_states`, one by one.
pub(super) const fn is_rare(status: LeaseStatus) -> bool {
    !matches!(status, LeaseStatus::Held | LeaseStatus::Ended(Outcome::Released))
}

/// The lease of a row that has [`grant_columns`].
pub(super) fn lease(row: &PgRow) -> Result<Lease, StoreError> {
    let owner: &str = row.try_get("owner")?;
    let job_key: Option<&str> = row.try_get("job_key")?;
    let renewals: i64 = row.try_get("renewals")?;
    let subjects: &str = row.try_get("subjects")?;
    let metadata: &str = row.try_get("metadata")?;
    let breaking: Option<&str> = row.try_get("breaking")?;
    let outcome: Option<&str> = row.try_get("outcome")?;
    let ended_at: Option<i64> = row.try_get("ended_at")?;
    let ended = match (outcome, ended_at) {
        (Some(outcome), Some(at)) => {
            let outcome = Outcome::parse(outcome).ok_or_else(|| StoreError::corrupt(outcome))?;
            Some(Ending { outcome, at: time(at) })
        }
        _ => None,
    };
    let subjects: Arc<[Subject]> =
        if subjects == "[]" { Arc::from([]) } else { serde_json::from_str(subjects).map_err(StoreError::corrupt)? };
    Ok(Lease {
        token: token(row.try_get("token")?)?,
        owner: Owner::parse(owner).map_err(StoreError::corrupt)?,
        job_key: job_key.map(JobKey::parse).transpose().map_err(StoreError::corrupt)?,
        acquired_at: time(row.try_get("acquired_at")?),
        expires_at: time(row.try_get("expires_at")?),
        updated_at: time(row.try_get("updated_at")?),
        ttl: Span::from_micros(row.try_get("ttl")?),
        renewals: u32::try_from(renewals).map_err(StoreError::corrupt)?,
        max_hold_until: row.try_get::<Option<i64>, _>("max_hold_until")?.map(time),
        min_hold_until: row.try_get::<Option<i64>, _>("min_hold_until")?.map(time),
        lock_delay: Span::from_micros(row.try_get("lock_delay")?),
        subjects,
        metadata: if metadata == "{}" {
            Metadata::EMPTY
        } else {
            Metadata::parse(metadata).map_err(StoreError::corrupt)?
        },
        breaking: breaking.map(serde_json::from_str::<Breaking>).transpose().map_err(StoreError::corrupt)?,
        ended,
    })
}
