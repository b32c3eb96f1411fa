//! Where the server is, and with which token to speak to it.

use std::path::PathBuf;

use super::client::Client;
use super::exit::{Exit, Problem};

/// The options that every subcommand has.
#[derive(Debug, clap::Args)]
pub struct Connection {
    /// The server's address
    #[arg(long, env = "JOB_LEASES_URL", default_value = "http://127.0.0.1:7411", value_name = "URL")]
    #[arg(help_heading = "Server")]
    pub(crate) url: String,
    /// The API token (jl_...); better given by the environment or a file, since others can see arguments
    #[arg(long, env = "JOB_LEASES_TOKEN", hide_env_values = true, value_name = "TOKEN", help_heading = "Server")]
    pub(crate) token: Option<String>,
    /// A file that holds the API token
    #[arg(long, env = "JOB_LEASES_TOKEN_FILE", value_name = "FILE", help_heading = "Server")]
    pub(crate) token_file: Option<PathBuf>,
}

impl Connection {
    /// Makes the client. Nothing is sent yet.
    ///
    /// # Errors
    /// If the address is none, or the token's file cannot be read.
    pub(crate) fn client(&self) -> Result<Client, Problem> {
        Client::new(&self.url, self.token()?.as_deref())
    }

    fn token(&self) -> Result<Option<String>, Problem> {
        if let Some(token) = self.token.as_deref().map(str::trim).filter(|token| !token.is_empty()) {
            return Ok(Some(token.to_owned()));
        }
        let (path, is_default) = match (&self.token_file, default_token_file()) {
            (Some(path), _) if !path.as_os_str().is_empty() => (path.clone(), false),
            (_, Some(path)) => (path, true),
            (_, None) => return Ok(None),
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            // No server has run here with the default database: the server will say that a token is needed.
            Err(error) if is_default && error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Problem::new(
                Exit::Configuration,
                format!("the token's file {} cannot be read: {error}", path.display()),
            )),
        }
    }
}

/// Where a server with the default database leaves the token for this user.
fn default_token_file() -> Option<PathBuf> {
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let data = data.or_else(|| Some(home()?.join(".local/share")))?;
    Some(data.join("job-leases/job-leases.db-token"))
}
