//! A database for a test of this crate's own code, on the server that the environment names.

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

/// Names the server: as a superuser, in a database that is not the tests'.
const SERVER: &str = "JOB_LEASES_TEST_POSTGRES";

/// A name that no other run has.
const NAME: &str = "SELECT 'job_leases_test_' || replace(gen_random_uuid()::text, '-', '')";

/// A database that is dropped at the end.
pub(crate) struct Database {
    name: String,
    server: PgConnectOptions,
    pub(crate) url: String,
}

/// Makes one.
pub(crate) async fn database() -> Database {
    let server = std::env::var(SERVER).unwrap_or_else(|_| {
        panic!(
            "no PostgreSQL server to test with: run `cargo xtask test server`, which starts one, or name one in {SERVER} \
             (as postgres://postgres@127.0.0.1:5432/postgres) on which databases may be made and dropped"
        )
    });
    let server: PgConnectOptions = server.parse().unwrap();
    let mut admin = server.connect().await.unwrap();
    let name: String = sqlx::query_scalar(NAME).fetch_one(&mut admin).await.unwrap();
    admin.close().await.unwrap();
    on_server(&server, format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")).await.unwrap();
    let url = server.clone().database(&name).to_url_lossy().to_string();
    Database { name, server, url }
}

impl Drop for Database {
    fn drop(&mut self) {
        let server = self.server.clone();
        let end = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        // On a thread of its own: here a runtime is at work, or at its end.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(on_server(&server, end))
        });
        // The test's own outcome counts: that a database is left behind is only said.
        if !matches!(dropping.join(), Ok(Ok(()))) {
            eprintln!("the database {} could not be dropped", self.name);
        }
    }
}

/// One statement beside the tests' databases.
async fn on_server(server: &PgConnectOptions, sql: String) -> Result<(), sqlx::Error> {
    let mut admin = server.connect().await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await?;
    admin.close().await
}
