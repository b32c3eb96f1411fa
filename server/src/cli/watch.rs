//! `job-leases watch`: the timeline as it grows.

use std::io::Write;
use std::time::Duration;

use app::api::live::{Entry, PATH};
use app::api::values::Prefix;
use domain::lease::Change;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::client::{Client, Failure, jitter};
use super::clock::sleep;
use super::exit::{Exit, Problem};
use super::holder::Common;
use super::reading::prefix;
use super::say::say;
use super::sse::{Event, Reader};

/// A comment comes every 15 seconds: without even that, nobody is there any more.
const SILENCE: Duration = Duration::from_secs(40);
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Follow the timeline as it grows, without a gap, also past the server's restarts
#[derive(Debug, clap::Args)]
pub struct Watch {
    /// Only keys that begin so
    #[arg(long, short, env = "JOB_LEASES_FILTER_PREFIX", value_parser = prefix)]
    prefix: Option<Prefix>,
    /// Begin after this event, instead of with the next one
    #[arg(long, env = "JOB_LEASES_AFTER", value_name = "ID")]
    after: Option<String>,
    /// End after so many events
    #[arg(long, env = "JOB_LEASES_COUNT")]
    count: Option<u64>,
    #[command(flatten)]
    common: Common,
}

impl Watch {
    pub(super) async fn run(self) -> Result<(), Problem> {
        let client = self.common.connection.client()?;
        let mut last = self.after.clone();
        let mut left = self.count;
        let mut pause = SHORTEST_PAUSE;
        let mut first = true;
        loop {
            if left == Some(0) {
                return Ok(());
            }
            let before = last.clone();
            let failure = match self.follow(&client, &mut last, &mut left).await {
                Ok(()) if left == Some(0) => return Ok(()),
                Ok(()) => None,
                Err(End::Problem(problem)) => return Err(problem),
                Err(End::Failure(failure)) if first || !failure.is_passing() => return Err(failure.into()),
                Err(End::Failure(failure)) => Some(failure),
            };
            first = false;
            if before != last {
                pause = SHORTEST_PAUSE;
            } else if let Some(failure) = failure {
                say(format_args!("{failure}; trying again"));
            }
            sleep(pause.mul_f64(jitter())).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Follows one connection to its end.
    async fn follow(&self, client: &Client, last: &mut Option<String>, left: &mut Option<u64>) -> Result<(), End> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(id) = last.as_deref() {
            let id = HeaderValue::from_str(id)
                .map_err(|_| Problem::new(Exit::Usage, "that is not the id of an event"))
                .map_err(End::Problem)?;
            headers.insert("Last-Event-ID", id);
        }
        let query: Vec<(&str, &str)> = self.prefix.iter().map(|prefix| ("prefix", prefix.as_str())).collect();
        let mut response = client.get(PATH.trim_start_matches('/'), &query, headers).await.map_err(End::Failure)?;
        let mut reader = Reader::default();
        // A server that stops ends the stream; one that has vanished says nothing any more.
        while let Ok(Ok(Some(bytes))) = tokio::time::timeout(SILENCE, response.chunk()).await {
            for event in reader.take(&bytes) {
                self.print(&event).map_err(|error| End::Problem(error.into()))?;
                last.clone_from(&event.id);
                if let Some(left) = left {
                    *left -= 1;
                    if *left == 0 {
                        return Ok(());
                    }
                }
            }
            if let Some(id) = reader.last_id() {
                *last = Some(id.to_owned());
            }
        }
        Ok(())
    }

    fn print(&self, event: &Event) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.common.json {
            let data = serde_json::from_str(&event.data).unwrap_or_else(|_| Value::String(event.data.clone()));
            writeln!(out, "{}", json!({ "id": event.id, "event": data }))?;
        } else {
            writeln!(out, "{}", words(&event.data))?;
        }
        out.flush()
    }
}

/// Why one connection ended for good, or for now.
enum End {
    Failure(Failure),
    Problem(Problem),
}

/// An event as one line for people.
fn words(data: &str) -> String {
    let line = match Entry::parse(data) {
        Some(Entry::Lease(event)) => {
            let (kind, about) = change(&event.change);
            format!("{}  {kind:17}  {}  {about}  by {}", event.at, event.lease_key, event.actor.name)
        }
        Some(Entry::Other(other)) => format!("{}  {}", other.at, other.kind),
        None => data.to_owned(),
    };
    line.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn change(change: &Change) -> (&'static str, String) {
    match change {
        Change::Granted(granted) => {
            ("lease.granted", format!("to {} until {} ({})", granted.owner, granted.expires_at, granted.lease_id))
        }
        Change::Renewed(renewed) => ("lease.renewed", format!("until {} ({})", renewed.expires_at, renewed.lease_id)),
        Change::Breaking(breaking) => {
            ("lease.breaking", format!("ends {} ({}): {}", breaking.ends_at, breaking.lease_id, breaking.reason))
        }
        Change::Released(ended) => ("lease.released", format!("of {} ({})", ended.owner, ended.lease_id)),
        Change::Expired(ended) => ("lease.expired", format!("of {} ({})", ended.owner, ended.lease_id)),
        Change::Broken(ended) => {
            let reason = ended.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            ("lease.broken", format!("of {} ({}){reason}", ended.owner, ended.lease_id))
        }
        Change::Transferred(ended) => ("lease.transferred", format!("from {} ({})", ended.owner, ended.lease_id)),
        Change::Undelivered(ended) => ("lease.undelivered", format!("to {} ({})", ended.owner, ended.lease_id)),
        Change::Quarantined { reason } => ("key.quarantined", reason.to_string()),
        Change::Lifted { reason } => ("key.lifted", reason.to_string()),
    }
}
