//! What is answered where there is nothing, in the words of the API.

use app::api::ApiError;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, header};

use super::request::Passed;

/// No such path.
pub(super) async fn not_found(request: Request) -> Response {
    answer(&request, ApiError::new("not_found", "there is nothing at this path; see /api/v1/openapi.json"))
}

/// Nobody is told what is at this path.
pub(super) fn unauthenticated(request: &Request) -> Response {
    answer(request, ApiError::unauthenticated())
}

/// No such method at this path. The router adds `Allow`.
pub(super) async fn method_not_allowed(request: Request) -> Response {
    answer(&request, ApiError::new("method_not_allowed", "this path does not take this method; see the Allow header"))
}

fn answer(request: &Request, error: ApiError) -> Response {
    let id = request.extensions().get::<Passed>().map(|passed| Box::from(&*passed.id.0));
    error.into_response(id)
}

/// Whether the caller is a program that asked for JSON: it gets no page and is led to none.
pub(super) fn wants_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).map(HeaderValue::as_bytes).unwrap_or_default();
    let names = |wanted: &[u8]| accept.windows(wanted.len()).any(|part| part.eq_ignore_ascii_case(wanted));
    names(b"application/json") && !names(b"text/html")
}

/// Whether the caller is a browser that wants a page: then it is led to one instead.
pub(super) fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).map(HeaderValue::as_bytes).unwrap_or_default();
    accept.windows(b"text/html".len()).any(|part| part.eq_ignore_ascii_case(b"text/html"))
        && !headers.contains_key(header::AUTHORIZATION)
}
