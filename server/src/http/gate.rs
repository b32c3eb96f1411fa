//! What every request passes: it gets an id, is counted and measured, shows who it is, and its response gets the headers
//! that all have. One layer for all of it, since each layer costs a boxed future a request.

use std::sync::Arc;
use std::time::Duration;

use app::api::ApiError;
use app::api::exchange::Caller;
use axum::body::HttpBody;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use domain::ActorKind;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::Http;
use super::authenticate::Credential;
use super::metrics::Watch;
use super::request::{Passed, REQUEST_ID};
use super::{headers, origin};

/// The longest a request may take until its answer begins: the longest wait in a queue, and some.
const MOST_TIME: Duration = Duration::from_secs(90);
/// Bodies beyond this many bytes count as large: only so many are held in memory at once.
const LARGE: u64 = 64 * 1024;

/// The layer.
pub(super) async fn gate(State(http): State<Arc<Http>>, mut request: Request, next: Next) -> Response {
    let id = http.ids.of(request.headers());
    let watch = Watch::start();
    let method = request.method().clone();
    let route = http.metrics.route(request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str));
    let path =
        tracing::enabled!(target: "job_leases::access", tracing::Level::DEBUG).then(|| request.uri().path().to_owned());
    let _under_way = http.metrics.begin();
    // What is wrong with it is told below.
    let credential = Credential::of(request.headers()).ok().flatten();
    let known = match credential.map(|credential| credential.secret().to_owned()) {
        Some(secret) => http.caller(&secret).await,
        None => Ok(None),
    };
    let identified = known.and_then(|known| identify(&http, &request, known)).and_then(|(caller, secret)| {
        if caller.is_none() && is_change(&request) && request.uri().path().starts_with("/api/") {
            // Before anything of the body is read: strangers take up no room.
            return Err(ApiError::unauthenticated());
        }
        let places = Places::take(&http, &request, caller.is_some())?;
        Ok((places, caller, secret))
    });
    let answered = match identified {
        Err(error) => Err(error),
        Ok((places, caller, secret)) => {
            request.extensions_mut().insert(Passed { id: id.clone(), caller, secret });
            let answered = timeout(MOST_TIME, next.run(request)).await;
            drop(places);
            answered.map_err(|_| ApiError::new("unavailable", "this took too long and was given up"))
        }
    };
    let mut response = answered.unwrap_or_else(|error| error.into_response(Some(Box::from(&*id.0))));
    let header = HeaderValue::from_str(&id.0).unwrap_or(HeaderValue::from_static("unknown"));
    response.headers_mut().insert(HeaderName::from_static(REQUEST_ID), header);
    headers::secure(response.headers_mut(), http.https());
    let status = response.status();
    let seconds = watch.seconds();
    http.metrics.answered(route, status.as_u16(), seconds);
    // Being full or stopping is no fault, and would be told a thousand times.
    if status == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::error!(request_id = &*id.0, %method, route, status = status.as_u16(), seconds, "a request failed");
    } else if let Some(path) = path {
        tracing::debug!(
            target: "job_leases::access",
            request_id = &*id.0, %method, path, status = status.as_u16(), seconds, "answered"
        );
    }
    response
}

/// Who asks, and with which secret, which is `known` to be somebody's or not. A session that has ended is no error: pages then lead to signing in.
#[expect(clippy::type_complexity, reason = "two optional things that belong together, named where they are used")]
fn identify(
    http: &Http,
    request: &Request,
    known: Option<Arc<Caller>>,
) -> Result<(Option<Arc<Caller>>, Option<Arc<str>>), ApiError> {
    let Some(credential) = Credential::of(request.headers())? else { return Ok((None, None)) };
    let secret = credential.secret();
    // A token is shown as a token and a session as a session: only then the rules for each are kept.
    let kind = if matches!(credential, Credential::Bearer(_)) { ActorKind::Token } else { ActorKind::Session };
    let Some(caller) = known.filter(|caller| caller.actor.kind == kind) else {
        return match credential {
            Credential::Bearer(_) => {
                Err(ApiError::new("unauthenticated", "this token is not known, or no longer good"))
            }
            Credential::Cookie(_) => Ok((None, None)),
        };
    };
    if matches!(credential, Credential::Cookie(_)) && is_change(request) && !is_own(http, request.headers()) {
        return Err(ApiError::new(
            "origin_refused",
            "a signed-in browser changes things from this server's pages only",
        ));
    }
    Ok((Some(caller), Some(Arc::from(secret))))
}

fn is_change(request: &Request) -> bool {
    !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Whether the request comes from a page of this server.
pub(super) fn is_own(http: &Http, headers: &HeaderMap) -> bool {
    origin::is_own(headers, http.public_origin.as_deref())
}

/// The room a request takes up until its answer begins.
struct Places {
    _request: OwnedSemaphorePermit,
    _large_body: Option<OwnedSemaphorePermit>,
}

impl Places {
    /// Strangers may send a small form only, which is not held to this.
    fn take(http: &Http, request: &Request, is_known: bool) -> Result<Self, ApiError> {
        let full = || ApiError::new("overloaded", "too many requests are under way").retry_after_ms(1_000);
        let is_large = is_known && request.body().size_hint().upper().is_none_or(|bytes| bytes > LARGE);
        Ok(Self {
            _request: Arc::clone(&http.limits.requests).try_acquire_owned().map_err(|_| full())?,
            _large_body: if is_large {
                Some(Arc::clone(&http.limits.large_bodies).try_acquire_owned().map_err(|_| full())?)
            } else {
                None
            },
        })
    }
}
