//! What a command that was not refused answers.

use serde::{Deserialize, Serialize};

use super::{FencingToken, KeyState, Lease, Queue};
use crate::LeaseKey;

/// A lease as it is after the command.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseReading {
    /// On which key.
    pub lease_key: LeaseKey,
    /// The lease.
    pub lease: Lease,
}

/// A key as it is after the command.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyReading {
    /// Its state.
    pub state: KeyState,
    /// How many wait for it.
    pub queue_length: usize,
    /// Who, in order. It passes with the moment: a stored answer does not have it.
    #[serde(skip)]
    pub queue: Queue,
}

/// How a lease that was given back had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReleaseOutcome {
    /// By this release or an earlier one.
    Released,
    /// It had run out, and nobody has had the key since.
    Expired,
}

/// What a fencing token is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is the key's greatest, and its lease is held.
    Current,
    /// Its lease has ended.
    Stale,
    /// The key never gave it out.
    Unknown,
}

/// What a command that was not refused answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reply {
    /// To acquire, renew, transfer and break.
    Lease(LeaseReading),
    /// To acquire-many, in the order of the request.
    Leases(Vec<LeaseReading>),
    /// To release.
    Released {
        /// The lease that has ended.
        lease: LeaseReading,
        /// How.
        outcome: ReleaseOutcome,
    },
    /// To get, quarantine and lift.
    Key(KeyReading),
    /// To validate.
    Verdict {
        /// What the token is worth.
        verdict: Verdict,
        /// The key's greatest token.
        current_token: Option<FencingToken>,
    },
    /// To what only the server itself asks for.
    Nothing,
}

impl Reply {
    /// The leases that this reply hands to a caller as theirs, if the command was an acquire.
    pub fn leases(&self) -> impl Iterator<Item = &LeaseReading> {
        match self {
            Self::Lease(reading) => std::slice::from_ref(reading),
            Self::Leases(readings) => readings.as_slice(),
            _ => &[],
        }
        .iter()
    }
}
