//! Signing in and out, and who is signed in.

use std::sync::Arc;

use app::api::exchange::{Caller, Exchange};
use app::api::sessions::{CurrentRequest, Session, SessionsBackend};
use app::api::{ApiError, Pending};
use domain::{Actor, ActorKind, RequestId, Role};
use engine::engine::SignedIn;
use engine::{Call, Engine, Fault};

use super::problems::of_fault;

/// The signed-in session.
pub(crate) struct Sessions {
    engine: Engine,
}

impl Sessions {
    pub(crate) const fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

impl SessionsBackend for Sessions {
    fn current<'a>(&'a self, exchange: &'a Exchange, CurrentRequest {}: CurrentRequest) -> Pending<'a, Session> {
        Box::pin(async move {
            let caller = exchange.require(Role::Viewer)?;
            Ok(Session {
                kind: caller.actor.kind,
                id: caller.actor.id.to_string(),
                name: caller.actor.name.to_string(),
                role: caller.role,
                prefixes: caller.prefixes.iter().map(ToString::to_string).collect(),
                expires_at: caller.expires_at,
                server_time: self.engine.time().await.map_err(of_fault)?,
            })
        })
    }
}

/// Opens a session by a one-time link.
///
/// # Errors
/// `unauthenticated` if the link is not good.
pub(crate) async fn open_by_link(engine: &Engine, link: &str, request: RequestId) -> Result<SignedIn, ApiError> {
    let call = Call { actor: Arc::new(Actor::system("sign-in")), request_id: Some(request), idempotency: None };
    engine.sign_in_by_link(call, link).await.map_err(refused)
}

/// Opens a session with the rights of an API token, which may not be a session's own secret.
///
/// # Errors
/// `unauthenticated` if the token is not good.
pub(crate) async fn open_by_token(engine: &Engine, token: &str, request: RequestId) -> Result<SignedIn, ApiError> {
    let principal = engine
        .authenticate(token)
        .await
        .map_err(of_fault)?
        .filter(|principal| principal.actor.kind == ActorKind::Token);
    let principal = principal.ok_or_else(|| refused(Fault::NotFound("token")))?;
    let call = Call { actor: Arc::clone(&principal.actor), request_id: Some(request), idempotency: None };
    engine.sign_in_by_token(call, &principal).await.map_err(refused)
}

/// Ends the caller's session; one that has ended already is as good.
///
/// # Errors
/// If that could not be stored.
pub(crate) async fn close(engine: &Engine, caller: &Caller, request: RequestId) -> Result<(), ApiError> {
    let call = Call { actor: Arc::clone(&caller.actor), request_id: Some(request), idempotency: None };
    match engine.sign_out(call, &caller.actor.id).await {
        Ok(_) | Err(Fault::NotFound(_)) => Ok(()),
        Err(fault) => Err(of_fault(fault)),
    }
}

fn refused(fault: Fault) -> ApiError {
    match fault {
        Fault::NotFound(_) => ApiError::new("unauthenticated", "that is not known here, or no longer good"),
        fault => of_fault(fault),
    }
}
