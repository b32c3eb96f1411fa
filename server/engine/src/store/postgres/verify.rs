//! Checking the timeline in a shared database.

use super::follow::StoredLines;
use super::open::hash;
use super::url::PostgresUrl;
use crate::error::StoreError;
use crate::timeline::{Position, Verified, VerifyError, check};

const ENDS: &str = "-- base and end\nSELECT base_position, base_hash, position, hash FROM job_leases.head WHERE id = 1";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![ENDS]
}

/// Checks the timeline in a shared database: no line missing, none changed, each chained to the one before, up to the end that
/// is noted there. What has no position yet is not looked at.
///
/// # Errors
/// At the first line that is wrong, or if the database cannot be read.
pub async fn verify(url: &PostgresUrl) -> Result<Verified, VerifyError> {
    let (_, via) = url.ways()?;
    let mut tx = via.begin().await?;
    let ends = via.query_as(ENDS).fetch_one(&mut *tx).await.map_err(StoreError::from)?;
    let (base, base_hash, head, head_hash): (i64, Vec<u8>, i64, Vec<u8>) = ends;
    tx.commit().await?;
    let (base, end) = ((Position(base), hash(&base_hash)?), (Position(head), hash(&head_hash)?));
    let checked = check(&StoredLines(via.clone()), base, Some(end)).await;
    via.close().await;
    checked
}
