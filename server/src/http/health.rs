//! `/healthz`: the process answers. `/readyz`: it may be sent work.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};

use super::Http;

/// They lie before the gate: they must answer when everything else is full.
pub(super) fn routes(http: Arc<Http>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { answer(StatusCode::OK, "{\"status\":\"ok\"}") }))
        .route("/readyz", get(ready))
        .with_state(http)
}

async fn ready(State(http): State<Arc<Http>>) -> Response {
    if http.stopping.is_cancelled() {
        return answer(StatusCode::SERVICE_UNAVAILABLE, "{\"status\":\"stopping\"}");
    }
    if !http.engine.is_healthy() {
        return answer(StatusCode::SERVICE_UNAVAILABLE, "{\"status\":\"unavailable\"}");
    }
    answer(StatusCode::OK, "{\"status\":\"ready\"}")
}

fn answer(status: StatusCode, body: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (status, headers, body).into_response()
}
