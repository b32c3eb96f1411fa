//! What is known of a request once it has passed the gate, and the ids of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use app::api::exchange::Caller;
use domain::RequestId;
use http::{HeaderMap, HeaderValue};

use super::chance;

/// The header that carries a request's id, in both directions.
pub(super) const REQUEST_ID: &str = "x-request-id";
/// The longest id that is taken from a client.
const MOST: usize = 64;

/// A request that has passed the gate. In the request's extensions.
#[derive(Clone)]
pub(crate) struct Passed {
    /// Its id.
    pub(crate) id: RequestId,
    /// Who asks, if they have shown who they are.
    pub(crate) caller: Option<Arc<Caller>>,
    /// The secret they showed, to see later whether it is still good.
    pub(crate) secret: Option<Arc<str>>,
}

/// Gives each request an id: the client's own if it sent a sensible one.
pub(crate) struct RequestIds {
    start: u32,
    next: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        // Tells the requests of one run of the server from those of the next.
        Self { start: chance::number() as u32, next: AtomicU64::new(1) }
    }

    pub(super) fn of(&self, headers: &HeaderMap) -> RequestId {
        let sent = headers.get(REQUEST_ID).map(HeaderValue::as_bytes).filter(|id| is_sensible(id));
        if let Some(id) = sent.and_then(|id| std::str::from_utf8(id).ok()) {
            return RequestId(Arc::from(id));
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        RequestId(Arc::from(format!("rq-{:08x}-{number:x}", self.start)))
    }
}

/// Letters, digits and a little punctuation: it goes to the logs and the timeline as it is.
fn is_sensible(id: &[u8]) -> bool {
    (1..=MOST).contains(&id.len()) && id.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_id_is_kept_if_it_can_stand_in_a_log() {
        let ids = RequestIds::new();
        let with =
            |id: &'static str| HeaderMap::from_iter([(REQUEST_ID.parse().unwrap(), HeaderValue::from_static(id))]);
        assert_eq!(&*ids.of(&with("deploy/42")).0, "deploy/42");
        for id in ["", "a b", "a\"b", "0123456789012345678901234567890123456789012345678901234567890123456789"] {
            assert!(ids.of(&with(id)).0.starts_with("rq-"), "{id}");
        }
        assert_ne!(ids.of(&HeaderMap::new()), ids.of(&HeaderMap::new()));
    }
}
