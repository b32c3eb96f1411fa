//! The figures over the console's lists.

use domain::Timestamp;
use leptos::prelude::server;
use serde::{Deserialize, Serialize};

use super::error::ApiError;
#[cfg(feature = "ssr")]
use super::exchange::Exchange;
use super::page::AsOf;
use super::protocol;

/// Ask for the figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a JSON object")]
pub struct GetRequest {}

/// The figures, of the keys that the caller may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Keys that were ever leased.
    pub keys: u64,
    /// Leases held now, those being broken among them.
    pub held: u64,
    /// Callers waiting for a key; `null` for a caller that is limited to some keys.
    pub waiting: Option<u64>,
    /// Jobs known, from their leases so far; `null` for a caller that is limited to some keys.
    pub jobs: Option<u64>,
    /// Leases ever granted; `null` for a caller that is limited to some keys.
    pub grants: Option<u64>,
    /// How often a duplicate was refused, since midnight UTC.
    pub collisions_today: u64,
    /// How often a duplicate was refused, ever.
    pub collisions_total: u64,
    /// What of the past they include.
    pub as_of: AsOf,
    /// The server's time of this answer.
    pub server_time: Timestamp,
}

/// The figures, on the server.
#[cfg(feature = "ssr")]
#[expect(missing_docs, reason = "each method is the server function of its name")]
pub trait CountersBackend: Send + Sync {
    fn get<'a>(&'a self, exchange: &'a Exchange, request: GetRequest) -> super::Pending<'a, Counters>;
}

/// The figures over the console's lists.
#[server(protocol = protocol::Post<GetRequest>, prefix = "/api/v1", endpoint = "counters/get")]
pub async fn get(request: GetRequest) -> Result<Counters, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().counters.get(&exchange, request).await
}

/// The same by `GET`.
#[server(name = GetByQuery, protocol = protocol::Get<GetRequest>, prefix = "/api/v1", endpoint = "counters/get")]
pub async fn get_by_query(request: GetRequest) -> Result<Counters, ApiError> {
    get(request).await
}
