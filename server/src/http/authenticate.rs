//! Who asks: an API token in `Authorization: Bearer`, or a session in a cookie; never both.

use app::api::ApiError;
use http::{HeaderMap, header};

/// The session's cookie.
pub(super) const COOKIE: &str = "job_leases_session";

/// A secret that a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credential<'a> {
    /// Of an API token.
    Bearer(&'a str),
    /// Of a browser's session.
    Cookie(&'a str),
}

impl<'a> Credential<'a> {
    /// The secret in a request's headers.
    ///
    /// # Errors
    /// `two_credentials` if there are two, `unauthenticated` if `Authorization` is not a bearer's.
    pub(super) fn of(headers: &'a HeaderMap) -> Result<Option<Self>, ApiError> {
        let cookie = cookie(headers);
        let mut authorizations = headers.get_all(header::AUTHORIZATION).iter();
        let Some(authorization) = authorizations.next() else {
            return Ok(cookie.map(Self::Cookie));
        };
        if cookie.is_some() || authorizations.next().is_some() {
            return Err(ApiError::new("two_credentials", "send one token, or the session's cookie, not two of them"));
        }
        let bearer = authorization.to_str().ok().and_then(|value| value.split_once(' '));
        match bearer {
            Some((scheme, secret)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(Self::Bearer(secret.trim()))),
            _ => Err(ApiError::new("unauthenticated", "Authorization must be: Bearer jl_...")),
        }
    }

    /// The secret itself.
    pub(super) const fn secret(self) -> &'a str {
        match self {
            Self::Bearer(secret) | Self::Cookie(secret) => secret,
        }
    }
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    // As bytes: whatever else a browser keeps for this host must not hide the session.
    let pairs = headers.get_all(header::COOKIE).iter().flat_map(|header| header.as_bytes().split(|byte| *byte == b';'));
    let mut pairs = pairs.filter_map(|pair| std::str::from_utf8(pair).ok()?.trim().split_once('='));
    pairs.find_map(|(name, value)| (name == COOKIE && !value.is_empty()).then_some(value))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_request_carries_one_secret_at_most() {
        let both = headers(&[("authorization", "Bearer jl_x"), ("cookie", "job_leases_session=s")]);
        assert_eq!(Credential::of(&both).unwrap_err().code, "two_credentials");
        let bearer = headers(&[("authorization", "bearer jl_x"), ("cookie", "appearance=dark")]);
        assert_eq!(Credential::of(&bearer).unwrap(), Some(Credential::Bearer("jl_x")));
        let cookie = headers(&[("cookie", "appearance=dark; job_leases_session=s")]);
        assert_eq!(Credential::of(&cookie).unwrap(), Some(Credential::Cookie("s")));
        let mut odd = HeaderMap::new();
        odd.insert("cookie", HeaderValue::from_bytes(b"theme=\xff; job_leases_session=s").unwrap());
        assert_eq!(Credential::of(&odd).unwrap(), Some(Credential::Cookie("s")));
        assert_eq!(Credential::of(&headers(&[("authorization", "Basic eDp5")])).unwrap_err().code, "unauthenticated");
        assert_eq!(Credential::of(&HeaderMap::new()).unwrap(), None);
    }
}
