//! API tokens.

use std::sync::Arc;

use app::api::exchange::{Caller, Exchange};
use app::api::tokens::{CreateRequest, ListRequest, NewToken, RevokeRequest, Token, Tokens as Page, TokensBackend};
use app::api::values::PageSize;
use app::api::{ApiError, Pending};
use domain::Role;
use engine::engine::Scope;
use engine::{Engine, Fault};

use super::problems::of_fault;
use super::{call, note};

/// The most bytes of a token's prefixes together: they stand in one line of the timeline.
const MOST_BYTES: usize = 16 * 1024;

/// API tokens.
pub(crate) struct Tokens {
    engine: Engine,
}

impl Tokens {
    pub(crate) const fn new(engine: Engine) -> Self {
        Self { engine }
    }

    fn find(&self, id: &str) -> Option<Token> {
        self.engine.directory().tokens().into_iter().find(|token| &*token.token_id == id).map(shape)
    }
}

impl TokensBackend for Tokens {
    fn create<'a>(&'a self, exchange: &'a Exchange, request: CreateRequest) -> Pending<'a, NewToken> {
        Box::pin(async move {
            let caller = administrator(exchange)?;
            let CreateRequest { name, role, prefixes, expires_at } = request;
            if expires_at.is_some_and(|until| until <= self.engine.now()) {
                return Err(ApiError::out_of_range("expires_at", "lies in the past"));
            }
            if prefixes.iter().map(|prefix| prefix.as_str().len()).sum::<usize>() > MOST_BYTES {
                let problem = format_args!("must not have more than {MOST_BYTES} bytes in all");
                return Err(ApiError::out_of_range("prefixes", problem));
            }
            let prefixes = prefixes.iter().map(|prefix| Arc::from(prefix.as_str())).collect();
            let made =
                self.engine.create_token(call(exchange, caller), name.as_str(), Scope { role, prefixes }, expires_at);
            let mut done = made.await.map_err(of_fault)?;
            note(exchange, &mut done);
            let engine::engine::NewToken { secret, token } = done.value;
            Ok(NewToken { token: secret, about: shape(token), server_time: done.server_time })
        })
    }

    fn list<'a>(&'a self, exchange: &'a Exchange, request: ListRequest) -> Pending<'a, Page> {
        Box::pin(async move {
            administrator(exchange)?;
            let ListRequest { limit, cursor } = request;
            let limit = usize::from(limit.unwrap_or(PageSize::DEFAULT).get());
            let now = self.engine.time().await.map_err(of_fault)?;
            let tokens = self.engine.directory().tokens();
            let start = match &cursor {
                None => 0,
                // A token is never forgotten, so the last of a page is always there to go on from.
                Some(last) => {
                    1 + tokens
                        .iter()
                        .position(|token| *token.token_id == **last)
                        .ok_or_else(|| ApiError::invalid("cursor", "is not the next of a page"))?
                }
            };
            let is_more = tokens.len() > start + limit;
            let items: Vec<Token> = tokens.into_iter().skip(start).take(limit).map(shape).collect();
            let next = items.last().filter(|_| is_more).map(|last| last.token_id.clone());
            Ok(Page { items, next, as_of: now, server_time: now })
        })
    }

    fn revoke<'a>(&'a self, exchange: &'a Exchange, request: RevokeRequest) -> Pending<'a, Token> {
        Box::pin(async move {
            let caller = administrator(exchange)?;
            let id = request.token_id;
            let known = self.find(&id).ok_or_else(unknown)?;
            if known.revoked_at.is_some() {
                return Ok(known);
            }
            let done = self.engine.revoke_token(call(exchange, caller), &id).await;
            let mut done = done.map_err(|fault| match fault {
                Fault::NotFound(_) => unknown(),
                fault => of_fault(fault),
            })?;
            note(exchange, &mut done);
            self.find(&id).ok_or_else(unknown)
        })
    }
}

/// An administrator of everything: one who is limited to some keys could make a token that is not.
fn administrator(exchange: &Exchange) -> Result<&Arc<Caller>, ApiError> {
    let caller = exchange.require(Role::Admin)?;
    if !caller.prefixes.is_empty() {
        return Err(ApiError::new("forbidden", "tokens are managed by those who are not limited to some keys"));
    }
    Ok(caller)
}

fn unknown() -> ApiError {
    ApiError::new("token_unknown", "there is no such token")
}

fn shape(token: engine::access::Token) -> Token {
    Token {
        token_id: token.token_id.to_string(),
        name: token.name.to_string(),
        role: token.role,
        prefixes: token.prefixes.iter().map(ToString::to_string).collect(),
        created_at: token.created_at,
        expires_at: token.expires_at,
        revoked_at: token.revoked_at,
    }
}
