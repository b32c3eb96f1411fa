//! The operations: one table from which they are routed and described.
//!
//! A server function that is not in the table is not served, and a test says so.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use app::api::ApiError;
use app::api::exchange::Exchange;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use domain::Role;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use leptos::prelude::{Owner, provide_context};
use leptos::reactive::computed::ScopedFuture;
use server_fn::ServerFnTraitObj;

use super::Http;
use super::delivery::{self, Outbox};
use super::request::Passed;

/// An operation of the API.
#[derive(Debug)]
pub(super) struct Operation {
    /// Where.
    pub(super) path: &'static str,
    /// What it does, in a few words.
    pub(super) summary: &'static str,
    /// The least role it needs.
    pub(super) role: Role,
    /// Whether it changes anything; then it takes an `Idempotency-Key`. Otherwise it also answers `GET`.
    pub(super) changes: bool,
    /// The schema of the request.
    pub(super) request: &'static str,
    /// The schema of the answer.
    pub(super) answer: &'static str,
    /// The codes it may be refused with besides those that any may.
    pub(super) refusals: &'static [&'static str],
}

const BUSY: &[&str] = &["breaking", "cooling", "held", "lease_lost", "quarantined", "queue_full", "wait_timeout"];

/// All of them, sorted by path.
#[rustfmt::skip]
pub(super) const OPERATIONS: &[Operation] = &[
    Operation { path: "/api/v1/counters/get", summary: "The figures over the console's lists", role: Role::Viewer, changes: false,
        request: "Empty", answer: "Counters", refusals: &[] },
    Operation { path: "/api/v1/counters/trend", summary: "What happened lately, minute by minute", role: Role::Viewer, changes: false,
        request: "TrendRequest", answer: "Trend", refusals: &[] },
    Operation { path: "/api/v1/leases/acquire", summary: "Take a lease, at once or after waiting", role: Role::Worker, changes: true,
        request: "AcquireRequest", answer: "Lease", refusals: BUSY },
    Operation { path: "/api/v1/leases/acquire-many", summary: "Take several leases, all or none", role: Role::Worker, changes: true,
        request: "AcquireManyRequest", answer: "Leases", refusals: &["keys_busy", "lease_lost"] },
    Operation { path: "/api/v1/leases/attend", summary: "Wait until a lease is over or is to end", role: Role::Viewer, changes: false,
        request: "AttendRequest", answer: "Key", refusals: &["lease_key_unknown"] },
    Operation { path: "/api/v1/leases/batch", summary: "Several independent operations, in order", role: Role::Worker, changes: true,
        request: "BatchRequest", answer: "BatchResults", refusals: &[] },
    Operation { path: "/api/v1/leases/break", summary: "End somebody's lease, now or after a grace", role: Role::Operator, changes: true,
        request: "BreakRequest", answer: "Lease", refusals: &["lease_lost", "not_held"] },
    Operation { path: "/api/v1/leases/get", summary: "Ask what a key is", role: Role::Viewer, changes: false,
        request: "GetRequest", answer: "Key", refusals: &["lease_key_unknown"] },
    Operation { path: "/api/v1/leases/history", summary: "Every grant of a key, newest first", role: Role::Viewer, changes: false,
        request: "HistoryRequest", answer: "LeasePage", refusals: &[] },
    Operation { path: "/api/v1/leases/inspect", summary: "Ask all that an operator may want to know of a key", role: Role::Viewer, changes: false,
        request: "GetRequest", answer: "Inspection", refusals: &["lease_key_unknown"] },
    Operation { path: "/api/v1/leases/lift", summary: "Allow grants on a key again", role: Role::Operator, changes: true,
        request: "QuarantineRequest", answer: "Key", refusals: &["not_quarantined"] },
    Operation { path: "/api/v1/leases/list", summary: "List leases", role: Role::Viewer, changes: false,
        request: "ListRequest", answer: "LeasePage", refusals: &[] },
    Operation { path: "/api/v1/leases/quarantine", summary: "Stop all grants on a key", role: Role::Operator, changes: true,
        request: "QuarantineRequest", answer: "Key", refusals: &[] },
    Operation { path: "/api/v1/leases/release", summary: "Give a lease back", role: Role::Worker, changes: true,
        request: "ReleaseRequest", answer: "Released", refusals: &["lease_lost", "lease_unknown"] },
    Operation { path: "/api/v1/leases/renew", summary: "Keep a lease for longer", role: Role::Worker, changes: true,
        request: "RenewRequest", answer: "Lease", refusals: &["lease_lost", "lease_unknown"] },
    Operation { path: "/api/v1/leases/transfer", summary: "Hand a lease to another owner", role: Role::Operator, changes: true,
        request: "TransferRequest", answer: "Lease", refusals: &["breaking", "lease_lost", "lease_unknown", "quarantined"] },
    Operation { path: "/api/v1/leases/validate", summary: "Ask whether a fencing token is the current one", role: Role::Viewer, changes: false,
        request: "ValidateRequest", answer: "Validity", refusals: &[] },
    Operation { path: "/api/v1/meta/get", summary: "The server's version, time and limits", role: Role::Viewer, changes: false,
        request: "Empty", answer: "Meta", refusals: &[] },
    Operation { path: "/api/v1/records/find", summary: "Find leases, owners, jobs and subjects by the beginning of their names", role: Role::Viewer,
        changes: false, request: "FindRequest", answer: "Records", refusals: &[] },
    Operation { path: "/api/v1/sessions/current", summary: "Who is signed in", role: Role::Viewer, changes: false,
        request: "Empty", answer: "Session", refusals: &[] },
    Operation { path: "/api/v1/timeline/list", summary: "The timeline, page by page, the newest first", role: Role::Viewer, changes: false,
        request: "TimelineRequest", answer: "Events", refusals: &[] },
    Operation { path: "/api/v1/tokens/create", summary: "Make an API token", role: Role::Admin, changes: true,
        request: "TokenCreateRequest", answer: "NewToken", refusals: &[] },
    Operation { path: "/api/v1/tokens/list", summary: "List API tokens", role: Role::Admin, changes: false,
        request: "PageRequest", answer: "TokenPage", refusals: &[] },
    Operation { path: "/api/v1/tokens/revoke", summary: "Stop an API token from working, for good", role: Role::Admin, changes: true,
        request: "TokenRevokeRequest", answer: "Token", refusals: &["token_unknown"] },
];

type Function = ServerFnTraitObj<http::Request<Body>, http::Response<Body>>;

/// The server functions by path and method.
pub(super) fn functions() -> HashMap<(&'static str, Method), Function> {
    let functions = server_fn::inventory::iter::<Function>;
    functions.into_iter().map(|function| ((function.path(), function.method()), function.clone())).collect()
}

/// The table names something that is no server function, or misses one.
#[derive(Debug, thiserror::Error)]
pub(crate) struct Undescribed(Vec<String>);

impl fmt::Display for Undescribed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operations and server functions differ: {}", self.0.join(", "))
    }
}

/// Routes to all operations.
pub(super) fn routes(http: &Arc<Http>) -> Result<Router, Undescribed> {
    let mut functions = functions();
    let mut router = Router::new();
    let mut missing = Vec::new();
    for operation in OPERATIONS {
        let mut methods = MethodRouter::new();
        let filters = [(Method::POST, MethodFilter::POST), (Method::GET, MethodFilter::GET)];
        for (method, filter) in &filters[..if operation.changes { 1 } else { 2 }] {
            match functions.remove(&(operation.path, method.clone())) {
                None => missing.push(format!("{method} {} is not there", operation.path)),
                Some(function) => {
                    let http = Arc::clone(http);
                    methods = methods.merge(on(*filter, move |request| run(http, operation, function, request)));
                }
            }
        }
        router = router.route(operation.path, methods);
    }
    missing.extend(functions.into_keys().map(|(path, method)| format!("{method} {path} is not described")));
    if missing.is_empty() { Ok(router) } else { Err(Undescribed(missing)) }
}

async fn run(http: Arc<Http>, operation: &'static Operation, function: Function, mut request: Request) -> Response {
    let outbox = request.extensions_mut().remove::<Arc<Outbox>>();
    let Some(Passed { id, caller, .. }) = request.extensions_mut().remove::<Passed>() else {
        // The gate lies before every route.
        return ApiError::internal().into_response(None);
    };
    // Server functions answer a caller that accepts HTML with a redirect; a caller of an API wants its answer.
    request.headers_mut().remove(header::ACCEPT);
    let key = match idempotency_key(request.headers()) {
        Ok(key) => key.filter(|_| operation.changes),
        Err(error) => return error.into_response(Some(Box::from(&*id.0))),
    };
    let exchange = Exchange::new(Arc::clone(&http.backends), caller, id, key, operation.path);
    let owner = Owner::new();
    let scoped = owner.with(|| {
        provide_context(exchange.clone());
        ScopedFuture::new(function.handler(request))
    });
    let mut response = scoped.await;
    drop(owner);
    let notes = exchange.take_notes();
    if notes.replayed {
        response
            .headers_mut()
            .insert(HeaderName::from_static("idempotency-replayed"), HeaderValue::from_static("true"));
    }
    match (notes.delivery, outbox) {
        (Some(guard), Some(outbox)) => delivery::guard(response, guard, outbox),
        (Some(guard), None) => {
            // Without a connection of our own the answer cannot be followed any further.
            guard.delivered();
            response
        }
        (None, _) => response,
    }
}

/// The `Idempotency-Key`: 1 to 255 visible ASCII characters.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<Box<str>>, ApiError> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let key = value.as_bytes();
    let is_good = (1..=255).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic) && values.next().is_none();
    match std::str::from_utf8(key) {
        Ok(key) if is_good => Ok(Some(Box::from(key))),
        _ => Err(ApiError::invalid(
            "idempotency_key",
            "must be one Idempotency-Key header of 1 to 255 visible ASCII characters",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_knows_every_server_function() {
        assert!(OPERATIONS.windows(2).all(|pair| pair[0].path < pair[1].path));
        let mut functions = functions();
        for operation in OPERATIONS {
            assert!(functions.remove(&(operation.path, Method::POST)).is_some(), "POST {}", operation.path);
            let by_query = functions.remove(&(operation.path, Method::GET)).is_some();
            assert_eq!(by_query, !operation.changes, "GET {}", operation.path);
        }
        assert!(functions.is_empty(), "{:?}", functions.keys());
    }

    #[test]
    fn an_idempotency_key_is_one_header_of_1_to_255_characters() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("idempotency-key", value.parse().unwrap());
            }
            idempotency_key(&headers)
        };
        assert_eq!(of(&[]).unwrap(), None);
        assert_eq!(of(&["a"]).unwrap().as_deref(), Some("a"));
        assert!(of(&[&"k".repeat(255)]).is_ok());
        for bad in [&[""][..], &[&"k".repeat(256)], &["a b"], &["a", "a"]] {
            assert_eq!(of(bad).unwrap_err().status(), 422);
        }
    }
}
