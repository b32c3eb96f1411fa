//! The timeline, page by page. `GET /api/v1/events` follows it.

use domain::Timestamp;
use leptos::prelude::server;
use serde::{Deserialize, Serialize};

use super::error::ApiError;
#[cfg(feature = "ssr")]
use super::exchange::Exchange;
use super::page::AsOf;
use super::protocol;
use super::values::{PageSize, Prefix, present};

/// Which events: the newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a JSON object")]
pub struct ListRequest {
    /// About keys that begin so.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Prefix>,
    /// Of this kind, or of all kinds that begin so before a point: `lease`, `lease.broken`.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// How many at most, 1 to 500; 100 if absent.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageSize>,
    /// The `next` of the page before.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A page of events. Where a filter leaves few of many, one request looks through no more than some thousands: a page may
/// then be short, or empty, and still have a next one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// The events.
    pub items: Vec<Event>,
    /// The `cursor` of the next page; `null` after the oldest that is kept.
    pub next: Option<String>,
    /// What of the past it includes.
    pub as_of: AsOf,
    /// The server's time of this answer.
    pub server_time: Timestamp,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Where it stands in the timeline.
    pub position: u64,
    /// The event as it is stored.
    pub event: serde_json::Map<String, serde_json::Value>,
}

/// The timeline, on the server.
#[cfg(feature = "ssr")]
#[expect(missing_docs, reason = "each method is the server function of its name")]
pub trait TimelineBackend: Send + Sync {
    fn list<'a>(&'a self, exchange: &'a Exchange, request: ListRequest) -> super::Pending<'a, Events>;
}

/// The timeline, page by page, the newest first.
#[server(name = TimelineList, protocol = protocol::Post<ListRequest>, prefix = "/api/v1", endpoint = "timeline/list")]
pub async fn list(request: ListRequest) -> Result<Events, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().timeline.list(&exchange, request).await
}

/// The same by `GET`.
#[server(name = TimelineListByQuery, protocol = protocol::Get<ListRequest>, prefix = "/api/v1", endpoint = "timeline/list")]
pub async fn list_by_query(request: ListRequest) -> Result<Events, ApiError> {
    list(request).await
}
