//! How statements reach the database: over connections of our own, or through a pooler that lends one for each transaction.

use sqlx::postgres::{PgArguments, PgPool, PgRow};
use sqlx::query::{Query, QueryAs, QueryScalar};
use sqlx::{FromRow, Postgres};

use super::link::Link;
use crate::error::StoreError;

/// The way to the database. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Via {
    pool: PgPool,
    /// A pooler may give every transaction another connection, which knows no statement that was prepared before. So nothing
    /// is prepared, and every statement belongs to a transaction.
    pooler: bool,
}

impl Via {
    pub(super) const fn new(pool: PgPool, pooler: bool) -> Self {
        Self { pool, pooler }
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
