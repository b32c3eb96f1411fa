//! One line of the timeline: what it says, the bytes it is stored as, and the hash that chains it to the line before.

use std::sync::Arc;

use domain::lease::{Event, Outage};
use domain::{Actor, LeaseKey, Owner, RequestId, Role, Timestamp};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::StoreError;

/// Where a line stands in the timeline: 1, 2, 3 ... without a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Position(pub i64);

impl Position {
    /// The place after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// SHA-256 over the hash of the line before, the position and the stored bytes.
pub type Hash = [u8; 32];

/// The hash before the first line.
pub const GENESIS: Hash = [0; 32];

/// What a line of the timeline says.
///
/// Of what a newer version writes, fields that are not known here are passed over, and so is a kind that is not, unless it
/// concerns a lease: without that no state would be right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, try_from = "Read")]
pub enum Record {
    /// A lease key changed.
    Lease(Event),
    /// Anything else.
    Other(Other),
}

/// A line as it is read.
#[derive(Deserialize)]
#[serde(untagged)]
enum Read {
    Lease(Event),
    Other {
        lease_key: Option<IgnoredAny>,
        #[serde(flatten)]
        other: Other,
    },
}

impl TryFrom<Read> for Record {
    type Error = &'static str;
    fn try_from(read: Read) -> Result<Self, &'static str> {
        match read {
            Read::Lease(event) => Ok(Self::Lease(event)),
            Read::Other { lease_key: Some(_), .. } => Err("a change of a lease that this version does not know"),
            Read::Other { other, lease_key: None } => Ok(Self::Other(other)),
        }
    }
}

/// What does not concern one lease key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Other {
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub happening: Happening,
    /// Who brought it about.
    pub actor: Arc<Actor>,
    /// In which request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}

/// What does not concern one lease key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum Happening {
    /// The service was away.
    #[serde(rename = "service.outage")]
    Outage(Outage),
    /// Duplicates were refused since the last such line.
    #[serde(rename = "collisions.prevented")]
    Collisions {
        /// How often, by key and owner.
        refused: Vec<Refused>,
    },
    /// Lines that were kept long enough were taken away.
    #[serde(rename = "timeline.retained")]
    Retained {
        /// The last of them.
        up_to: Position,
    },
    /// An API token was made.
    #[serde(rename = "token.created")]
    TokenCreated {
        /// Its public id.
        token_id: Arc<str>,
        /// What people call it.
        name: Arc<str>,
        /// What it may do.
        role: Role,
        /// On which keys; all if empty.
        prefixes: Vec<Arc<str>>,
        /// Until when; for ever if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<Timestamp>,
    },
    /// An API token was revoked.
    #[serde(rename = "token.revoked")]
    TokenRevoked {
        /// Its public id.
        token_id: Arc<str>,
    },
    /// A one-time sign-in link was made.
    #[serde(rename = "session.link_created")]
    LinkCreated {
        /// Until when it can be used.
        expires_at: Timestamp,
    },
    /// Somebody signed in.
    #[serde(rename = "session.opened")]
    SessionOpened {
        /// The session's public id.
        session_id: Arc<str>,
        /// Who.
        name: Arc<str>,
        /// With which role.
        role: Role,
        /// By which means: `link` or the id of a token.
        means: Arc<str>,
        /// Until when it lasts at the most.
        expires_at: Timestamp,
    },
    /// Somebody signed out.
    #[serde(rename = "session.closed")]
    SessionClosed {
        /// The session's public id.
        session_id: Arc<str>,
    },
    /// What only a newer version knows. The line's body tells what.
    #[serde(other, skip_serializing)]
    Unknown,
}

impl Happening {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Outage(_) => "service.outage",
            Self::Collisions { .. } => "collisions.prevented",
            Self::Retained { .. } => "timeline.retained",
            Self::TokenCreated { .. } => "token.created",
            Self::TokenRevoked { .. } => "token.revoked",
            Self::LinkCreated { .. } => "session.link_created",
            Self::SessionOpened { .. } => "session.opened",
            Self::SessionClosed { .. } => "session.closed",
            Self::Unknown => "unknown",
        }
    }
}

/// How often one owner was refused one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The key.
    pub lease_key: LeaseKey,
    /// The owner who was refused.
    pub owner: Owner,
    /// How often.
    pub times: u64,
}

impl Record {
    /// When it happened.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        match self {
            Self::Lease(event) => event.at,
            Self::Other(other) => other.at,
        }
    }

    /// What happened, as `subject.verb`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Lease(event) => event.change.kind(),
            Self::Other(other) => other.happening.kind(),
        }
    }

    /// The key it is about.
    #[must_use]
    pub const fn lease_key(&self) -> Option<&LeaseKey> {
        match self {
            Self::Lease(event) => Some(&event.lease_key),
            Self::Other(_) => None,
        }
    }
}

/// A line as it is stored, and what it says.
#[derive(Clone, Debug)]
pub struct Line {
    /// Where it stands.
    pub position: Position,
    /// Chains it to the line before.
    pub hash: Hash,
    /// The stored bytes: one JSON object.
    pub body: Arc<str>,
    /// What they say.
    pub record: Arc<Record>,
}

impl Line {
    /// A line as a database holds it.
    ///
    /// # Errors
    /// If its body is none of ours.
    pub(crate) fn stored(position: Position, hash: Hash, body: String) -> Result<Self, StoreError> {
        let record = serde_json::from_str(&body)
            .map_err(|error| StoreError::corrupt(format_args!("line {} of the timeline: {error}", position.0)))?;
        Ok(Self { position, hash, body: Arc::from(body), record: Arc::new(record) })
    }
}

/// The hash of a line.
#[must_use]
pub fn chain(before: &Hash, position: Position, body: &str) -> Hash {
    let mut hasher = Sha256::new();
    hasher.update(before);
    hasher.update(position.0.to_be_bytes());
    hasher.update(body.as_bytes());
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use domain::Span;

    use super::*;

    #[test]
    fn a_record_is_read_back_as_what_it_was() {
        let record = Record::Other(Other {
            at: Timestamp::from_micros(1_783_111_299_469_980),
            happening: Happening::Outage(Outage {
                from: Timestamp::from_micros(1),
                to: Timestamp::from_micros(2),
                grace_us: Span::millis(5),
            }),
            actor: Arc::new(Actor::system("clock")),
            request_id: None,
        });
        let body = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&body).unwrap(), record);
        assert_eq!(record.kind(), "service.outage");
        assert!(body.contains(r#""kind":"service.outage""#), "{body}");
    }

    #[test]
    fn what_a_newer_version_adds_is_passed_over_unless_it_concerns_a_lease() {
        let actor = r#""actor":{"kind":"token","id":"tk_1","name":"n","since":"later"}"#;
        let read = |rest: &str| {
            serde_json::from_str::<Record>(&format!(r#"{{"at":"2026-07-03T20:41:39.000001Z",{actor},{rest}}}"#))
        };
        let known = read(r#""kind":"session.closed","session_id":"s_1""#).unwrap();
        assert_eq!(read(r#""kind":"session.closed","session_id":"s_1","more":{"x":[1]}"#).unwrap(), known);
        let renewed = r#""kind":"lease.renewed","lease_key":"a","lease_id":"ls_1k1gbjc8gxx","fencing_token":1796064671974333,
            "expires_at":"2026-07-03T20:42:39Z","ttl_us":1000000,"margin_us":1"#;
        let known = read(renewed).unwrap();
        assert!(matches!(known, Record::Lease(_)));
        assert_eq!(read(&format!(r#"{renewed},"colour":"red""#)).unwrap(), known);
        let unknown = read(r#""kind":"gate.opened","gate":{"name":"x"}"#).unwrap();
        assert!(matches!(&unknown, Record::Other(Other { happening: Happening::Unknown, .. })), "{unknown:?}");
        assert_eq!((unknown.kind(), unknown.lease_key()), ("unknown", None));
        // It is kept as it was written, never written anew.
        assert!(serde_json::to_string(&unknown).is_err());
        for kind in ["lease.paused", "key.painted"] {
            let error = read(&format!(r#""kind":"{kind}","lease_key":"a""#)).unwrap_err().to_string();
            assert!(error.contains("does not know"), "{error}");
        }
        // Nor is one that is known passed over because it is not what it was.
        assert!(read(r#""kind":"lease.renewed","lease_key":"a","lease_id":"ls_1k1gbjc8gxx""#).is_err());
        assert!(read(r#""kind":"service.outage","from":"yesterday""#).is_err());
    }

    #[test]
    fn the_chain_depends_on_place_words_and_what_came_before() {
        let hash = chain(&GENESIS, Position(1), "{}");
        assert_ne!(hash, chain(&GENESIS, Position(2), "{}"));
        assert_ne!(hash, chain(&GENESIS, Position(1), "{ }"));
        assert_ne!(hash, chain(&hash, Position(1), "{}"));
    }
}
