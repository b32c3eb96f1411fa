//! A time in which nobody could renew, and what it gives to those who held a lease when it began.

use serde::{Deserialize, Serialize};

use super::{KeyState, Lease};
use crate::{Span, Timestamp};

/// The service was away. A server that slept must not expire everybody at once on waking, nor make a lease immortal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Outage {
    /// The last mark by which the service is known to have lived.
    pub from: Timestamp,
    /// When it was back.
    pub to: Timestamp,
    /// The most it gives, by the rules of that time.
    pub grace_us: Span,
}

impl Outage {
    /// How long it lasted.
    #[must_use]
    pub fn length(&self) -> Span {
        self.to.since(self.from)
    }

    /// When `lease` expires, read through this outage: a lease that was alive at its start has at least the smallest of
    /// its ttl, the grace and the outage's length left at its end, but never goes past max hold or a break's end.
    #[must_use]
    pub fn expiry(&self, lease: &Lease) -> Timestamp {
        if !lease.is_alive(self.from) || lease.acquired_at > self.from {
            return lease.expires_at;
        }
        let extended = self.to + lease.ttl.min(self.grace_us).min(self.length());
        lease.expires_at.max(extended.min(lease.ceiling()))
    }
}

impl KeyState {
    /// Reads the state through an outage that came after its last event.
    pub fn through(&mut self, outage: &Outage) {
        if let Some(lease) = &mut self.lease {
            lease.expires_at = outage.expiry(lease);
        }
    }
}
