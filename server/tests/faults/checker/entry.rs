//! The lines of the timeline, read; and whether they are chained as they should be.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Promise, Report};
use crate::history::{Database, History, Server, server_time};

/// One line. What a kind does not have is absent.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) position: i64,
    pub(super) at: Server,
    pub(super) kind: String,
    pub(super) key: String,
    pub(super) token: u64,
    pub(super) lease_id: String,
    pub(super) owner: String,
    pub(super) request_id: Option<String>,
    pub(super) origin: String,
    pub(super) reason: Option<String>,
    pub(super) actor: Value,
    pub(super) expires_at: Option<Server>,
    pub(super) ends_at: Option<Server>,
    pub(super) ended_at: Option<Server>,
    pub(super) max_hold_until: Option<Server>,
    pub(super) min_hold_until: Option<Server>,
    pub(super) ttl: Option<i64>,
    pub(super) lock_delay: i64,
    pub(super) outage: Option<Outage>,
}

/// A time in which the service was away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    pub(super) from: Server,
    pub(super) to: Server,
    pub(super) grace: i64,
}

impl Entry {
    /// How a lease ended, if this ends one.
    pub(super) fn ends(&self) -> Option<&str> {
        let outcome = self.kind.strip_prefix("lease.")?;
        ["released", "expired", "broken", "transferred", "undelivered"].contains(&outcome).then_some(outcome)
    }

    pub(super) fn is_grant(&self) -> bool {
        self.kind == "lease.granted"
    }

    /// What it has in common with lines that are in the order of their times. One writer writes all of them so; nodes do
    /// for each key, and of outages.
    fn in_order_with(&self, database: Database) -> Option<&str> {
        match database {
            Database::Sqlite => Some(""),
            Database::Postgres if !self.key.is_empty() => Some(&self.key),
            Database::Postgres => self.outage.map(|_| ""),
        }
    }
}

#[derive(Deserialize)]
struct Raw {
    at: Value,
    kind: String,
    actor: Value,
    #[serde(flatten)]
    rest: Value,
}

fn parse(position: i64, body: &str) -> Option<Entry> {
    let Raw { at, kind, actor, rest } = serde_json::from_str(body).ok()?;
    let text = |name: &str| rest[name].as_str().map(str::to_owned);
    let time = |name: &str| server_time(&rest[name]);
    let outage = match kind.as_str() {
        "service.outage" => Some(Outage { from: time("from")?, to: time("to")?, grace: rest["grace_us"].as_i64()? }),
        _ => None,
    };
    Some(Entry {
        position,
        at: server_time(&at)?,
        key: text("lease_key").unwrap_or_default(),
        token: rest["fencing_token"].as_u64().unwrap_or(0),
        lease_id: text("lease_id").unwrap_or_default(),
        owner: text("owner").unwrap_or_default(),
        request_id: text("request_id"),
        origin: text("origin").unwrap_or_default(),
        reason: text("reason"),
        actor,
        expires_at: time("expires_at"),
        ends_at: time("ends_at"),
        ended_at: time("ended_at"),
        max_hold_until: time("max_hold_until"),
        min_hold_until: time("min_hold_until"),
        ttl: rest["ttl_us"].as_i64(),
        lock_delay: rest["lock_delay_us"].as_i64().unwrap_or(0),
        outage,
        kind,
    })
}

/// The hash of a line, from that of the line before.
pub(crate) fn chain(before: &[u8], position: i64, body: &str) -> Vec<u8> {
    let mut hasher = Sha256::new();
    hasher.update(before);
    hasher.update(position.to_be_bytes());
    hasher.update(body.as_bytes());
    hasher.finalize().to_vec()
}

/// Reads all lines.
pub(super) fn read(history: &History, report: &mut Report) -> Vec<Entry> {
    let mut before = vec![0; 32];
    let mut entries: Vec<Entry> = Vec::with_capacity(history.lines.len());
    let mut latest: HashMap<String, (Server, i64)> = HashMap::new();
    for (index, line) in history.lines.iter().enumerate() {
        report.see("lines of the timeline");
        let here = [line.position];
        if Ok(line.position) != i64::try_from(index + 1) {
            report.violation(
                Promise::Chain,
                format!("line {} stands at place {}", line.position, index + 1),
                &[],
                &here,
            );
        }
        if chain(&before, line.position, &line.body) != line.hash {
            report.violation(Promise::Chain, "the hash is not that of the line and those before it", &[], &here);
        }
        before.clone_from(&line.hash);
        let Some(entry) = parse(line.position, &line.body) else {
            report.violation(Promise::StateIsReplay, "a line that cannot be read", &[], &here);
            continue;
        };
        if let Some(others) = entry.in_order_with(history.database)
            && let Some((at, position)) = latest.insert(others.to_owned(), (entry.at, entry.position))
            && at > entry.at
        {
            let positions = [position, entry.position];
            report.violation(Promise::TimeRunsOn, "a line is earlier than the line before it", &[], &positions);
        }
        entries.push(entry);
    }
    entries
}
