//! The server itself: its version, its time, and the limits it keeps.

use domain::Timestamp;
use leptos::prelude::server;
use serde::{Deserialize, Serialize};

use super::error::ApiError;
#[cfg(feature = "ssr")]
use super::exchange::Exchange;
use super::protocol;

/// Ask about the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a JSON object")]
pub struct GetRequest {}

/// The server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// The version of Job Leases.
    pub version: String,
    /// The server's time.
    pub server_time: Timestamp,
    /// The limits it keeps.
    pub limits: Limits,
}

/// What requests may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is the limit or default of the field it is named after")]
pub struct Limits {
    pub ttl_min_ms: u64,
    pub ttl_max_ms: u64,
    pub ttl_default_ms: u64,
    pub wait_max_ms: u64,
    pub min_hold_max_ms: u64,
    pub max_hold_max_ms: u64,
    pub lock_delay_max_ms: u64,
    pub grace_max_ms: u64,
    pub grace_default_ms: u64,
}

/// The server itself.
#[cfg(feature = "ssr")]
#[expect(missing_docs, reason = "each method is the server function of its name")]
pub trait MetaBackend: Send + Sync {
    fn get<'a>(&'a self, exchange: &'a Exchange, request: GetRequest) -> super::Pending<'a, Meta>;
}

/// The server's version, time and limits.
#[server(protocol = protocol::Post<GetRequest>, prefix = "/api/v1", endpoint = "meta/get")]
pub async fn get(request: GetRequest) -> Result<Meta, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().meta.get(&exchange, request).await
}

/// The same by `GET`.
#[server(name = GetByQuery, protocol = protocol::Get<GetRequest>, prefix = "/api/v1", endpoint = "meta/get")]
pub async fn get_by_query(request: GetRequest) -> Result<Meta, ApiError> {
    get(request).await
}
