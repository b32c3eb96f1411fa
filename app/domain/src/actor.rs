//! Who does something: the caller of an operation, as the timeline names it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// What a caller may do; each role may do all that the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads.
    Viewer,
    /// Also takes, renews and gives back leases.
    Worker,
    /// Also breaks, transfers, quarantines and lifts.
    Operator,
    /// Also manages tokens.
    Admin,
}

impl Role {
    /// The role's name, as the API writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Worker => "worker",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Reads a role's name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Viewer, Self::Worker, Self::Operator, Self::Admin].into_iter().find(|role| role.as_str() == text)
    }
}

/// What kind of caller it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActorKind {
    /// An API token.
    Token,
    /// A browser session.
    Session,
    /// The server itself: timers, the sweeper, a holder whose answer could not be delivered.
    System,
}

/// Who did something. `id` is stable, `name` is for people.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Actor {
    /// What kind of caller.
    pub kind: ActorKind,
    /// The token's or session's public id; never a secret.
    pub id: Arc<str>,
    /// The name people gave it.
    pub name: Arc<str>,
}

impl Actor {
    /// The server itself, by the part of it that acted (`timer`, `sweeper`, ...).
    #[must_use]
    pub fn system(part: &str) -> Self {
        Self { kind: ActorKind::System, id: Arc::from(part), name: Arc::from(part) }
    }
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} ({})", self.kind, self.id, self.name)
    }
}

/// The id of the request in which something was asked for: it links the timeline to the logs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub Arc<str>);
