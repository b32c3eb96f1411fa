//! Writes histories by hand: each step adds a request, its answer and its lines as they ought to be, whatever the state.

use std::collections::HashMap;

use domain::Timestamp;
use domain::lease::{FencingToken, LeaseId};
use serde_json::{Value, json};

use crate::checker::entry::chain;
use crate::history::{Call, End, History, Line, Mono, Operation, Server, Stream};

/// Server time at the start of the clients' clock.
const BASE: Server = 1_800_000_000_000_000;
/// A millisecond.
pub(super) const MS: i64 = 1_000;

#[derive(Clone)]
struct Lease {
    key: String,
    owner: String,
    acquired_at: Server,
    expires_at: Server,
    updated_at: Server,
    ttl: i64,
    renewals: u64,
    breaking: bool,
    ended: Option<&'static str>,
}

/// A history that grows.
#[derive(Default)]
pub(super) struct Scene {
    pub(super) history: History,
    leases: HashMap<u64, Lease>,
    /// Server time runs ahead of the clients' clock by so much more than at the start.
    pub(super) ahead: i64,
    /// Lines are written, but left out of the timeline.
    pub(super) forgetful: bool,
}

pub(super) fn id_of(token: u64) -> String {
    LeaseId::from(FencingToken::new(token).unwrap()).to_string()
}

impl Scene {
    /// Server time at a moment of the clients' clock.
    pub(super) fn server(&self, moment: Mono) -> Server {
        BASE + moment + self.ahead
    }

    pub(super) fn time(at: Server) -> Value {
        json!(Timestamp::from_micros(at))
    }

    pub(super) fn line(&mut self, kind: &str, at: Server, request: Option<&str>, rest: Value) {
        let mut body =
            json!({"at": Self::time(at), "kind": kind, "actor": {"kind": "token", "id": "tk", "name": "ops"}});
        body.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        if let Some(request) = request {
            body["request_id"] = json!(request);
        }
        if !self.forgetful {
            let position = i64::try_from(self.history.lines.len()).unwrap() + 1;
            self.history.lines.push(Line { position, hash: Vec::new(), body: body.to_string() });
        }
    }

    pub(super) fn operation(&mut self, id: &str, call: Call, body: Value, sent: Mono, end: End) -> &mut Operation {
        let (id, client, process) = (id.to_owned(), 0, 0);
        let operation = Operation { id, client, process, call, body, idempotency_key: None, sent, end };
        self.history.operations.push(operation);
        self.history.operations.last_mut().unwrap()
    }

    /// An answer a millisecond after the request.
    pub(super) fn answered(
        &mut self,
        id: &str,
        call: Call,
        body: Value,
        sent: Mono,
        status: u16,
        answer: Value,
    ) -> &mut Operation {
        let end = End::Answered { at: sent + MS, status, replayed: false, body: answer };
        self.operation(id, call, body, sent, end)
    }

    /// What the API says of a lease.
    pub(super) fn shown(&self, token: u64, now: Server) -> Value {
        let lease = &self.leases[&token];
        let is_alive = lease.ended.is_none() && now < lease.expires_at;
        let status = lease.ended.unwrap_or(if !is_alive {
            "expired"
        } else if lease.breaking {
            "breaking"
        } else {
            "held"
        });
        json!({
            "lease_id": id_of(token), "lease_key": lease.key, "owner": lease.owner, "status": status,
            "fencing_token": token, "acquired_at": Self::time(lease.acquired_at), "expires_at": Self::time(lease.expires_at),
            "updated_at": Self::time(lease.updated_at), "renewals": lease.renewals, "server_time": Self::time(now),
            "ttl_remaining_ms": if is_alive { (lease.expires_at - now) / 1_000 } else { 0 },
        })
    }

    /// The line of a grant.
    pub(super) fn grant(&mut self, id: &str, key: &str, owner: &str, at: Server, ttl_ms: i64, token: u64) {
        let lease = Lease {
            key: key.to_owned(),
            owner: owner.to_owned(),
            acquired_at: at,
            expires_at: at + ttl_ms * MS,
            updated_at: at,
            ttl: ttl_ms * MS,
            renewals: 0,
            breaking: false,
            ended: None,
        };
        let rest = json!({
            "lease_id": id_of(token), "fencing_token": token, "lease_key": key, "owner": owner, "origin": "acquired",
            "expires_at": Self::time(lease.expires_at), "ttl_us": lease.ttl,
        });
        self.leases.insert(token, lease);
        self.line("lease.granted", at, Some(id), rest);
    }

    pub(super) fn asked(key: &str, owner: &str, ttl_ms: i64) -> Value {
        json!({"lease_key": key, "owner": owner, "ttl_ms": ttl_ms})
    }

    pub(super) fn acquire(&mut self, id: &str, key: &str, sent: Mono, ttl_ms: i64, token: u64) -> &mut Operation {
        let (now, owner) = (self.server(sent), format!("owner of {token}"));
        self.grant(id, key, &owner, now, ttl_ms, token);
        let answer = self.shown(token, now);
        self.answered(id, Call::Acquire, Self::asked(key, &owner, ttl_ms), sent, 200, answer)
    }

    pub(super) fn renew(&mut self, id: &str, sent: Mono, token: u64) -> &mut Operation {
        let now = self.server(sent);
        let lease = self.leases.get_mut(&token).unwrap();
        lease.expires_at = now + lease.ttl;
        lease.updated_at = now;
        lease.renewals += 1;
        let rest = json!({
            "lease_id": id_of(token), "fencing_token": token, "lease_key": lease.key, "ttl_us": lease.ttl,
            "expires_at": Self::time(lease.expires_at),
        });
        let named = json!({"lease_key": lease.key, "lease_id": id_of(token)});
        self.line("lease.renewed", now, Some(id), rest);
        let answer = self.shown(token, now);
        self.answered(id, Call::Renew, named, sent, 200, answer)
    }

    /// The line of an end.
    pub(super) fn end(&mut self, request: Option<&str>, outcome: &'static str, at: Server, token: u64, more: Value) {
        let lease = self.leases.get_mut(&token).unwrap();
        let ended_at = if outcome == "expired" { lease.expires_at } else { at };
        (lease.ended, lease.expires_at, lease.updated_at) = (Some(outcome), ended_at, at);
        let mut rest = json!({
            "lease_id": id_of(token), "fencing_token": token, "lease_key": lease.key, "owner": lease.owner,
            "ended_at": Self::time(ended_at),
        });
        rest.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.line(&format!("lease.{outcome}"), at, request, rest);
    }

    pub(super) fn release(&mut self, id: &str, sent: Mono, token: u64) -> &mut Operation {
        let now = self.server(sent);
        self.end(Some(id), "released", now, token, json!({}));
        let mut answer = self.shown(token, now);
        answer["outcome"] = json!("released");
        let named = json!({"lease_key": self.leases[&token].key, "lease_id": id_of(token)});
        self.answered(id, Call::Release, named, sent, 200, answer)
    }

    /// The time of a lease is up, and somebody notices at `moment`.
    pub(super) fn expire(&mut self, moment: Mono, token: u64) {
        let at = self.server(moment);
        self.end(None, "expired", at, token, json!({}));
    }

    /// A break with some grace.
    pub(super) fn break_lease(&mut self, id: &str, sent: Mono, token: u64, grace_ms: i64) {
        let now = self.server(sent);
        let lease = self.leases.get_mut(&token).unwrap();
        lease.breaking = true;
        lease.updated_at = now;
        lease.expires_at = lease.expires_at.min(now + grace_ms * MS);
        let rest = json!({
            "lease_id": id_of(token), "fencing_token": token, "lease_key": lease.key, "reason": "stuck",
            "ends_at": Self::time(now + grace_ms * MS), "expires_at": Self::time(lease.expires_at),
        });
        let asked = json!({"lease_key": lease.key, "reason": "stuck", "grace_ms": grace_ms});
        self.line("lease.breaking", now, Some(id), rest);
        let answer = self.shown(token, now);
        self.answered(id, Call::Break, asked, sent, 200, answer);
    }

    pub(super) fn get(&mut self, id: &str, sent: Mono, key: &str, token: u64, queue_length: u64) -> &mut Operation {
        let now = self.server(sent);
        let lease = self.shown(token, now);
        let is_alive = lease["status"] == "held" || lease["status"] == "breaking";
        let status = if is_alive { lease["status"].clone() } else { json!("free") };
        let answer = json!({
            "lease_key": key, "status": status, "lease": lease, "queue_length": queue_length,
            "server_time": Self::time(now),
        });
        self.answered(id, Call::Get, json!({"lease_key": key}), sent, 200, answer)
    }

    /// A refusal because this lease is in the way.
    pub(super) fn refuse(&mut self, id: &str, sent: Mono, token: u64) -> &mut Operation {
        let lease = &self.leases[&token];
        let details = json!({"owner": lease.owner, "since": Self::time(lease.acquired_at), "queue_length": 0});
        let asked = Self::asked(&lease.key, "late", 1_000);
        self.answered(id, Call::Acquire, asked, sent, 409, json!({"code": "held", "details": details}))
    }

    /// The history, its lines chained, with a follower who saw all of it.
    pub(super) fn done(mut self) -> History {
        let mut before = vec![0; 32];
        for line in &mut self.history.lines {
            before = chain(&before, line.position, &line.body);
            line.hash.clone_from(&before);
        }
        let received = self.history.lines.iter().map(|line| (line.position, line.body.clone())).collect();
        self.history.streams.push(Stream { prefix: None, after: 0, received, connections: 2 });
        self.history.operations.sort_by_key(|operation| operation.sent);
        self.history.is_settled = true;
        self.history
    }
}
