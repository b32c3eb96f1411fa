//! Why a command was refused. A refusal changes nothing by itself; what settling found first stays.

use serde::{Deserialize, Serialize};

use super::{Outcome, Quarantine};
use crate::{LeaseKey, Owner, Span, Timestamp};

/// Who is in the way, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Busy {
    /// Who holds the key, or held it last.
    pub owner: Owner,
    /// Since when the key is so.
    pub since: Timestamp,
    /// Until when, if nothing else happens.
    pub expires_at: Timestamp,
    /// When to try again, before jitter: the time left, but at least 50 ms and at most 5 s.
    pub retry_after: Span,
    /// How many wait already.
    pub queue_length: usize,
}

/// A key that stood in the way of an acquire-many.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyBusy {
    /// Which.
    pub lease_key: LeaseKey,
    /// Why: `Held`, `Breaking`, `Cooling` or `Quarantined`.
    pub refusal: Refusal,
}

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Refusal {
    /// Somebody holds the key.
    Held(Busy),
    /// Somebody holds the key, and a break was asked for.
    Breaking(Busy),
    /// The key cools after its last lease.
    Cooling(Busy),
    /// The key is quarantined.
    Quarantined(Quarantine),
    /// The wait is over, and the key was never to be had; who has it now.
    WaitTimeout(Option<Busy>),
    /// Too many wait for this key already.
    QueueFull {
        /// The most that may wait.
        limit: usize,
    },
    /// Some keys of an acquire-many are not to be had.
    KeysBusy(Vec<KeyBusy>),
    /// The lease is over.
    LeaseLost {
        /// How it ended.
        reason: Outcome,
        /// Who holds the key now, and since when.
        holder: Option<(Owner, Timestamp)>,
    },
    /// No such lease is known on this key.
    LeaseUnknown,
    /// Nothing is known of this key.
    KeyUnknown,
    /// There is nothing to break.
    NotHeld,
    /// There is nothing to lift.
    NotQuarantined,
}

impl Refusal {
    /// The code the API, the metrics and the collision counters use.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Held(_) => "held",
            Self::Breaking(_) => "breaking",
            Self::Cooling(_) => "cooling",
            Self::Quarantined(_) => "quarantined",
            Self::WaitTimeout(_) => "wait_timeout",
            Self::QueueFull { .. } => "queue_full",
            Self::KeysBusy(_) => "keys_busy",
            Self::LeaseLost { .. } => "lease_lost",
            Self::LeaseUnknown => "lease_unknown",
            Self::KeyUnknown => "lease_key_unknown",
            Self::NotHeld => "not_held",
            Self::NotQuarantined => "not_quarantined",
        }
    }

    /// Whether two who wanted the same thing were kept apart: what "collisions prevented" counts.
    #[must_use]
    pub const fn is_collision(&self) -> bool {
        matches!(self, Self::Held(_) | Self::Breaking(_) | Self::Cooling(_) | Self::WaitTimeout(_) | Self::KeysBusy(_))
    }
}
