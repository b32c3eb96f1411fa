//! Who is signed in. Signing in and out are plain pages (`/sign-in`, `/sign-out`), so that they work without WASM.

use domain::{ActorKind, Role, Timestamp};
use leptos::prelude::server;
use serde::{Deserialize, Serialize};

use super::error::ApiError;
#[cfg(feature = "ssr")]
use super::exchange::Exchange;
use super::protocol;

/// Ask who is signed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a JSON object")]
pub struct CurrentRequest {}

/// Who is signed in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// A token or a session.
    pub kind: ActorKind,
    /// Its public id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The beginnings of keys it is limited to; empty is no limit.
    pub prefixes: Vec<String>,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// The server's time of this answer.
    pub server_time: Timestamp,
}

/// Sessions, on the server.
#[cfg(feature = "ssr")]
#[expect(missing_docs, reason = "each method is the server function of its name")]
pub trait SessionsBackend: Send + Sync {
    fn current<'a>(&'a self, exchange: &'a Exchange, request: CurrentRequest) -> super::Pending<'a, Session>;
}

/// Who is signed in.
#[server(protocol = protocol::Post<CurrentRequest>, prefix = "/api/v1", endpoint = "sessions/current")]
pub async fn current(request: CurrentRequest) -> Result<Session, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().sessions.current(&exchange, request).await
}

/// The same by `GET`.
#[server(name = CurrentByQuery, protocol = protocol::Get<CurrentRequest>, prefix = "/api/v1", endpoint = "sessions/current")]
pub async fn current_by_query(request: CurrentRequest) -> Result<Session, ApiError> {
    current(request).await
}
