//! Taking away what has been kept long enough.

use domain::Timestamp;
use sqlx::PgConnection;

use super::kept;
use super::link::in_time;
use super::via::Via;
use crate::error::StoreError;
use crate::store::Retain;

const SET_BASE: &str = "-- retain: base\nUPDATE job_leases.head SET base_position = $1, \
     base_hash = (SELECT hash FROM job_leases.timeline WHERE position = $1) WHERE id = 1 AND base_position < $1";
const RETAIN_LINES: &str = "-- retain: lines\nDELETE FROM job_leases.timeline WHERE position <= $1";
const RETAIN_IDEMPOTENCY: &str = "-- retain: idempotency\nDELETE FROM job_leases.idempotency WHERE (caller, key) IN \
     (SELECT caller, key FROM job_leases.idempotency WHERE created_at < $1 ORDER BY created_at LIMIT $2)";
const REMEMBERS_BEFORE: &str = "-- older idempotency records\nSELECT EXISTS (SELECT 1 FROM job_leases.idempotency \
     WHERE created_at < $1)";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![SET_BASE, RETAIN_LINES, RETAIN_IDEMPOTENCY, REMEMBERS_BEFORE]
}

pub(super) async fn write(via: &Via, db: &mut PgConnection, retain: &Retain) -> Result<(), StoreError> {
    if let Some(up_to) = retain.lines {
        kept::fold(via, db, up_to).await?;
        in_time(via.query(SET_BASE).bind(up_to.0).execute(&mut *db)).await?;
        in_time(via.query(RETAIN_LINES).bind(up_to.0).execute(&mut *db)).await?;
    }
    let records =
        via.query(RETAIN_IDEMPOTENCY).bind(retain.idempotency_before.as_micros()).bind(i64::from(retain.limit));
    in_time(records.execute(db)).await?;
    Ok(())
}

pub(super) async fn remembers_before(via: &Via, db: &mut PgConnection, before: Timestamp) -> Result<bool, StoreError> {
    in_time(via.query_scalar(REMEMBERS_BEFORE).bind(before.as_micros()).fetch_one(db)).await
}
