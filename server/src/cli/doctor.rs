//! `job-leases doctor`: is everything in place for working with this server?

use std::time::Duration;

use app::api::meta::{GetRequest, Meta};
use app::api::sessions::{CurrentRequest, Session};
use reqwest::header::HeaderMap;
use serde_json::json;

use super::client::{Client, Failure};
use super::clock::Instant;
use super::duration;
use super::exit::{Exit, Problem};
use super::holder::Common;
use super::output;
use super::tokens::wall_clock;

/// Leases are counted on the server's clock, so a difference harms nothing but people's reading of times.
const CLOCKS_AGREE: Duration = Duration::from_secs(2);

/// Check the way to the server: address, readiness, versions, clocks, token
#[derive(Debug, clap::Args)]
pub struct Doctor {
    #[command(flatten)]
    common: Common,
}

/// One check.
struct Check {
    name: &'static str,
    result: Result,
    about: String,
    exit: Exit,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Result {
    Good,
    Odd,
    Bad,
}

impl Doctor {
    pub(super) async fn run(self) -> std::result::Result<(), Problem> {
        let client = self.common.connection.client()?;
        let checks = examine(&client).await;
        if self.common.json {
            let list: Vec<_> = checks
                .iter()
                .map(|check| json!({ "check": check.name, "result": check.result.word(), "about": check.about }))
                .collect();
            output::json(&json!({ "url": client.url(), "checks": list }))?;
        } else {
            let row = |check: &Check| vec![check.name.to_owned(), check.result.word().to_owned(), check.about.clone()];
            output::table(&["CHECK", "RESULT", ""], &checks.iter().map(row).collect::<Vec<_>>())?;
        }
        match checks.iter().find(|check| check.result == Result::Bad) {
            Some(check) => Err(Problem::silent(check.exit)),
            None => Ok(()),
        }
    }
}

impl Result {
    const fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Odd => "odd",
            Self::Bad => "BAD",
        }
    }
}

impl Check {
    const fn good(name: &'static str, about: String) -> Self {
        Self { name, result: Result::Good, about, exit: Exit::Done }
    }

    fn bad(name: &'static str, failure: &Failure) -> Self {
        Self { name, result: Result::Bad, about: failure.to_string().replace("\n  ", "; "), exit: failure.exit() }
    }
}

async fn examine(client: &Client) -> Vec<Check> {
    let mut checks = Vec::new();
    let before = Instant::now();
    match client.get("healthz", &[], HeaderMap::new()).await {
        Ok(_) => {
            let took = duration::show(Instant::now().since(before));
            checks.push(Check::good("reachable", format!("{} answered after {took}", client.url())));
        }
        Err(failure) => {
            checks.push(Check::bad("reachable", &failure));
            return checks;
        }
    }
    checks.push(match client.get("readyz", &[], HeaderMap::new()).await {
        Ok(_) => Check::good("ready", "it takes requests".to_owned()),
        Err(failure) => Check::bad("ready", &failure),
    });
    let sent = Instant::now();
    let asked_at = wall_clock();
    match client.ask::<Meta>("meta/get", &GetRequest {}).await {
        Ok(meta) => {
            let half = Instant::now().since(sent) / 2;
            checks.push(version(&meta.version));
            checks.push(clocks(i128::from(meta.server_time.as_micros()), asked_at + half));
        }
        // A token that is not good is told below.
        Err(failure) if matches!(failure.code(), Some("unauthenticated" | "forbidden")) => {}
        Err(failure) => checks.push(Check::bad("version", &failure)),
    }
    checks.push(match client.ask::<Session>("sessions/current", &CurrentRequest {}).await {
        Ok(session) => {
            let mut about = format!("{}, role {}", session.name, session.role.as_str());
            if !session.prefixes.is_empty() {
                about.push_str(&format!(", for keys that begin with {}", session.prefixes.join(" or ")));
            }
            if let Some(at) = session.expires_at {
                about.push_str(&format!(", until {at}"));
            }
            Check::good("token", about)
        }
        Err(failure) => Check::bad("token", &failure),
    });
    checks
}

fn version(server: &str) -> Check {
    let own = env!("CARGO_PKG_VERSION");
    if server == own {
        return Check::good("version", format!("{own} on both sides"));
    }
    let about = format!("the server has {server}, this program is {own}");
    Check { name: "version", result: Result::Odd, about, exit: Exit::Done }
}

fn clocks(server_micros: i128, here: Duration) -> Check {
    let here = i128::try_from(here.as_micros()).unwrap_or(i128::MAX);
    let apart = Duration::from_micros(u64::try_from((here - server_micros).unsigned_abs()).unwrap_or(u64::MAX));
    let direction = if here > server_micros { "ahead of" } else { "behind" };
    let about = format!("this machine is {} {direction} the server", duration::show(apart));
    let result = if apart <= CLOCKS_AGREE { Result::Good } else { Result::Odd };
    Check { name: "clocks", result, about, exit: Exit::Done }
}
