//! The one error of the API, and the one table that gives each code its status.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use server_fn::codec::JsonEncoding;
use server_fn::error::{FromServerFnError, ServerFnErrorErr};

/// What a caller is told when something is refused or fails. As JSON: `{"code", "message", "field"?, "details"?,
/// "request_id"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiError {
    /// What programs decide by; see [`status_of`].
    pub code: Cow<'static, str>,
    /// What people read. It names no internals.
    pub message: Cow<'static, str>,
    /// The field at fault, as a path: `leases[0].ttl_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What else a program may want to know; its members depend on the code. Boxed: errors are passed about often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<Map<String, Value>>>,
    /// The request's id, as in the `X-Request-Id` header and in the logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Box<str>>,
}

/// Every code that is not made of a field's name, with its status.
///
/// Besides these there are `<field>_invalid` and `<field>_out_of_range`, both 422.
pub const CODES: &[(&str, u16)] = &[
    ("malformed", 400),
    ("two_credentials", 400),
    ("unauthenticated", 401),
    ("forbidden", 403),
    ("origin_refused", 403),
    ("lease_key_unknown", 404),
    ("lease_unknown", 404),
    ("not_found", 404),
    ("token_unknown", 404),
    ("method_not_allowed", 405),
    ("timed_out", 408),
    ("breaking", 409),
    ("cooling", 409),
    ("held", 409),
    ("idempotency_in_progress", 409),
    ("keys_busy", 409),
    ("lease_lost", 409),
    ("not_held", 409),
    ("not_quarantined", 409),
    ("quarantined", 409),
    ("wait_timeout", 409),
    ("compacted", 410),
    ("too_large", 413),
    ("unsupported_media_type", 415),
    ("idempotency_mismatch", 422),
    ("unknown_field", 422),
    ("queue_full", 429),
    ("internal", 500),
    ("overloaded", 503),
    ("stopping", 503),
    ("unavailable", 503),
];

/// The HTTP status of a code; 500 for one that nobody knows.
#[must_use]
pub fn status_of(code: &str) -> u16 {
    match CODES.iter().find(|(known, _)| *known == code) {
        Some((_, status)) => *status,
        None if code.ends_with("_invalid") || code.ends_with("_out_of_range") => 422,
        None => 500,
    }
}

impl ApiError {
    /// Nobody has shown who they are.
    #[must_use]
    pub fn unauthenticated() -> Self {
        Self::new("unauthenticated", "a token (Authorization: Bearer jl_...) or a signed-in session is needed")
    }

    /// An error with a code of [`CODES`].
    #[must_use]
    pub fn new(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code: Cow::Borrowed(code), message: message.into(), field: None, details: None, request_id: None }
    }

    /// `<field>_invalid`, where `field` is a path and its last name makes the code.
    #[must_use]
    pub fn invalid(field: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self::of_field(field.into(), "invalid", &problem)
    }

    /// `<field>_out_of_range`, where `field` is a path and its last name makes the code.
    #[must_use]
    pub fn out_of_range(field: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self::of_field(field.into(), "out_of_range", &problem)
    }

    fn of_field(field: String, what: &str, problem: &dyn fmt::Display) -> Self {
        let name = field.rsplit('.').next().unwrap_or(&field);
        let name = name.split('[').next().unwrap_or(name);
        Self {
            code: Cow::Owned(format!("{name}_{what}")),
            message: Cow::Owned(format!("{field} {problem}")),
            field: Some(field),
            details: None,
            request_id: None,
        }
    }

    /// Something of ours went wrong; what it was stands in the logs only.
    #[must_use]
    pub fn internal() -> Self {
        Self::new("internal", "something went wrong on the server; the request id leads to it in the logs")
    }

    /// Adds what a program may want to know.
    #[must_use]
    pub fn with_details(mut self, details: Map<String, Value>) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// Asks the caller to come back after so many milliseconds: in `details`, and for 429 and 503 as `Retry-After`.
    #[must_use]
    pub fn retry_after_ms(mut self, millis: u64) -> Self {
        self.details.get_or_insert_default().insert("retry_after_ms".to_owned(), json!(millis));
        self
    }

    /// Places the error below a longer path: `ttl_ms` becomes `leases[0].ttl_ms`.
    #[must_use]
    pub fn below(mut self, parent: &str) -> Self {
        if let Some(field) = self.field.take() {
            let longer = format!("{parent}.{field}");
            if let Some(problem) = self.message.strip_prefix(field.as_str()) {
                self.message = Cow::Owned(format!("{longer}{problem}"));
            }
            self.field = Some(longer);
        }
        self
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        status_of(&self.code)
    }

    /// After how many whole seconds to come back, at least one, if the status asks for that header.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        if !matches!(self.status(), 429 | 503) {
            return None;
        }
        let millis = self.details.as_ref().and_then(|details| details.get("retry_after_ms")).and_then(Value::as_u64);
        Some(millis.unwrap_or(1_000).div_ceil(1_000).max(1))
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for ApiError {}

impl FromServerFnError for ApiError {
    type Encoder = JsonEncoding;

    /// On the client: the server was not reached, or what came back was not of this API. On the server it can only
    /// mean that an answer could not be written.
    fn from_server_fn_error(error: ServerFnErrorErr) -> Self {
        match error {
            ServerFnErrorErr::Request(_) => Self::new("unreachable", "the server could not be reached"),
            ServerFnErrorErr::Deserialization(_) => Self::new("bad_answer", "the server's answer could not be read"),
            _ => Self::internal(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_error_names_the_field_by_its_path_and_its_code_by_the_last_name() {
        let error = ApiError::invalid("subjects[2]", "is empty").below("leases[0]");
        assert_eq!(error.code, "subjects_invalid");
        assert_eq!(error.field.as_deref(), Some("leases[0].subjects[2]"));
        assert_eq!(error.message, "leases[0].subjects[2] is empty");
        assert_eq!(error.status(), 422);
    }

    #[test]
    fn retry_after_is_written_for_429_and_503_only_and_never_zero() {
        assert_eq!(ApiError::new("overloaded", "").retry_after_ms(1).retry_after_seconds(), Some(1));
        assert_eq!(ApiError::new("overloaded", "").retry_after_ms(1_001).retry_after_seconds(), Some(2));
        assert_eq!(ApiError::new("held", "").retry_after_ms(1_001).retry_after_seconds(), None);
    }

    #[test]
    fn the_table_is_sorted_by_status_and_has_each_code_once() {
        for pair in CODES.windows(2) {
            assert!((pair[0].1, pair[0].0) < (pair[1].1, pair[1].0) || pair[0].1 < pair[1].1, "{pair:?}");
        }
        let mut names: Vec<_> = CODES.iter().map(|(code, _)| code).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), CODES.len());
    }
}
