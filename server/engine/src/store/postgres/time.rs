//! Server time where nodes share a database: the clock of its server, and by how much server time is ahead of that.
//!
//! Another server that takes over has another clock. A node that lived through that knows by its own monotonic clock how much time
//! has passed, and writes down by how much the new clock is off, before anything is decided by it. All nodes go by that from then on:
//! they still agree on the time, and no lease is cut short or prolonged. What it is off by goes away by slewing.

use std::time::Duration;

use domain::{Span, Timestamp};
use sqlx::PgConnection;

use super::link::{ALONE, in_time};
use super::via::Via;
use crate::clock::{Clock, SLEW_PER_MILLION};
use crate::error::StoreError;

/// What tells server time, of `job_leases.service AS s`.
macro_rules! told_columns {
    () => {
        "job_leases.clock(), s.ahead, s.ahead_since, s.server = job_leases.server()"
    };
}
pub(super) use told_columns;

/// For how long the database has been at a statement when it tells the time in it, in microseconds of its own clock.
macro_rules! spent {
    () => {
        "(extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1000000)::bigint"
    };
}
pub(super) use spent;

/// What is read by [`told_columns`].
pub(super) type ToldRow = (i64, i64, i64, bool);

/// What a node knows of the time is late by the way from the database to it, and so may be another node's.
const MARGIN: Span = Span::millis(2);

/// For so long a node that starts waits for one that lived through the change of the server, which knows the time better.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(100);

const LOCK_TIME: &str = concat!(
    "-- lock time\nSELECT s.lived_at, ",
    told_columns!(),
    " FROM job_leases.service AS s WHERE s.id = 1 FOR UPDATE"
);
const SET_TIME: &str = "-- set time\nUPDATE job_leases.service SET server = job_leases.server(), ahead = $1, \
     ahead_since = $2 WHERE id = 1";
const MAY_BE_KNOWN: &str = "-- may the time be known\nSELECT s.server <> job_leases.server() \
     AND EXISTS (SELECT 1 FROM job_leases.nodes) FROM job_leases.service AS s WHERE s.id = 1";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![LOCK_TIME, SET_TIME, MAY_BE_KNOWN]
}

/// What the database told of the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// By the server's clock, in microseconds.
    clock: i64,
    ahead: i64,
    since: i64,
    /// It is known by how much that clock is off.
    pub(super) is_good: bool,
}

impl Told {
    pub(super) const fn new((clock, ahead, since, is_good): ToldRow) -> Self {
        Self { clock, ahead, since, is_good }
    }

    /// By how much server time is ahead of the server's clock now, in microseconds, and what tells that from any other time.
    pub(super) fn ahead(self) -> (i64, (i64, i64)) {
        (self.time().as_micros() - self.clock, (self.ahead, self.since))
    }

    /// Server time, if it is good.
    pub(super) fn time(self) -> Timestamp {
        let passed = (self.clock - self.since).max(0);
        let slewed = self
            .ahead
            .abs()
            .min(passed / 1_000_000 * SLEW_PER_MILLION + passed % 1_000_000 * SLEW_PER_MILLION / 1_000_000);
        Timestamp::from_micros(self.clock + self.ahead - self.ahead.signum() * slewed)
    }
}

/// With all others who change leases or the time kept out: reads the time, and sets it first by the clock of a node that lived
/// through it if the server is another; when the service lived last, and whether the time was set.
pub(super) async fn lock(via: &Via, db: &mut PgConnection, clock: &Clock) -> Result<(Timestamp, bool), StoreError> {
    let (lived_at, told) = read(via, db, LOCK_TIME).await?;
    if told.is_good {
        clock.observe(told.time());
        return Ok((lived_at, false));
    }
    let now = clock.at_least(lived_at) + MARGIN;
    set(via, db, told, now).await?;
    clock.at_least(now);
    Ok((lived_at, true))
}

/// For a node that starts: sees to it that the time is good. Nobody may know how much time has passed; then the server's clock is
/// believed, but for times that have been.
pub(super) async fn begin(via: &Via) -> Result<(), StoreError> {
    let mut waited = Duration::ZERO;
    while waited < PATIENCE {
        let mut tx = via.begin().await?;
        let may_be_known: bool = in_time(via.query_scalar(MAY_BE_KNOWN).fetch_one(&mut *tx)).await?;
        tx.commit().await?;
        if !may_be_known {
            break;
        }
        tokio::time::sleep(LOOK).await;
        waited += LOOK;
    }
    let mut tx = via.begin().await?;
    in_time(via.query(ALONE).execute(&mut *tx)).await?;
    let (lived_at, told) = read(via, &mut tx, LOCK_TIME).await?;
    if !told.is_good {
        set(via, &mut tx, told, lived_at.max(Timestamp::from_micros(told.clock))).await?;
    }
    tx.commit().await
}

/// When the service lived last, and the time, by a statement that reads `lived_at` and [`told_columns`].
pub(super) async fn read(via: &Via, db: &mut PgConnection, sql: &'static str) -> Result<(Timestamp, Told), StoreError> {
    type Row = (i64, i64, i64, i64, bool);
    let (lived_at, clock, ahead, since, is_good): Row = in_time(via.query_as(sql).fetch_one(db)).await?;
    Ok((Timestamp::from_micros(lived_at), Told::new((clock, ahead, since, is_good))))
}

async fn set(via: &Via, db: &mut PgConnection, told: Told, now: Timestamp) -> Result<(), StoreError> {
    let ahead = now.as_micros() - told.clock;
    in_time(via.query(SET_TIME).bind(ahead).bind(told.clock).execute(db)).await?;
    if ahead != 0 {
        tracing::warn!(ahead_us = ahead, "another database server tells the time; server time goes on as it did");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_clock_is_off_by_goes_away_slowly_and_time_never_goes_back() {
        for ahead in [500_000, -500_000, 0] {
            let start = 1_000_000_000_000;
            let told = |passed: i64| Told::new((start + passed, ahead, start, true)).time().as_micros();
            assert_eq!(told(0), start + ahead);
            assert_eq!(told(-1_000), start - 1_000 + ahead, "the clock was set back");
            assert_eq!(told(1_000_000), start + 1_000_000 + ahead - 500 * i64::signum(ahead));
            assert_eq!(told(2_000_000_000), start + 2_000_000_000);
            for passed in 0..10_000 {
                assert!(told(passed + 1) >= told(passed), "{ahead} {passed}");
            }
        }
    }
}
