//! The state of one lease key, and of the lease that was last granted on it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{FencingToken, LeaseId};
use crate::{Actor, JobKey, LeaseKey, Metadata, Owner, Reason, Span, Subject, Timestamp};

/// How a lease ended, once and for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Its holder gave it back.
    Released,
    /// Its time ran out.
    Expired,
    /// An operator ended it.
    Broken,
    /// An operator handed it to another owner, who has a lease of its own.
    Transferred,
    /// The answer that granted it could not be delivered.
    Undelivered,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Released, Self::Expired, Self::Broken, Self::Transferred, Self::Undelivered];

    /// The name the API and the databases use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Broken => "broken",
            Self::Transferred => "transferred",
            Self::Undelivered => "undelivered",
        }
    }

    /// Reads the name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// The end of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ending {
    /// How.
    pub outcome: Outcome,
    /// When: for an expired or broken lease the instant its time was up, which may be before anybody noticed.
    pub at: Timestamp,
}

/// A break that was asked for and has not happened yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Breaking {
    /// When the lease ends at the latest.
    pub ends_at: Timestamp,
    /// When the break was asked for.
    pub asked_at: Timestamp,
    /// Why.
    pub reason: Reason,
    /// By whom.
    pub by: Arc<Actor>,
}

/// One grant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// Its fencing token, of which its id is made.
    pub token: FencingToken,
    /// Who holds it.
    pub owner: Owner,
    /// What job it is for, if one was named.
    pub job_key: Option<JobKey>,
    /// When it was granted.
    pub acquired_at: Timestamp,
    /// When it ends if nothing else happens: never later than max hold or the end of a break allow. Once ended, when.
    pub expires_at: Timestamp,
    /// The last change: grant, renewal, break asked for, end.
    pub updated_at: Timestamp,
    /// The ttl asked for last: what a renewal without one uses.
    pub ttl: Span,
    /// How many renewals so far.
    pub renewals: u32,
    /// No renewal goes past this.
    pub max_hold_until: Option<Timestamp>,
    /// After a release the key cools until this, if it is later.
    pub min_hold_until: Option<Timestamp>,
    /// How long the key cools after the lease expired or was broken.
    pub lock_delay: Span,
    /// What it concerns; shared, since states are copied often.
    pub subjects: Arc<[Subject]>,
    /// What the owner wanted kept.
    pub metadata: Metadata,
    /// A break under way.
    pub breaking: Option<Breaking>,
    /// How it ended, if it has been recorded. What has merely run out is told by [`Lease::status`].
    pub ended: Option<Ending>,
}

/// What a lease is at some instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseStatus {
    /// Its holder may work.
    Held,
    /// Its holder may work, but should stop.
    Breaking,
    /// Over.
    Ended(Outcome),
}

impl LeaseStatus {
    /// The name the API uses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Breaking => "breaking",
            Self::Ended(outcome) => outcome.as_str(),
        }
    }
}

impl Lease {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> LeaseId {
        LeaseId::from(self.token)
    }

    /// How and when it ends, or ended, if nothing else happens.
    #[must_use]
    pub fn ending(&self) -> Ending {
        if let Some(ended) = self.ended {
            return ended;
        }
        let broken = self.breaking.as_ref().is_some_and(|breaking| breaking.ends_at <= self.expires_at);
        Ending { outcome: if broken { Outcome::Broken } else { Outcome::Expired }, at: self.expires_at }
    }

    /// What it is at `now`: dead from the very instant its time is up, recorded or not.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> LeaseStatus {
        let ending = self.ending();
        if self.ended.is_some() || now >= self.expires_at {
            LeaseStatus::Ended(ending.outcome)
        } else if self.breaking.is_some() {
            LeaseStatus::Breaking
        } else {
            LeaseStatus::Held
        }
    }

    /// Whether its holder may work at `now`.
    #[must_use]
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.ended.is_none() && now < self.expires_at
    }

    /// The latest instant an expiry may be set to: the end of max hold, or of a break.
    #[must_use]
    pub fn ceiling(&self) -> Timestamp {
        let max_hold = self.max_hold_until.unwrap_or(Timestamp::MAX);
        self.breaking.as_ref().map_or(max_hold, |breaking| max_hold.min(breaking.ends_at))
    }

    /// Until when the key cools if the lease ends so at `at`.
    #[must_use]
    pub fn cooling_after(&self, ending: Ending) -> Option<Timestamp> {
        match ending.outcome {
            Outcome::Released => self.min_hold_until.filter(|&until| until > ending.at),
            Outcome::Expired | Outcome::Broken => (!self.lock_delay.is_zero()).then(|| ending.at + self.lock_delay),
            Outcome::Transferred | Outcome::Undelivered => None,
        }
    }
}

/// A key on which nobody is granted anything until it is lifted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Quarantine {
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: Reason,
    /// By whom.
    pub by: Arc<Actor>,
}

/// What a key is at some instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyStatus {
    /// To be had at once.
    Free,
    /// A lease is held.
    Held,
    /// A lease is held, and a break was asked for.
    Breaking,
    /// Nothing is held, and nothing is granted yet.
    Cooling,
    /// An operator has stopped grants, whether or not a lease is still held.
    Quarantined,
}

impl KeyStatus {
    /// The name the API uses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Held => "held",
            Self::Breaking => "breaking",
            Self::Cooling => "cooling",
            Self::Quarantined => "quarantined",
        }
    }
}

/// All that is remembered of a key, waiters apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyState {
    /// The key.
    pub lease_key: LeaseKey,
    /// The last grant, held or ended; its token is the greatest the key ever had.
    pub lease: Option<Lease>,
    /// Nothing is granted before this. In the past it means nothing.
    pub cooling_until: Option<Timestamp>,
    /// Set while quarantined.
    pub quarantine: Option<Quarantine>,
    /// The last change.
    pub changed_at: Timestamp,
}

impl KeyState {
    /// A key of which nothing is known.
    #[must_use]
    pub const fn new(lease_key: LeaseKey) -> Self {
        Self { lease_key, lease: None, cooling_until: None, quarantine: None, changed_at: Timestamp::EPOCH }
    }

    /// Whether anything ever happened to it.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.lease.is_some() || self.quarantine.is_some()
    }

    /// What it is at `now`.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> KeyStatus {
        if self.quarantine.is_some() {
            return KeyStatus::Quarantined;
        }
        let (status, cooling_until) = match &self.lease {
            None => return if self.is_cooling(now) { KeyStatus::Cooling } else { KeyStatus::Free },
            // An end that nobody has recorded yet cools the key as well.
            Some(lease) if lease.ended.is_none() => (lease.status(now), lease.cooling_after(lease.ending())),
            Some(lease) => (lease.status(now), self.cooling_until),
        };
        match status {
            LeaseStatus::Held => KeyStatus::Held,
            LeaseStatus::Breaking => KeyStatus::Breaking,
            LeaseStatus::Ended(_) if cooling_until.is_some_and(|until| now < until) => KeyStatus::Cooling,
            LeaseStatus::Ended(_) => KeyStatus::Free,
        }
    }

    /// The lease that is held at `now`.
    #[must_use]
    pub fn held(&self, now: Timestamp) -> Option<&Lease> {
        self.lease.as_ref().filter(|lease| lease.is_alive(now))
    }

    /// Whether a recorded cooling lasts at `now`.
    #[must_use]
    pub fn is_cooling(&self, now: Timestamp) -> bool {
        self.cooling_until.is_some_and(|until| now < until)
    }
}
