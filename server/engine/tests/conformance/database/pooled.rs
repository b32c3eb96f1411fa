//! The way to the database under test: by way of pgbouncer in transaction mode.

use engine::{Database, Options, PostgresUrl};
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;

use crate::programs::Pooler;

/// How many scripts the differential test runs: here it is about the way, which one is enough for.
pub(crate) const SEEDS: &str = "0..1";

/// The way to one database.
pub(crate) struct Way {
    own: PgConnectOptions,
    pooler: Pooler,
}

impl Way {
    pub(crate) fn to(own: &PgConnectOptions) -> Self {
        Self { own: own.clone(), pooler: Pooler::start(own.get_host(), own.get_port()) }
    }

    /// Where it begins: host and port.
    pub(crate) fn begins_at(&self) -> (String, u16) {
        ("127.0.0.1".to_owned(), self.pooler.port())
    }

    /// How the database is opened from there, or from what leads there, by the node of this number. Every other node listens
    /// for hints round the pooler, as it may; the rest look for what others have left for them.
    pub(crate) fn options(&self, (host, port): (&str, u16), node: u32) -> Options {
        let mut by = self.own.clone().host(host).port(port).to_url_lossy();
        by.query_pairs_mut().append_pair("pgbouncer", "true");
        let url = PostgresUrl::new(by.as_str());
        let listens = node.is_multiple_of(2);
        let url = if listens { url.with_direct(self.own.to_url_lossy().as_str()) } else { url };
        Options::on(Database::Postgres(url))
    }
}
