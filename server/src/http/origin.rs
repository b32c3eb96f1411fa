//! Whether a change that a browser asks for comes from this server's own pages.
//!
//! A browser sends a session's cookie along with whatever any site makes it send. So a change by cookie needs a word from
//! the browser itself about where it comes from: `Sec-Fetch-Site`, or `Origin` from those that do not send it.

use http::{HeaderMap, HeaderValue, header};

/// Whether the request comes from a page of this very origin. `public` is the origin that browsers see, if it is known
/// (`https://leases.example.com`); otherwise `Origin` is held against `Host`.
pub(super) fn is_own(headers: &HeaderMap, public: Option<&str>) -> bool {
    let text = |name: &str| headers.get(name).map(HeaderValue::to_str).transpose().ok().flatten();
    if let Some(site) = text("sec-fetch-site") {
        // `none`: the person did it, by the address bar or a bookmark; no page can bring that about.
        return site == "same-origin" || site == "none";
    }
    let Some(origin) = text(header::ORIGIN.as_str()) else { return false };
    match public {
        Some(public) => origin == public,
        None => {
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            authority.is_some() && authority == text(header::HOST.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn only_what_the_browser_says_is_ours_is_ours() {
        for (sent, public, own) in [
            (&[("sec-fetch-site", "same-origin")][..], None, true),
            (&[("sec-fetch-site", "none")], None, true),
            (&[("sec-fetch-site", "same-site")], None, false),
            (&[("sec-fetch-site", "cross-site"), ("origin", "http://a:1"), ("host", "a:1")], None, false),
            (&[("origin", "http://a:1"), ("host", "a:1")], None, true),
            (&[("origin", "http://b:1"), ("host", "a:1")], None, false),
            (&[("origin", "null"), ("host", "a:1")], None, false),
            (&[("host", "a:1")], None, false),
            (&[("origin", "https://a"), ("host", "inner:1")], Some("https://a"), true),
            (&[("origin", "https://b"), ("host", "b")], Some("https://a"), false),
        ] {
            assert_eq!(is_own(&headers(sent), public), own, "{sent:?}");
        }
    }
}
