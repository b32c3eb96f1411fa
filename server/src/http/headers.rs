//! Headers that every response carries, so that a browser does nothing with it that was not meant.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// What may happen on a page that runs the console: only scripts with this response's nonce, and what they load.
pub(super) fn console_policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'nonce-{nonce}' 'strict-dynamic' 'wasm-unsafe-eval'; style-src 'self'; \
         img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; \
         form-action 'self'; frame-ancestors 'none'"
    )
}

/// What may happen on a page that is only a form.
pub(super) const FORM_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; base-uri 'none'; \
    form-action 'self'; frame-ancestors 'none'";

/// What may happen in anything else: nothing.
const CLOSED_POLICY: &str = "default-src 'none'; frame-ancestors 'none'";

static FIXED: [(HeaderName, HeaderValue); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    // Not `no-referrer`: with it browsers send `Origin: null` with forms, by which this server knows its own pages.
    (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static("camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ),
];

/// Adds them; what the handler has said itself stays.
pub(super) fn secure(headers: &mut HeaderMap, https: bool) {
    headers.reserve(FIXED.len() + 4);
    for (name, value) in &FIXED {
        headers.insert(name, value.clone());
    }
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(CLOSED_POLICY));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if https {
        headers
            .insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000; includeSubDomains"));
    }
}
