//! `job-leases backup` and `job-leases restore`: all that a database holds, in one file, and back.

use std::path::PathBuf;

use engine::{Copied, CopyError};
use serde_json::{Value, json};

use super::exit::{Exit, Problem};
use super::output;
use crate::database::Database;

/// Back up a database to a new file, also while it is being served
///
/// The file holds leases with their past, the timeline, tokens (as hashes) and answers to requests with an Idempotency-Key. It is checked
/// before it gets its name, and is for its user alone. A backup of either database can be restored to either.
#[derive(Debug, clap::Args)]
pub struct Backup {
    /// The database: `sqlite:PATH` or `postgres://USER@HOST/DATABASE`; the file under the user's data folder if absent
    #[arg(long, env = "JOB_LEASES_DATABASE", hide_env_values = true, value_name = "URL")]
    database: Option<Database>,
    /// The file to make, which must not be there yet
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Restore a backup to a database that was never used
///
/// Stop what served the old database first, and whoever holds leases that were granted since the backup: they are not known any more.
/// Leases of the backup go on as after an outage. Fencing tokens go on above all that were ever given out; event streams begin anew.
#[derive(Debug, clap::Args)]
pub struct Restore {
    /// The backup
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// The database: `sqlite:PATH` where no file is yet, or an empty `postgres://USER@HOST/DATABASE`
    #[arg(long, env = "JOB_LEASES_DATABASE", hide_env_values = true, value_name = "URL")]
    database: Database,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Backup {
    pub(super) async fn run(self) -> Result<(), Problem> {
        let database = match self.database {
            Some(database) => database,
            None => Database::Sqlite(
                Database::default_file()
                    .map_err(|error| Problem::new(Exit::Configuration, format_args!("{error:#}")))?,
            ),
        };
        let copied = engine::backup(&database.options().database, &self.to).await;
        let copied = copied.map_err(|error| problem("nothing was backed up", &error))?;
        let bytes = std::fs::metadata(&self.to)?.len();
        let file = self.to.display().to_string();
        let more = [("file", json!(file)), ("bytes", json!(bytes))];
        tell(self.json, "backed_up", &copied, &more)
    }
}

impl Restore {
    pub(super) async fn run(self) -> Result<(), Problem> {
        let copied = engine::restore(&self.from, &self.database.options().database).await;
        let copied = copied.map_err(|error| problem("nothing was restored", &error))?;
        tell(self.json, "restored", &copied, &[("database", json!(self.database.to_string()))])
    }
}

fn problem(what: &str, error: &CopyError) -> Problem {
    let exit = match error {
        CopyError::From(_) | CopyError::To(_) | CopyError::Exists(_) | CopyError::NotEmpty => Exit::Configuration,
        CopyError::Wrong(_) | CopyError::Store(_) => Exit::Internal,
    };
    Problem::new(exit, format_args!("{what}: {error}"))
}

fn tell(as_json: bool, done: &str, copied: &Copied, more: &[(&str, Value)]) -> Result<(), Problem> {
    let timeline = &copied.timeline;
    let facts = [
        ("after", json!(timeline.base.0)),
        ("last", json!(timeline.head.0)),
        ("hash", json!(output::hex(&timeline.hash))),
        ("keys", json!(copied.keys)),
        ("tokens", json!(copied.tokens)),
    ];
    let facts = more.iter().cloned().chain(facts);
    if as_json {
        let facts = [(done, json!(true)), ("verified", json!(true))].into_iter().chain(facts);
        output::json(&Value::Object(facts.map(|(name, value)| (name.to_owned(), value)).collect()))?;
    } else {
        let show = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let facts: Vec<(&str, String)> = facts.map(|(name, value)| (name, show(value))).collect();
        output::facts(&facts)?;
    }
    Ok(())
}
