//! How statements reach the database: over connections of our own, or through a pooler that lends one for each transaction.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgPool, PgRow};
use sqlx::query::{Query, QueryAs, QueryScalar};
use sqlx::{FromRow, Postgres};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::link::Link;
use crate::error::StoreError;

/// How long to wait for a connection.
pub(super) const ACQUIRE: Duration = Duration::from_secs(2);

/// The way to the database. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Via {
    pool: PgPool,
    idle: Arc<Idle>,
    /// A pooler may give every transaction another connection, which knows no statement that was prepared before. So nothing
    /// is prepared, and every statement belongs to a transaction.
    pooler: bool,
}

/// Connections that are ours and do nothing. The pool opens and closes connections, but would ask the database after each
/// transaction whether the connection still stands: one more question for every four. Here that shows when it is used again.
#[derive(Debug)]
struct Idle {
    /// As many as there may be connections, so that whoever has one finds a connection here or may open one.
    permits: Arc<Semaphore>,
    /// With the time since when; the last one was used last.
    parked: Mutex<Vec<(Instant, PoolConnection<Postgres>)>>,
}

/// A connection, and the right to have one.
pub(super) struct Borrowed {
    pub(super) connection: PoolConnection<Postgres>,
    _permit: OwnedSemaphorePermit,
}

impl Via {
    pub(super) fn new(pool: PgPool, pooler: bool) -> Self {
        let permits = Arc::new(Semaphore::new(pool.options().get_max_connections() as usize));
        Self { pool, idle: Arc::new(Idle { permits, parked: Mutex::default() }), pooler }
    }

    pub(super) const fn pool(&self) -> &PgPool {
        &self.pool
    }

    pub(super) const fn is_pooled(&self) -> bool {
        self.pooler
    }

    /// Begins a transaction.
    pub(super) async fn begin(&self) -> Result<Link, StoreError> {
        Link::begin(self).await
    }

    /// Borrows a connection, for at most as long as it is used.
    pub(super) async fn borrow(&self) -> Result<Borrowed, StoreError> {
        let permit = Arc::clone(&self.idle.permits).acquire_owned();
        let permit = tokio::time::timeout(ACQUIRE, permit).await.map_err(|_| sqlx::Error::PoolTimedOut)?;
        let permit = permit.map_err(|_| sqlx::Error::PoolClosed)?;
        let parked = self.parked().pop();
        let connection = match parked {
            Some((_, connection)) => connection,
            None => self.pool.acquire().await?,
        };
        Ok(Borrowed { connection, _permit: permit })
    }

    /// Borrows one that was in use not longer ago than this, if there is one: it is hardly cut.
    pub(super) fn borrow_warm(&self, within: Duration) -> Option<Borrowed> {
        let permit = Arc::clone(&self.idle.permits).try_acquire_owned().ok()?;
        let (_, connection) = self.parked().pop_if(|(since, _)| since.elapsed() < within)?;
        Some(Borrowed { connection, _permit: permit })
    }

    /// Whether there is such a connection.
    pub(super) fn is_warm(&self, within: Duration) -> bool {
        self.parked().last().is_some_and(|(since, _)| since.elapsed() < within)
    }

    /// Takes back a connection with which all is well.
    #[expect(clippy::disallowed_methods, reason = "no lease depends on it, only how the database is asked")]
    pub(super) fn give_back(&self, borrowed: Borrowed) {
        if !self.idle.permits.is_closed() {
            self.parked().push((Instant::now(), borrowed.connection));
        }
    }

    /// A connection was cut, and others may have been: the pool finds out which.
    pub(super) fn distrust_idle(&self) {
        self.parked().clear();
    }

    /// Closes all connections; who has borrowed one is waited for.
    pub(super) async fn close(&self) {
        self.idle.permits.close();
        self.parked().clear();
        self.pool.close().await;
    }

    fn parked(&self) -> MutexGuard<'_, Vec<(Instant, PoolConnection<Postgres>)>> {
        self.idle.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn query<'q>(&self, sql: &'static str) -> Query<'q, Postgres, PgArguments> {
        sqlx::query(sql).persistent(!self.pooler)
    }

    pub(super) fn query_as<'q, O: for<'r> FromRow<'r, PgRow>>(
        &self,
        sql: &'static str,
    ) -> QueryAs<'q, Postgres, O, PgArguments> {
        sqlx::query_as(sql).persistent(!self.pooler)
    }

    pub(super) fn query_scalar<'q, O>(&self, sql: &'static str) -> QueryScalar<'q, Postgres, O, PgArguments>
    where
        (O,): for<'r> FromRow<'r, PgRow>,
    {
        sqlx::query_scalar(sql).persistent(!self.pooler)
    }
}
