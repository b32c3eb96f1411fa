//! Speaks to the server: one request, one answer, or why there is none.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use app::api::ApiError;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::exit::{Exit, Problem};

/// How long a plain request may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// How long it may take to reach the server.
const CONNECT: Duration = Duration::from_secs(5);

/// A connection to one server under one token. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    has_token: bool,
}

/// Why there is no good answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No whole answer came.
    Unanswered {
        /// What went wrong.
        message: String,
        /// Whether the server may have received the request, and acted on it.
        sent: bool,
    },
    /// The server refused.
    Refused {
        /// Why.
        error: Box<ApiError>,
        /// The status of the answer.
        status: StatusCode,
        /// When to come back, if it said so.
        retry_after: Option<Duration>,
        /// Whether a token was sent along.
        had_token: bool,
    },
    /// What came back is not of this API: a proxy's error page, another service.
    Strange {
        /// The status of the answer.
        status: StatusCode,
    },
}

/// The beginning of an HTTP client, with the cryptography that this program was built with.
pub fn http_client() -> reqwest::ClientBuilder {
    // An error means that it was installed before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
}

impl Client {
    /// A client for the server at `url`. Nothing is sent yet.
    ///
    /// # Errors
    /// If the address is no `http` or `https` URL, or the token could not be in a header.
    pub(crate) fn new(url: &str, token: Option<&str>) -> Result<Self, Problem> {
        let unusable = |why: &dyn fmt::Display| Problem::new(Exit::Configuration, format!("the address {url}: {why}"));
        let mut base = Url::parse(url).map_err(|error| unusable(&error))?;
        if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
            return Err(unusable(&"is not of the form http://host:port or https://host"));
        }
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| Problem::new(Exit::Configuration, "the token holds characters that no token has"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let mut http = http_client()
            .user_agent(concat!("job-leases/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none())
            .tcp_keepalive(Duration::from_secs(10))
            .tcp_keepalive_interval(Duration::from_secs(5))
            .tcp_keepalive_retries(3);
        if is_this_machine(&base) {
            http = http.no_proxy();
        }
        if base.scheme() == "http" {
            // No certificate is looked at, so a machine that has none installed will do.
            http = http.tls_certs_only([]);
        }
        let http = http.build().map_err(|error| unusable(&because(&error)))?;
        Ok(Self { http, base, has_token: token.is_some() })
    }

    /// The server's address.
    pub(crate) fn url(&self) -> &str {
        self.base.as_str()
    }

    /// Calls `POST /api/v1/<operation>` and waits at most `patience` for the whole answer.
    ///
    /// # Errors
    /// See [`Failure`].
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        operation: &str,
        request: &impl Serialize,
        idempotency_key: Option<&str>,
        patience: Duration,
    ) -> Result<T, Failure> {
        let url = self.endpoint(&format!("api/v1/{operation}"))?;
        let mut builder = self.http.post(url).timeout(patience).json(request);
        if let Some(key) = idempotency_key {
            builder = builder.header("Idempotency-Key", key);
        }
        let response = self.checked(builder.send().await).await?;
        let status = response.status();
        let body = response.bytes().await.map_err(|error| unanswered(&error))?;
        serde_json::from_slice(&body).map_err(|_| Failure::Strange { status })
    }

    /// Calls an operation of which the answer is only passed on.
    ///
    /// # Errors
    /// See [`Failure`].
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        operation: &str,
        request: &impl Serialize,
    ) -> Result<T, Failure> {
        self.call(operation, request, None, PATIENCE).await
    }

    /// `GET <path>`, with the answer's body still to come; no limit of time once the answer has begun.
    ///
    /// # Errors
    /// See [`Failure`].
    pub(crate) async fn get(
        &self,
        path: &str,
        query: &[(&str, &str)],
        headers: HeaderMap,
    ) -> Result<Response, Failure> {
        let url = self.endpoint(path)?;
        let send = self.http.request(Method::GET, url).query(query).headers(headers).send();
        match tokio::time::timeout(PATIENCE, send).await {
            Ok(result) => self.checked(result).await,
            Err(_) => Err(Failure::Unanswered { message: "the server did not answer in time".to_owned(), sent: true }),
        }
    }

    fn endpoint(&self, path: &str) -> Result<Url, Failure> {
        self.base.join(path).map_err(|error| Failure::Unanswered { message: error.to_string(), sent: false })
    }

    async fn checked(&self, result: Result<Response, reqwest::Error>) -> Result<Response, Failure> {
        let response = result.map_err(|error| unanswered(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = response.bytes().await.map_err(|error| unanswered(&error))?;
        Err(match serde_json::from_slice(&body) {
            Ok(error) => Failure::Refused {
                error: Box::new(error),
                status,
                retry_after: retry_after.map(Duration::from_secs),
                had_token: self.has_token,
            },
            Err(_) => Failure::Strange { status },
        })
    }
}

/// Whether nothing between could help to reach it: proxies are for other machines.
fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn unanswered(error: &reqwest::Error) -> Failure {
    let sent = !(error.is_connect() || error.is_builder());
    let message = if error.is_timeout() { "the server did not answer in time".to_owned() } else { because(error) };
    Failure::Unanswered { message, sent }
}

/// The innermost cause: the outer ones only say that a request failed.
fn because(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

impl Failure {
    /// The code of the server's refusal.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { error, .. } => Some(&error.code),
            _ => None,
        }
    }

    /// Whether the same request may succeed a little later: the server is away, busy, or something between is.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unanswered { .. } | Self::Strange { .. } => true,
            Self::Refused { status, .. } => {
                status.is_server_error()
                    || matches!(*status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
                    || self.code() == Some("idempotency_in_progress")
            }
        }
    }

    /// Whether the server may have acted on the request although no answer says so.
    pub(crate) fn may_have_happened(&self) -> bool {
        match self {
            Self::Unanswered { sent, .. } => *sent,
            Self::Strange { .. } => true,
            Self::Refused { status, .. } => status.is_server_error() || self.code() == Some("idempotency_in_progress"),
        }
    }

    /// When the server wants to be asked again.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let Self::Refused { error, retry_after, .. } = self else { return None };
        let exact = error.details.as_ref().and_then(|details| details.get("retry_after_ms")?.as_u64());
        exact.map(Duration::from_millis).or(*retry_after)
    }

    /// The exit code it leads to.
    pub(crate) fn exit(&self) -> Exit {
        let status = match self {
            Self::Unanswered { .. } | Self::Strange { .. } => return Exit::Unavailable,
            Self::Refused { status, .. } => status.as_u16(),
        };
        match (self.code().unwrap_or_default(), status) {
            ("lease_lost", _) => Exit::Lost,
            ("not_held" | "not_quarantined", _) | (_, 404 | 410) => Exit::Nothing,
            ("queue_full", _) | (_, 409) => Exit::Busy,
            (_, 401 | 403) => Exit::NotAllowed,
            (_, 408 | 429 | 502 | 503 | 504) => Exit::Unavailable,
            (_, 400..=499) => Exit::Usage,
            _ => Exit::Internal,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered { message, .. } => write!(f, "no answer from the server: {message}"),
            Self::Strange { status } => write!(f, "what answered ({status}) is not a Job Leases server"),
            Self::Refused { error, had_token, .. } => {
                write!(f, "{} ({})", error.message, error.code)?;
                if let Some(details) = &error.details {
                    for (name, value) in details.iter().filter(|(name, _)| *name != "retry_after_ms") {
                        match value {
                            serde_json::Value::String(text) => write!(f, "\n  {name}: {text}")?,
                            other => write!(f, "\n  {name}: {other}")?,
                        }
                    }
                }
                if error.code == "unauthenticated" && !had_token {
                    f.write_str("\n  no token was given: set JOB_LEASES_TOKEN or JOB_LEASES_TOKEN_FILE")?;
                }
                Ok(())
            }
        }
    }
}

/// A key that no other request has: with it, a request whose answer was lost is repeated without a second effect.
pub(crate) fn idempotency_key() -> String {
    #[expect(clippy::disallowed_methods, reason = "it must be unlike any other, on any machine; nothing depends on it")]
    let number = rand::random::<u128>();
    format!("cli-{number:032x}")
}

/// A factor between 0.75 and 1.25, so that many who failed together do not come back together.
pub(crate) fn jitter() -> f64 {
    #[expect(clippy::disallowed_methods, reason = "only spreads retries in time")]
    let number = rand::random::<f64>();
    0.75 + number / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &'static str, status: u16) -> Failure {
        Failure::Refused {
            error: Box::new(ApiError::new(code, "")),
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: None,
            had_token: true,
        }
    }

    #[test]
    fn every_code_of_the_api_has_a_fitting_exit_code() {
        for (code, exit) in [
            ("held", Exit::Busy),
            ("cooling", Exit::Busy),
            ("quarantined", Exit::Busy),
            ("wait_timeout", Exit::Busy),
            ("keys_busy", Exit::Busy),
            ("queue_full", Exit::Busy),
            ("lease_lost", Exit::Lost),
            ("lease_unknown", Exit::Nothing),
            ("not_held", Exit::Nothing),
            ("compacted", Exit::Nothing),
            ("unauthenticated", Exit::NotAllowed),
            ("forbidden", Exit::NotAllowed),
            ("malformed", Exit::Usage),
            ("unknown_field", Exit::Usage),
            ("idempotency_mismatch", Exit::Usage),
            ("unavailable", Exit::Unavailable),
            ("overloaded", Exit::Unavailable),
            ("stopping", Exit::Unavailable),
            ("internal", Exit::Internal),
        ] {
            assert_eq!(refused(code, app::api::error::status_of(code)).exit(), exit, "{code}");
        }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        for (code, passing) in [
            ("overloaded", true),
            ("internal", true),
            ("unavailable", true),
            ("idempotency_in_progress", true),
            ("lease_lost", false),
            ("held", false),
            ("forbidden", false),
        ] {
            assert_eq!(refused(code, app::api::error::status_of(code)).is_passing(), passing, "{code}");
        }
    }

    #[test]
    fn a_proxy_is_not_asked_for_this_machine() {
        for (url, here) in [
            ("http://127.0.0.1:7411", true),
            ("http://[::1]:7411", true),
            ("http://localhost", true),
            ("https://leases.example.org", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(is_this_machine(&Url::parse(url).unwrap()), here, "{url}");
        }
    }

    #[test]
    fn an_address_that_is_none_is_refused() {
        for url in ["", "127.0.0.1:7411", "ftp://host", "unix:/run/x"] {
            assert_eq!(Client::new(url, None).unwrap_err().exit, Exit::Configuration, "{url}");
        }
        assert!(Client::new("http://host/behind/a/path", Some("jl_x")).is_ok());
    }
}
