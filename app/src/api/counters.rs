//! The figures over the console's lists.

use domain::Timestamp;
use leptos::prelude::server;
use serde::{Deserialize, Serialize};

use super::error::ApiError;
#[cfg(feature = "ssr")]
use super::exchange::Exchange;
use super::page::AsOf;
use super::protocol;
use super::values::{Minutes, present};

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

/// Ask how the figures came about lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a JSON object")]
pub struct TrendRequest {
    /// For how many minutes up to now; 60 if absent.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub minutes: Option<Minutes>,
}

/// What happened lately, minute by minute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trend {
    /// Every minute up to the present one, oldest first.
    pub minutes: Vec<Minute>,
    /// The server's time of this answer.
    pub server_time: Timestamp,
}

/// What happened in one minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Minute {
    /// When it began.
    pub at: Timestamp,
    /// Leases granted.
    pub granted: u64,
    /// Leases renewed.
    pub renewed: u64,
    /// Leases given back.
    pub released: u64,
    /// Leases that ended otherwise.
    pub cut_short: u64,
    /// Duplicates refused.
    pub refused: u64,
    /// Leases held at its end, or now.
    pub held: u64,
}

/// The figures, on the server.
#[cfg(feature = "ssr")]
#[expect(missing_docs, reason = "each method is the server function of its name")]
pub trait CountersBackend: Send + Sync {
    fn get<'a>(&'a self, exchange: &'a Exchange, request: GetRequest) -> super::Pending<'a, Counters>;
    fn trend<'a>(&'a self, exchange: &'a Exchange, request: TrendRequest) -> super::Pending<'a, Trend>;
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

/// How the figures came about lately.
#[server(name = TrendOfFigures, protocol = protocol::Post<TrendRequest>, prefix = "/api/v1", endpoint = "counters/trend")]
pub async fn trend(request: TrendRequest) -> Result<Trend, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().counters.trend(&exchange, request).await
}

/// The same by `GET`.
#[server(name = TrendByQuery, protocol = protocol::Get<TrendRequest>, prefix = "/api/v1", endpoint = "counters/trend")]
pub async fn trend_by_query(request: TrendRequest) -> Result<Trend, ApiError> {
    trend(request).await
}
