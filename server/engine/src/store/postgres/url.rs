//! Which PostgreSQL database, and how it is reached.

use std::fmt;
use std::str::FromStr as _;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use super::via::{ACQUIRE, Via};
use crate::error::OpenError;

/// Tells that a pooler in transaction mode is on the way.
const POOLER: &str = "pgbouncer=true";

/// A transaction whose locks others wait for must not outlive the process that forgot it, or stands still, nor wait long itself.
const ALWAYS: [(&str, &str); 2] = [("idle_in_transaction_session_timeout", "3s"), ("lock_timeout", "2s")];

/// Few rows are read, each by its key, by statements that are always the same: a table that has grown since its statistics were made
/// must not be walked, and nothing is gained by planning anew.
const WRITING: [(&str, &str); 3] =
    [("enable_seqscan", "off"), ("jit", "off"), ("plan_cache_mode", "force_generic_plan")];

/// A PostgreSQL database, and how it is reached. What is printed of it is not its password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    url: String,
    direct: Option<String>,
    connections: u32,
}

impl PostgresUrl {
    /// `postgres://user:password@host:port/database`, with `?pgbouncer=true` behind it if that leads to a pooler in
    /// transaction mode. Whether it can be used shows when it is opened.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), direct: None, connections: 12 }
    }

    /// The most connections of one node, besides one that listens: 1 to 1,000.
    #[must_use]
    pub const fn with_connections(mut self, connections: u32) -> Self {
        self.connections = connections;
        self
    }

    /// A way round the pooler for the one connection that listens, which a pooler in transaction mode cannot carry.
    #[must_use]
    pub fn with_direct(mut self, url: &str) -> Self {
        self.direct = Some(url.to_owned());
        self
    }

    /// The ways to the database: for what is written and what must go on in any case; and for what is read, which may take a
    /// while. Nothing is connected yet.
    pub(super) fn ways(&self) -> Result<(Via, Via), OpenError> {
        let (options, pooler) = options(&self.url)?;
        let via = |connections, options| {
            // Whether a connection still stands shows when it is used.
            let pool = PgPoolOptions::new().max_connections(connections).acquire_timeout(ACQUIRE);
            Via::new(pool.test_before_acquire(false).connect_lazy_with(options), pooler)
        };
        let reading = self.connections / 2;
        let (plain, own) = if pooler {
            (options.clone(), options)
        } else {
            let options = options.options(ALWAYS);
            (options.clone(), options.options(WRITING))
        };
        let writing = via(self.connections - reading, own);
        // One connection serves both.
        let reading = if reading == 0 { writing.clone() } else { via(reading, plain) };
        Ok((writing, reading))
    }

    /// A pool of one connection that may listen, if there is a way to have one.
    pub(super) fn listening(&self) -> Result<Option<PgPool>, OpenError> {
        let (options, pooler) = options(self.direct.as_ref().unwrap_or(&self.url))?;
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(ACQUIRE);
        Ok((!pooler).then(|| pool.connect_lazy_with(options)))
    }
}

fn options(url: &str) -> Result<(PgConnectOptions, bool), OpenError> {
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let pooler = query.split('&').any(|part| part == POOLER);
    let rest: Vec<&str> = query.split('&').filter(|part| !part.is_empty() && *part != POOLER).collect();
    let url = if rest.is_empty() { address.to_owned() } else { format!("{address}?{}", rest.join("&")) };
    // The error of sqlx does not hold the URL, which may hold a password.
    let options = PgConnectOptions::from_str(&url).map_err(|error| OpenError::Url(error.to_string()))?;
    let options = options.application_name("job-leases").disable_statement_logging();
    // A pooler refuses settings at the start that it does not know.
    let options = if pooler {
        options.statement_cache_capacity(0).extra_float_digits(None)
    } else {
        options.statement_cache_capacity(200)
    };
    Ok((options, pooler))
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, place) = self.url.rsplit_once('@').unwrap_or(("", ""));
        f.debug_struct("PostgresUrl")
            .field("place", &place)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.url.rsplit_once('@').map_or("", |(_, place)| place);
        write!(f, "postgres://{place}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pooler_is_told_and_no_password_is_printed() {
        let (_, pooler) = options("postgres://u:secret@h:6432/d?sslmode=disable&pgbouncer=true").unwrap();
        assert!(pooler);
        let (direct, pooler) = options("postgres://u:secret@h:5433/d?sslmode=disable").unwrap();
        assert!(!pooler && direct.get_port() == 5433);
        let url = PostgresUrl::new("postgres://u:secret@h/d");
        assert!(!format!("{url:?}").contains("secret"));
        for wrong in ["postgres://u:secret@h:port/d", "no url"] {
            let error = PostgresUrl::new(wrong).ways().err().map(|error| error.to_string()).unwrap_or_default();
            assert!(!error.is_empty() && !error.contains("secret"), "{error}");
        }
    }
}
