//! API tokens: what automation signs in with. For administrators.

use domain::{Role, Timestamp};
use leptos::prelude::server;
use serde::{Deserialize, Serialize};

use super::error::ApiError;
#[cfg(feature = "ssr")]
use super::exchange::Exchange;
use super::protocol;
use super::values::{PageSize, Prefix, list as at_most, present};

/// Make a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct CreateRequest {
    /// What people will know it by.
    pub name: TokenName,
    /// What it may do.
    pub role: Role,
    /// The beginnings of keys it is limited to; no limit if absent or empty.
    #[serde(
        default,
        deserialize_with = "at_most::<_, _, { CreateRequest::MAX_PREFIXES }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub prefixes: Vec<Prefix>,
    /// When it stops working; never if absent.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl CreateRequest {
    /// The most prefixes of one token.
    pub const MAX_PREFIXES: usize = 64;
}

/// A token's name: under the rules of an owner's name.
pub type TokenName = domain::Owner;

/// List tokens, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a JSON object")]
pub struct ListRequest {
    /// How many at most, 1 to 500; 100 if absent.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageSize>,
    /// The `next` of the page before.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Stop a token from working, for good.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct RevokeRequest {
    /// Which, by its public id.
    pub token_id: String,
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Token {
    /// Its public id.
    pub token_id: String,
    /// What people know it by.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The beginnings of keys it is limited to; empty is no limit.
    pub prefixes: Vec<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it stops working.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// A token just made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewToken {
    /// The secret, `jl_...`. It is not kept and cannot be shown again: a replayed request answers without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub about: Token,
    /// The server's time of this answer.
    pub server_time: Timestamp,
}

/// A page of tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tokens {
    /// Those on this page.
    pub items: Vec<Token>,
    /// The `cursor` of the next page; `null` after the last.
    pub next: Option<String>,
    /// Of when it is.
    pub as_of: Timestamp,
    /// The server's time of this answer.
    pub server_time: Timestamp,
}

/// API tokens, on the server.
#[cfg(feature = "ssr")]
#[expect(missing_docs, reason = "each method is the server function of its name")]
pub trait TokensBackend: Send + Sync {
    fn create<'a>(&'a self, exchange: &'a Exchange, request: CreateRequest) -> super::Pending<'a, NewToken>;
    fn list<'a>(&'a self, exchange: &'a Exchange, request: ListRequest) -> super::Pending<'a, Tokens>;
    fn revoke<'a>(&'a self, exchange: &'a Exchange, request: RevokeRequest) -> super::Pending<'a, Token>;
}

/// Make a token; its secret is in this answer and nowhere else.
#[server(protocol = protocol::Post<CreateRequest>, prefix = "/api/v1", endpoint = "tokens/create")]
pub async fn create(request: CreateRequest) -> Result<NewToken, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().tokens.create(&exchange, request).await
}

/// List tokens.
#[server(protocol = protocol::Post<ListRequest>, prefix = "/api/v1", endpoint = "tokens/list")]
pub async fn list(request: ListRequest) -> Result<Tokens, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().tokens.list(&exchange, request).await
}

/// The same by `GET`.
#[server(name = ListByQuery, protocol = protocol::Get<ListRequest>, prefix = "/api/v1", endpoint = "tokens/list")]
pub async fn list_by_query(request: ListRequest) -> Result<Tokens, ApiError> {
    list(request).await
}

/// Stop a token from working, for good.
#[server(protocol = protocol::Post<RevokeRequest>, prefix = "/api/v1", endpoint = "tokens/revoke")]
pub async fn revoke(request: RevokeRequest) -> Result<Token, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().tokens.revoke(&exchange, request).await
}
