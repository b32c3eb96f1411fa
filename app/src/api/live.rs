//! The event stream, `GET /api/v1/events`: server-sent events in timeline order.
//!
//! Each has the id `<epoch>-<position>-<first 8 digits of the line's hash>`, to be passed back as it is, no event name (so
//! that `EventSource::onmessage` gets them all) and one line of JSON as data: [`Entry`]. A comment comes every 15 seconds; the
//! first thing sent is an id without data, so that a client which loses the connection before the first event resumes from
//! where it was. `?prefix=` filters by key;
//! `Last-Event-ID` (or `?last_event_id=`) resumes. Too old an id, or one from before a restore, answers 410 `compacted`.

use domain::lease::Event;
use domain::{Actor, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The path of the stream.
pub const PATH: &str = "/api/v1/events";

/// One line of the timeline: its `kind` says what of.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Entry {
    /// A change of a key or lease: kinds `lease.*` and `key.*`. It has all that changed, see [`domain::lease::Change`];
    /// the lease's ttl counts from `at`, on server time.
    Lease(Box<Event>),
    /// Anything else.
    Other(Box<Other>),
}

/// A line of the timeline that is not about a lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Other {
    /// When it was decided.
    pub at: Timestamp,
    /// What happened.
    pub kind: String,
    /// Who brought it about, if anybody.
    #[serde(default)]
    pub actor: Option<Actor>,
    /// The rest.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, Value>,
}

impl Entry {
    /// Reads the data of one server-sent event; `None` if it is not of this API.
    #[must_use]
    pub fn parse(data: &str) -> Option<Self> {
        serde_json::from_str(data).ok()
    }
}

#[cfg(test)]
mod tests {
    use domain::lease::Change;

    use super::*;

    #[test]
    fn a_lease_event_is_told_from_others() {
        let text = r#"{"at":"2026-07-03T20:41:39.469980Z","kind":"key.lifted","reason":"done","lease_key":"k",
            "actor":{"kind":"token","id":"t1","name":"ops"}}"#;
        let Some(Entry::Lease(event)) = Entry::parse(text) else { panic!("not read as a lease's event") };
        assert!(matches!(event.change, Change::Lifted { .. }));
        let text = r#"{"at":"2026-07-03T20:41:39.469980Z","kind":"server.outage","from":"x"}"#;
        let Some(Entry::Other(other)) = Entry::parse(text) else { panic!("not read as another event") };
        assert_eq!(other.kind, "server.outage");
        assert_eq!(Entry::parse("{}"), None);
    }
}
