//! `job-leases verify`: is the timeline what was written?

use std::path::PathBuf;

use engine::{Verified, VerifyError};
use serde_json::json;

use super::exit::{Exit, Problem};
use super::output;
use crate::database::Database;

/// Check the timeline of a database: no line missing, none changed; also while it is being served
#[derive(Debug, clap::Args)]
pub struct Verify {
    /// The database: `sqlite:PATH`; the file under the user's data folder if absent
    #[arg(long, env = "JOB_LEASES_DATABASE", value_name = "URL")]
    database: Option<Database>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(super) async fn run(self) -> Result<(), Problem> {
        let path: PathBuf = match &self.database {
            Some(Database::Sqlite(path)) => path.clone(),
            Some(Database::Postgres(url)) => return self.tell(engine::verify_postgres(url).await),
            None => Database::default_file()
                .map_err(|error| Problem::new(Exit::Configuration, format_args!("{error:#}")))?,
        };
        if !path.exists() {
            return Err(Problem::new(Exit::Nothing, format_args!("there is no database at {}", path.display())));
        }
        self.tell(engine::verify(&path).await)
    }

    fn tell(&self, verified: Result<Verified, VerifyError>) -> Result<(), Problem> {
        let verified = verified.map_err(|error| Problem::new(Exit::Internal, format_args!("NOT verified: {error}")))?;
        let hash = output::hex(&verified.hash);
        let (after, last) = (verified.base.0, verified.head.0);
        if self.json {
            output::json(&json!({ "verified": true, "after": after, "last": last, "hash": hash }))?;
        } else {
            output::table(
                &["VERIFIED", "AFTER", "LAST", "HASH"],
                &[vec!["yes".to_owned(), after.to_string(), last.to_string(), hash]],
            )?;
        }
        Ok(())
    }
}
