//! The way to the database under test: straight to its server.

use engine::Options;
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;

/// How many scripts the differential test runs: each of their thousands of commands is a conversation with the server.
pub(crate) const SEEDS: &str = "0..8";

/// The way to one database.
pub(crate) struct Way(PgConnectOptions);

impl Way {
    pub(crate) fn to(own: &PgConnectOptions) -> Self {
        Self(own.clone())
    }

    /// Where it begins: host and port.
    pub(crate) fn begins_at(&self) -> (String, u16) {
        (self.0.get_host().to_owned(), self.0.get_port())
    }

    /// How the database is opened from there, or from what leads there, by the node of this number.
    pub(crate) fn options(&self, (host, port): (&str, u16), _: u32) -> Options {
        Options::postgres(self.0.clone().host(host).port(port).to_url_lossy().as_str())
    }
}
