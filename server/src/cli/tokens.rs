//! API tokens, for administrators: `token create`, `token list`, `token revoke`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use app::api::tokens::{CreateRequest, ListRequest, NewToken, RevokeRequest, Token as ApiToken, TokenName, Tokens};
use app::api::values::{PageSize, Prefix};
use domain::{Role, Timestamp};

use super::duration;
use super::exit::{Exit, Problem};
use super::holder::{Common, owner};
use super::output;
use super::reading::prefix;

/// Make, list and revoke API tokens (administrators)
#[derive(Debug, clap::Subcommand)]
pub enum Token {
    /// Make a token; its secret is shown this once
    Create {
        /// What people will know it by
        #[arg(value_parser = owner)]
        name: TokenName,
        /// What it may do: viewer, worker, operator or admin
        #[arg(long, env = "JOB_LEASES_TOKEN_ROLE", value_parser = role)]
        role: Role,
        /// Limit it to keys that begin so; can be given 64 times
        #[arg(long, env = "JOB_LEASES_TOKEN_PREFIX", value_parser = prefix)]
        prefix: Vec<Prefix>,
        /// When it stops working: a time like 2027-01-31T00:00:00Z
        #[arg(long, env = "JOB_LEASES_TOKEN_EXPIRES_AT", value_name = "TIME", value_parser = timestamp)]
        expires_at: Option<Timestamp>,
        /// After how long it stops working, by this machine's clock: like 90d
        #[arg(long, env = "JOB_LEASES_TOKEN_EXPIRES_IN", value_name = "TIME", value_parser = duration::parse)]
        #[arg(conflicts_with = "expires_at")]
        expires_in: Option<Duration>,
        #[command(flatten)]
        common: Common,
    },
    /// List the tokens, without their secrets
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Stop a token from working, for good
    Revoke {
        /// Its public id, as `token list` shows it
        token_id: String,
        #[command(flatten)]
        common: Common,
    },
}

fn role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| "must be viewer, worker, operator or admin".to_owned())
}

fn timestamp(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).ok_or_else(|| "is not a time in UTC like 2027-01-31T00:00:00Z".to_owned())
}

impl Token {
    pub(super) async fn run(self) -> Result<(), Problem> {
        match self {
            Self::Create { name, role, prefix, expires_at, expires_in, common } => {
                let expires_at = match expires_in {
                    Some(length) => Some(from_now(length)?),
                    None => expires_at,
                };
                let request = CreateRequest { name, role, prefixes: prefix, expires_at };
                let made: NewToken = common.connection.client()?.ask("tokens/create", &request).await?;
                if common.json {
                    return common.print_json(&made);
                }
                let mut facts = vec![("token", made.token.unwrap_or_default())];
                facts.extend(token_facts(&made.about));
                output::facts(&facts)?;
                super::say::say(format_args!("keep the token now: it is not stored and cannot be shown again"));
                Ok(())
            }
            Self::List { common } => list(&common).await,
            Self::Revoke { token_id, common } => {
                let revoked: ApiToken =
                    common.connection.client()?.ask("tokens/revoke", &RevokeRequest { token_id }).await?;
                if common.json { common.print_json(&revoked) } else { Ok(output::facts(&token_facts(&revoked))?) }
            }
        }
    }
}

async fn list(common: &Common) -> Result<(), Problem> {
    let client = common.connection.client()?;
    let mut request = ListRequest { limit: PageSize::new(PageSize::MAX), cursor: None };
    let mut rows = Vec::new();
    loop {
        let page: Tokens = client.ask("tokens/list", &request).await?;
        if common.json {
            common.print_json(&page)?;
        }
        rows.extend(page.items.iter().map(row));
        if page.next.is_none() {
            break;
        }
        request.cursor = page.next;
    }
    if !common.json {
        output::table(&["ID", "NAME", "ROLE", "PREFIXES", "CREATED AT", "ENDS"], &rows)?;
    }
    Ok(())
}

fn row(token: &ApiToken) -> Vec<String> {
    vec![
        token.token_id.clone(),
        token.name.clone(),
        token.role.as_str().to_owned(),
        token.prefixes.join(" "),
        token.created_at.to_string(),
        ends(token),
    ]
}

fn ends(token: &ApiToken) -> String {
    match (token.revoked_at, token.expires_at) {
        (Some(at), _) => format!("revoked {at}"),
        (None, Some(at)) => at.to_string(),
        (None, None) => "-".to_owned(),
    }
}

fn token_facts(token: &ApiToken) -> Vec<(&'static str, String)> {
    vec![
        ("id", token.token_id.clone()),
        ("name", token.name.clone()),
        ("role", token.role.as_str().to_owned()),
        ("prefixes", token.prefixes.join(" ")),
        ("created at", token.created_at.to_string()),
        ("ends", ends(token)),
    ]
}

fn from_now(length: Duration) -> Result<Timestamp, Problem> {
    wall_clock()
        .checked_add(length)
        .and_then(|at| i64::try_from(at.as_micros()).ok())
        .map(Timestamp::from_micros)
        .ok_or_else(|| Problem::new(Exit::Usage, "that is too far in the future"))
}

/// This machine's idea of the time, since 1970.
pub(super) fn wall_clock() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "the server's clock is elsewhere; this one is only compared with it")]
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
