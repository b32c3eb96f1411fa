//! HTTP: the router, and what stands between a connection and an operation.

mod actions;
mod authenticate;
mod chance;
mod connection;
mod delivery;
mod events;
mod export;
mod form;
mod gate;
mod headers;
mod health;
pub(crate) mod listener;
pub(crate) mod metrics;
mod openapi;
mod operations;
mod origin;
mod pages;
mod problem;
mod request;
mod schemas;
mod sign_in;
pub(crate) mod site;

use std::sync::Arc;

use app::api::exchange::Caller;
use app::api::{ApiError, Backends};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use domain::Role;
use engine::Engine;
use http::header;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub(crate) use chance::jittered_ms;
pub(crate) use operations::Undescribed;

use self::metrics::Metrics;
use self::request::{Passed, RequestIds};
use self::site::Site;

/// The most requests under way: room for all who may wait in queues, and some thousands besides.
const MOST_REQUESTS: usize = 12_000;
/// The most requests with a large body under way: so many mebibytes at the most.
const MOST_LARGE_BODIES: usize = 64;
/// The most open event streams.
const MOST_STREAMS: usize = 1_000;
/// The most files under way.
const MOST_EXPORTS: usize = 8;
/// The most open connections.
pub(crate) const MOST_CONNECTIONS: usize = 16_000;

/// What all handlers share.
pub(crate) struct Http {
    pub(crate) engine: Engine,
    pub(crate) backends: Arc<Backends>,
    pub(crate) stopping: CancellationToken,
    ids: RequestIds,
    metrics: Metrics,
    limits: Limits,
    /// The origin that browsers see, if it is known: `https://leases.example.com`.
    public_origin: Option<Box<str>>,
}

struct Limits {
    requests: Arc<Semaphore>,
    large_bodies: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    exports: Arc<Semaphore>,
}

impl Http {
    pub(crate) fn new(
        engine: Engine,
        backends: Arc<Backends>,
        public_origin: Option<Box<str>>,
        stopping: CancellationToken,
    ) -> Self {
        let metrics = Metrics::new(|registry| engine.metrics().register(registry));
        let limits = Limits {
            requests: Arc::new(Semaphore::new(MOST_REQUESTS)),
            large_bodies: Arc::new(Semaphore::new(MOST_LARGE_BODIES)),
            streams: Arc::new(Semaphore::new(MOST_STREAMS)),
            exports: Arc::new(Semaphore::new(MOST_EXPORTS)),
        };
        Self { engine, backends, stopping, ids: RequestIds::new(), metrics, limits, public_origin }
    }

    /// Whether browsers reach this server by HTTPS, as far as is known.
    fn https(&self) -> bool {
        self.public_origin.as_deref().is_some_and(|origin| origin.starts_with("https://"))
    }

    /// Whether the token or session is still good: what is sent piece by piece takes long, and either may be revoked meanwhile.
    fn still_knows(&self, secret: Option<&str>) -> bool {
        let is_known = |secret| self.engine.directory().authenticate(secret, self.engine.now()).is_some();
        secret.is_some_and(is_known)
    }

    /// Whose secret this is, if it is good now.
    ///
    /// # Errors
    /// If that cannot be told, since the database does not answer.
    async fn caller(&self, secret: &str) -> Result<Option<Arc<Caller>>, ApiError> {
        let principal = self.engine.authenticate(secret).await.map_err(crate::backend::of_fault)?;
        Ok(principal.map(|principal| {
            Arc::new(Caller {
                actor: Arc::clone(&principal.actor),
                role: principal.role,
                prefixes: Arc::clone(&principal.prefixes),
                expires_at: principal.expires_at,
            })
        }))
    }
}

/// The whole of it.
///
/// # Errors
/// If the server functions are not those that are described.
pub(crate) fn router(http: Arc<Http>, site: &Site) -> Result<Router, Undescribed> {
    let described = Bytes::from(openapi::document().to_string());
    let api = operations::routes(&http)?
        .route(events::PATH, get(events::events).with_state(Arc::clone(&http)))
        .route("/metrics", get(figures).with_state(Arc::clone(&http)))
        .route(openapi::PATH, get(move || async move { ([(header::CONTENT_TYPE, "application/json")], described) }))
        .method_not_allowed_fallback(problem::method_not_allowed);
    let router = pages::routes(&http, site.options())
        .merge(api)
        .merge(
            sign_in::routes(Arc::clone(&http), site.options()).method_not_allowed_fallback(problem::method_not_allowed),
        )
        .merge(actions::routes(Arc::clone(&http)).method_not_allowed_fallback(problem::method_not_allowed))
        .merge(export::routes(Arc::clone(&http)).method_not_allowed_fallback(problem::method_not_allowed))
        .merge(site.routes())
        .layer(from_fn_with_state(Arc::clone(&http), gate::gate))
        .merge(health::routes(http).method_not_allowed_fallback(problem::method_not_allowed));
    Ok(router)
}

/// `/metrics`, for those who may see everything.
async fn figures(State(http): State<Arc<Http>>, Extension(passed): Extension<Passed>) -> Response {
    let refused = match &passed.caller {
        None => ApiError::new("unauthenticated", "a token is needed"),
        Some(caller) if caller.role < Role::Viewer || !caller.prefixes.is_empty() => {
            ApiError::new("forbidden", "figures are for those who may see all keys")
        }
        Some(_) => {
            // Asking brings those that are read on demand up to date.
            let _ = http.engine.metrics();
            match http.metrics.text() {
                Ok(text) => return ([(header::CONTENT_TYPE, metrics::MEDIA_TYPE)], text).into_response(),
                Err(_) => ApiError::internal(),
            }
        }
    };
    refused.into_response(Some(Box::from(&*passed.id.0)))
}
