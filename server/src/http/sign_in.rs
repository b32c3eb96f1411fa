//! `/sign-in` and `/sign-out`: plain forms. A token or a one-time link opens a session.
//!
//! A link's `GET` only shows a button: mail scanners and browsers that look ahead must not use it up.

use std::sync::Arc;

use app::api::ApiError;
use app::ui::pages::sign_in::{self, SignIn};
use axum::Router;
use axum::extract::{Extension, RawQuery, Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use domain::{ActorKind, Span};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use leptos::prelude::LeptosOptions;

use super::authenticate::COOKIE;
use super::request::Passed;
use super::{Http, form, gate, headers};
use crate::backend::sessions;

#[derive(Clone)]
struct Place {
    http: Arc<Http>,
    options: LeptosOptions,
}

/// Routes to both.
pub(super) fn routes(http: Arc<Http>, options: LeptosOptions) -> Router {
    Router::new()
        .route("/sign-in", get(show).post(enter))
        .route("/sign-out", post(leave))
        .with_state(Place { http, options })
}

/// What the form sends, or the query of its page holds.
#[derive(Default)]
struct Form {
    token: Option<String>,
    link: Option<String>,
    next: Option<String>,
}

impl Form {
    fn read(encoded: &[u8]) -> Self {
        let mut form = Self::default();
        for (name, value) in form_urlencoded::parse(encoded) {
            let value = Some(value.into_owned()).filter(|value| !value.is_empty());
            match &*name {
                "token" => form.token = value,
                "link" => form.link = value,
                "next" => form.next = value.filter(|next| is_local(next)),
                _ => {}
            }
        }
        form
    }
}

/// A path of this server, and nothing that a browser could take for another's.
fn is_local(next: &str) -> bool {
    next.starts_with('/')
        && !next.starts_with("//")
        && !next.contains('\\')
        && next.bytes().all(|byte| byte.is_ascii_graphic())
}

async fn show(
    State(place): State<Place>,
    Extension(passed): Extension<Passed>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let form = Form::read(query.unwrap_or_default().as_bytes());
    if passed.caller.is_some() && form.link.is_none() {
        return Redirect::to(form.next.as_deref().unwrap_or("/")).into_response();
    }
    page(&place, &headers, StatusCode::OK, form, None)
}

async fn enter(State(place): State<Place>, Extension(passed): Extension<Passed>, request: Request) -> Response {
    let request_headers = request.headers().clone();
    if !gate::is_own(&place.http, &request_headers) {
        return ApiError::new("origin_refused", "sign in from this server's own page")
            .into_response(Some(Box::from(&*passed.id.0)));
    }
    let form = match form::read(request.into_body()).await {
        Some(body) => Form::read(&body),
        None => {
            return page(
                &place,
                &request_headers,
                StatusCode::PAYLOAD_TOO_LARGE,
                Form::default(),
                Some("That was too long for a token."),
            );
        }
    };
    let opened = match (&form.link, &form.token) {
        (Some(link), _) => sessions::open_by_link(&place.http.engine, link, passed.id.clone()).await,
        (None, Some(token)) => sessions::open_by_token(&place.http.engine, token.trim(), passed.id.clone()).await,
        (None, None) => {
            return page(
                &place,
                &request_headers,
                StatusCode::UNPROCESSABLE_ENTITY,
                form,
                Some("Type or paste an API token."),
            );
        }
    };
    match opened {
        Ok(signed_in) => {
            let mut response = Redirect::to(form.next.as_deref().unwrap_or("/")).into_response();
            set_cookie(
                &mut response,
                &place.http,
                &signed_in.secret,
                signed_in.expires_at.since(place.http.engine.now()),
            );
            response
        }
        Err(error) => {
            let (status, problem) = match error.code.as_ref() {
                "unauthenticated" if form.link.is_some() => {
                    (StatusCode::UNAUTHORIZED, "This link was used already or is too old. Sign in with an API token.")
                }
                "unauthenticated" => (StatusCode::UNAUTHORIZED, "This token is not known here, or no longer good."),
                _ => (
                    StatusCode::SERVICE_UNAVAILABLE,
                    "The server cannot sign anybody in just now. Try again in a moment.",
                ),
            };
            page(&place, &request_headers, status, Form { link: None, ..form }, Some(problem))
        }
    }
}

async fn leave(State(place): State<Place>, Extension(passed): Extension<Passed>) -> Response {
    if let Some(caller) = passed.caller.as_deref().filter(|caller| caller.actor.kind == ActorKind::Session)
        && let Err(error) = sessions::close(&place.http.engine, caller, passed.id.clone()).await
    {
        return error.into_response(Some(Box::from(&*passed.id.0)));
    }
    let mut response = Redirect::to("/sign-in").into_response();
    set_cookie(&mut response, &place.http, "", Span::ZERO);
    response
}

/// Sets the session's cookie; with no time left the browser forgets it.
fn set_cookie(response: &mut Response, http: &Http, secret: &str, lasts: Span) {
    let secure = if http.https() { "; Secure" } else { "" };
    let seconds = lasts.as_millis() / 1_000;
    let cookie = format!("{COOKIE}={secret}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

fn page(place: &Place, request: &HeaderMap, status: StatusCode, form: Form, problem: Option<&str>) -> Response {
    let cookies = request.get(header::COOKIE).and_then(|cookies| cookies.to_str().ok()).map(str::to_owned);
    let sign_in = SignIn { problem: problem.map(str::to_owned), next: form.next, link: form.link, cookies };
    let document = sign_in::document(place.options.clone(), sign_in);
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(headers::FORM_POLICY)),
    ];
    (status, headers, document).into_response()
}

#[cfg(test)]
mod tests {
    use super::is_local;

    #[test]
    fn signing_in_leads_to_pages_of_this_server_only() {
        for next in ["/", "/core/audit?x=1", "/?a=%2F%2F"] {
            assert!(is_local(next), "{next}");
        }
        for next in ["", "core", "//evil.example", "/\\evil.example", "https://evil.example", "/a b", "/\r\nx"] {
            assert!(!is_local(next), "{next}");
        }
    }
}
