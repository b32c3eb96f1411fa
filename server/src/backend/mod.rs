//! What stands behind the API: one file a resource, each operation a few lines: who may, then over to the engine.

pub(crate) mod counters;
mod cursor;
pub(crate) mod leases;
pub(crate) mod meta;
mod problems;
pub(crate) mod records;
pub(crate) use problems::of_fault;
pub(crate) mod sessions;
pub(crate) mod timeline;
pub(crate) mod tokens;

use std::sync::Arc;

use app::api::Backends;
use app::api::exchange::{Caller, Exchange};
use engine::{Call, Done, Engine, Idempotency};
use sha2::{Digest, Sha256};

/// All of them.
pub(crate) fn all(engine: &Engine) -> Backends {
    Backends {
        leases: Box::new(leases::Leases::new(engine.clone())),
        tokens: Box::new(tokens::Tokens::new(engine.clone())),
        counters: Box::new(counters::Counters::new(engine.clone())),
        records: Box::new(records::Records::new(engine.clone())),
        timeline: Box::new(timeline::Timeline::new(engine.clone())),
        sessions: Box::new(sessions::Sessions::new(engine.clone())),
        meta: Box::new(meta::Meta::new(engine.clone())),
    }
}

/// What the engine is told of the request.
fn call(exchange: &Exchange, caller: &Caller) -> Call {
    let idempotency = exchange.idempotency_key().map(|key| {
        let (operation, arguments) = exchange.canonical();
        let mut fingerprint = Sha256::new();
        fingerprint.update(operation.as_bytes());
        fingerprint.update([0]);
        fingerprint.update(arguments);
        Idempotency { key: Arc::from(key), fingerprint: fingerprint.finalize().into() }
    });
    Call { actor: Arc::clone(&caller.actor), request_id: Some(exchange.shared_request_id()), idempotency }
}

/// Leaves for the response what belongs there: whether this is a stored answer, and the guard of a grant.
fn note<T>(exchange: &Exchange, done: &mut Done<T>) {
    if !done.replayed && done.delivery.is_none() {
        return;
    }
    exchange.note(|notes| {
        notes.replayed = done.replayed;
        notes.delivery = done.delivery.take().map(|delivery| Box::new(Guard(delivery)) as _);
    });
}

/// The engine's guard as the API knows it.
struct Guard(engine::Delivery);

impl app::api::exchange::Delivery for Guard {
    fn delivered(self: Box<Self>) {
        self.0.delivered();
    }
}
