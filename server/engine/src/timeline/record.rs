//! One line of the timeline: what it says, the bytes it is stored as, and the hash that chains it to the line before.

use std::sync::Arc;

use domain::lease::{Event, Outage};
use domain::{Actor, LeaseKey, Owner, RequestId, Role, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Record {
    /// A lease key changed.
    Lease(Event),
    /// Anything else.
    Other(Other),
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
    fn the_chain_depends_on_place_words_and_what_came_before() {
        let hash = chain(&GENESIS, Position(1), "{}");
        assert_ne!(hash, chain(&GENESIS, Position(2), "{}"));
        assert_ne!(hash, chain(&GENESIS, Position(1), "{ }"));
        assert_ne!(hash, chain(&hash, Position(1), "{}"));
    }
}
