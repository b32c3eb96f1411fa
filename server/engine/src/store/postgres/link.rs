//! One transaction's connection: from BEGIN to its end it is nobody else's. If that end does not come (an error, somebody who
//! hangs up half way, a network that swallows everything) the connection is cut, so that nothing of it lingers in the pool.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sqlx::{PgConnection, SqlSafeStr};

use super::via::{Borrowed, Via};
use super::warned::heeding;
use crate::error::StoreError;
use crate::store::CommitError;

/// How long the database may take for one step. A network that swallows everything would hold a lane for ever.
const PATIENCE: Duration = Duration::from_secs(5);

const BEGIN: &str = "BEGIN";
/// Behind a pooler what connections of our own are [set to](super::url) must be said in every transaction.
const BEGIN_POOLED: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '3s'; SET LOCAL lock_timeout = '2s'";
/// The lock is shared by all who change leases, and taken alone by who records an outage: what was decided before one is committed
/// before it.
const BEGIN_WRITING: &str = "BEGIN; SELECT pg_advisory_xact_lock_shared(7411074111)";
const BEGIN_WRITING_POOLED: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '3s'; \
     SET LOCAL lock_timeout = '2s'; SET LOCAL enable_seqscan = off; SET LOCAL jit = off; \
     SELECT pg_advisory_xact_lock_shared(7411074111)";
/// The same where the server would acknowledge what is not durable.
const BEGIN_DURABLE: &str = "BEGIN; SET LOCAL synchronous_commit = on; SELECT pg_advisory_xact_lock_shared(7411074111)";
const BEGIN_DURABLE_POOLED: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '3s'; \
     SET LOCAL lock_timeout = '2s'; SET LOCAL enable_seqscan = off; SET LOCAL jit = off; \
     SET LOCAL synchronous_commit = on; SELECT pg_advisory_xact_lock_shared(7411074111)";
/// See [`BEGIN_WRITING`].
pub(super) const ALONE: &str = "-- alone\nSELECT pg_advisory_xact_lock(7411074111)";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";
const HOW_DURABLE: &str = "-- how durable\nSELECT current_setting('synchronous_commit')";

/// How transactions begin on this database that change leases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning(&'static str);

impl Beginning {
    /// Whether a statement that begins none is as good.
    pub(super) fn is_plain(self) -> bool {
        self.0 == BEGIN_WRITING
    }

    /// By what the server was set to: what is stricter than needed stays so.
    pub(super) async fn of(via: &Via) -> Result<Self, StoreError> {
        let mut link = Link::begin(via).await?;
        let setting: String = in_time(via.query_scalar(HOW_DURABLE).fetch_one(&mut *link)).await?;
        link.commit().await?;
        let is_durable = matches!(&*setting, "on" | "remote_apply");
        Ok(Self(match (is_durable, via.is_pooled()) {
            (true, false) => BEGIN_WRITING,
            (true, true) => BEGIN_WRITING_POOLED,
            (false, false) => BEGIN_DURABLE,
            (false, true) => BEGIN_DURABLE_POOLED,
        }))
    }
}

/// A transaction.
pub(crate) struct Link {
    borrowed: Option<Borrowed>,
    /// Where the connection is given back.
    via: Via,
    /// One statement that is a transaction by itself.
    single: bool,
}

impl From<Failed> for CommitError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(error) => Self::RolledBack(error),
            Failed::Unknown(error) => Self::Unknown(error),
        }
    }
}

/// How a commit failed.
pub(super) enum Failed {
    /// The database said so: nothing happened.
    Refused(StoreError),
    /// It said nothing; or that it happened there, and perhaps nowhere else.
    Unknown(StoreError),
}

/// Carries out one step, if the database does so in time: else nothing is known of the connection, which must be dropped.
pub(super) async fn in_time<R>(step: impl Future<Output = Result<R, sqlx::Error>>) -> Result<R, StoreError> {
    match tokio::time::timeout(PATIENCE, step).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(StoreError::Silent),
    }
}

impl Link {
    /// Begins a transaction.
    pub(super) async fn begin(via: &Via) -> Result<Self, StoreError> {
        Self::begin_with(via, if via.is_pooled() { BEGIN_POOLED } else { BEGIN }).await
    }

    /// For one statement, and what it did is committed with it. That saves the database two questions of three.
    pub(super) async fn for_one(via: &Via) -> Result<Self, StoreError> {
        if via.is_pooled() {
            return Self::begin(via).await;
        }
        Ok(Self { borrowed: Some(via.borrow().await?), via: via.clone(), single: true })
    }

    /// The same over a connection that was in use not longer ago than this, if there is one. Whether a connection still stands shows
    /// otherwise only when what was to be done may have been done.
    pub(super) fn for_one_warm(via: &Via, within: Duration) -> Option<Self> {
        Some(Self { borrowed: Some(via.borrow_warm(within)?), via: via.clone(), single: true })
    }

    /// Carries out a transaction from BEGIN to COMMIT of which nothing is asked.
    pub(super) async fn all_at_once(via: &Via, sql: impl SqlSafeStr) -> Result<(), StoreError> {
        let mut link = Self { borrowed: Some(via.borrow().await?), via: via.clone(), single: true };
        in_time(sqlx::raw_sql(sql).execute(link.db()?)).await?;
        link.give_back();
        Ok(())
    }

    /// Begins one that changes leases.
    pub(super) async fn begin_writing(via: &Via, Beginning(sql): Beginning) -> Result<Self, StoreError> {
        Self::begin_with(via, sql).await
    }

    async fn begin_with(via: &Via, sql: &'static str) -> Result<Self, StoreError> {
        let mut attempts = 0;
        loop {
            let mut link = Self { borrowed: Some(via.borrow().await?), via: via.clone(), single: false };
            match link.send(sql).await {
                // This connection was cut since it was last used; others may have been, too.
                Err(error) if error.is_cut() && attempts < via.pool().options().get_max_connections() => {
                    via.distrust_idle();
                    attempts += 1;
                }
                begun => {
                    begun?;
                    return Ok(link);
                }
            }
        }
    }

    /// No transaction.
    pub(super) fn none(via: &Via) -> Self {
        Self { borrowed: None, via: via.clone(), single: false }
    }

    /// The connection, for one step that is [in time](in_time) or the end of this transaction.
    pub(super) fn db(&mut self) -> Result<&mut PgConnection, StoreError> {
        self.borrowed.as_mut().map(|borrowed| &mut *borrowed.connection).ok_or(StoreError::Closed)
    }

    async fn send(&mut self, sql: &'static str) -> Result<(), StoreError> {
        in_time(sqlx::raw_sql(sql).execute(self.db()?)).await.map(|_| ())
    }

    pub(super) async fn commit(self) -> Result<(), StoreError> {
        self.try_commit().await.map_err(|failed| match failed {
            Failed::Refused(error) | Failed::Unknown(error) => error,
        })
    }

    /// The same, telling whether it may have happened although it failed.
    pub(super) async fn try_commit(mut self) -> Result<(), Failed> {
        if self.single {
            self.give_back();
            return Ok(());
        }
        let ended = heeding(self.send(COMMIT)).await;
        self.ended(ended)
    }

    /// Carries out a statement [for which alone](Self::for_one_warm) this is, and with which all it does is committed.
    pub(super) async fn alone<R>(
        mut self,
        statement: impl AsyncFnOnce(&mut PgConnection) -> Result<R, sqlx::Error>,
    ) -> Result<R, Failed> {
        let db = self.db().map_err(Failed::Refused)?;
        let ended = heeding(in_time(statement(db))).await;
        self.ended(ended)
    }

    /// What came of a step that ended this transaction, and what the database warned of meanwhile.
    fn ended<R>(mut self, (ended, warning): (Result<R, StoreError>, Option<String>)) -> Result<R, Failed> {
        match ended {
            Ok(done) => {
                self.give_back();
                // Such as that it is not known whether a replica has it: then a server that takes over may not.
                warning.map_or(Ok(done), |warning| Err(Failed::Unknown(StoreError::Unconfirmed(warning))))
            }
            Err(error @ StoreError::Database(sqlx::Error::Database(_))) if !error.is_away() => {
                if self.single {
                    self.give_back();
                }
                Err(Failed::Refused(error))
            }
            Err(error) => Err(Failed::Unknown(error)),
        }
    }

    pub(super) async fn rollback(mut self) {
        // Else the connection is cut, which comes to the same.
        if self.single || self.send(ROLLBACK).await.is_ok() {
            self.give_back();
        }
    }

    /// For others to use.
    fn give_back(&mut self) {
        if let Some(borrowed) = self.borrowed.take() {
            self.via.give_back(borrowed);
        }
    }
}

impl Deref for Link {
    type Target = PgConnection;
    fn deref(&self) -> &PgConnection {
        // It is given back only at the end of the transaction, which takes the link.
        self.borrowed.as_ref().map(|borrowed| &*borrowed.connection).expect("a transaction that has begun")
    }
}

impl DerefMut for Link {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.borrowed.as_mut().map(|borrowed| &mut *borrowed.connection).expect("a transaction that has begun")
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(borrowed) = self.borrowed.take() {
            drop(borrowed.connection.detach());
            if self.single {
                self.via.distrust_idle();
            }
        }
    }
}
