//! The PostgreSQL server that tests use: not one of a user's, but one that was started for them or is named for that.

use sqlx::postgres::PgConnectOptions;

/// Names it: as a superuser, in a database that is not the tests'.
const SERVER: &str = "JOB_LEASES_TEST_POSTGRES";

/// The server that the environment names.
pub(crate) fn named_server() -> PgConnectOptions {
    let server = std::env::var(SERVER).unwrap_or_else(|_| {
        panic!(
            "no PostgreSQL server to test with: run `cargo xtask test server`, which starts one, or name one in {SERVER} \
             (as postgres://postgres@127.0.0.1:5432/postgres) on which databases may be made and dropped"
        )
    });
    server.parse().unwrap()
}
