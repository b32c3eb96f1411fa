//! Earlier leases of a key, which its row does not tell any more: from the read models, and from what these have not come to.

use std::collections::HashMap;

use domain::LeaseKey;
use domain::lease::{Change, FencingToken, Lease, LeaseId};
use sqlx::{PgConnection, Row as _};

use super::link::in_time;
use super::log;
use super::rows::{self, grant_columns};
use super::via::Via;
use crate::error::StoreError;
use crate::timeline::Record;

/// What the read models have not come to, of some leases, in the order in which it happened; and how far they have come. There
/// is little of it. One statement, so that no line is seen both with and without a position.
const TAIL: &str = "-- load former: tail\nWITH tail AS (SELECT 0 AS stage, t.position AS n, t.body FROM job_leases.timeline AS t \
     WHERE t.position > (SELECT applied FROM job_leases_views.progress WHERE id = 1) \
     UNION ALL SELECT 1, l.id, l.body FROM job_leases.log AS l) \
     SELECT (SELECT applied FROM job_leases_views.progress WHERE id = 1), \
     ARRAY(SELECT body FROM tail WHERE body LIKE ANY ($1) ORDER BY stage, n)";
const GRANTS: &str = concat!(
    "-- load former: grants\nSELECT g.lease_key, p.applied, ",
    grant_columns!(),
    " FROM job_leases_views.progress AS p LEFT JOIN job_leases_views.grants AS g ON g.token = ANY ($1) WHERE p.id = 1"
);

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![TAIL, GRANTS]
}

/// Earlier leases of these very keys, which we have locked, as far as they are still known.
pub(super) async fn load(
    via: &Via,
    db: &mut PgConnection,
    wanted: &[(LeaseKey, FencingToken)],
) -> Result<Vec<Lease>, StoreError> {
    let tokens: Vec<i64> = wanted.iter().map(|(_, token)| token.as_i64()).collect();
    let names: Vec<String> = wanted.iter().map(|(_, token)| format!("%\"{}\"%", LeaseId::from(*token))).collect();
    loop {
        let tail = via.query_as(TAIL).bind(&names).fetch_one(&mut *db);
        let (before, tail): (i64, Vec<String>) = in_time(tail).await?;
        let found = in_time(via.query(GRANTS).bind(&tokens).fetch_all(&mut *db)).await?;
        let mut leases: HashMap<FencingToken, (String, Lease)> = HashMap::new();
        let mut applied = before;
        for row in &found {
            applied = row.try_get("applied")?;
            if let Some(lease_key) = row.try_get::<Option<String>, _>("lease_key")? {
                let lease = rows::lease(row)?;
                leases.insert(lease.token, (lease_key, lease));
            }
        }
        if applied != before {
            // They moved on in between; what they have now would be applied twice.
            continue;
        }
        for body in tail.iter().flat_map(|row| log::lines(row)) {
            follow(&mut leases, body)?;
        }
        let of_its_key = |(key, token): &(LeaseKey, FencingToken)| {
            let (of, lease) = leases.get(token)?;
            // A lease of another key is none of this one.
            (key.as_str() == of && lease.ended.is_some()).then(|| lease.clone())
        };
        return Ok(wanted.iter().filter_map(of_its_key).collect());
    }
}

fn follow(leases: &mut HashMap<FencingToken, (String, Lease)>, body: &str) -> Result<(), StoreError> {
    let record: Record = serde_json::from_str(body).map_err(StoreError::corrupt)?;
    let Record::Lease(event) = record else { return Ok(()) };
    if let Change::Granted(granted) = &event.change {
        let lease = Lease::granted(granted, event.at);
        leases.insert(lease.token, (event.lease_key.as_str().to_owned(), lease));
    } else if let Some((_, lease)) = event.change.token().and_then(|token| leases.get_mut(&token)) {
        lease.apply(&event);
    }
    Ok(())
}
