//! `job-leases copy`: from one machine to several.

use engine::CopyError;
use serde_json::json;

use super::exit::{Exit, Problem};
use super::output;
use crate::database::Database;

/// Move everything from a SQLite file, which no server may have open, to a PostgreSQL database that was never used
#[derive(Debug, clap::Args)]
pub struct Copy {
    /// The file: `sqlite:PATH`
    #[arg(long, value_name = "URL")]
    from: Database,
    /// The database: `postgres://USER@HOST/DATABASE`
    #[arg(long, env = "JOB_LEASES_DATABASE", hide_env_values = true, value_name = "URL")]
    to: Database,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Copy {
    pub(super) async fn run(self) -> Result<(), Problem> {
        let (Database::Sqlite(from), Database::Postgres(to)) = (&self.from, &self.to) else {
            return Err(Problem::new(
                Exit::Usage,
                "copy goes --from sqlite:PATH --to postgres://..., and no other way",
            ));
        };
        let copied = engine::copy(from, to).await.map_err(|error| {
            let exit = match &error {
                CopyError::From(_) | CopyError::To(_) | CopyError::Exists(_) | CopyError::NotEmpty => {
                    Exit::Configuration
                }
                CopyError::Wrong(_) | CopyError::Store(_) => Exit::Internal,
            };
            Problem::new(exit, format_args!("nothing was copied: {error}"))
        })?;
        let (lines, keys, tokens) = (copied.lines, copied.keys, copied.tokens);
        if self.json {
            output::json(&json!({ "copied": true, "lines": lines, "keys": keys, "tokens": tokens }))?;
        } else {
            let row = vec!["yes".to_owned(), lines.to_string(), keys.to_string(), tokens.to_string()];
            output::table(&["COPIED", "LINES", "KEYS", "TOKENS"], &[row])?;
        }
        Ok(())
    }
}
