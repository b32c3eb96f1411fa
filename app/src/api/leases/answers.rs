//! What is answered about leases.

use std::sync::Arc;

use domain::lease::{FencingToken, KeyStatus, LeaseId, LeaseStatus, Outcome, ReleaseOutcome, Verdict};
use domain::{Actor, JobKey, LeaseKey, Metadata, Owner, Reason, Subject, Timestamp};
use serde::{Deserialize, Serialize};

use crate::api::error::ApiError;

/// What a lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Its holder may work.
    Held,
    /// Its holder may work, but should stop.
    Breaking,
    /// Its holder gave it back.
    Released,
    /// Its time ran out.
    Expired,
    /// An operator ended it.
    Broken,
    /// An operator handed it to another owner.
    Transferred,
    /// The answer that granted it never reached its caller.
    Undelivered,
}

impl From<LeaseStatus> for Status {
    fn from(status: LeaseStatus) -> Self {
        match status {
            LeaseStatus::Held => Self::Held,
            LeaseStatus::Breaking => Self::Breaking,
            LeaseStatus::Ended(Outcome::Released) => Self::Released,
            LeaseStatus::Ended(Outcome::Expired) => Self::Expired,
            LeaseStatus::Ended(Outcome::Broken) => Self::Broken,
            LeaseStatus::Ended(Outcome::Transferred) => Self::Transferred,
            LeaseStatus::Ended(Outcome::Undelivered) => Self::Undelivered,
        }
    }
}

impl Status {
    /// Every one.
    pub const ALL: [Self; 7] =
        [Self::Held, Self::Breaking, Self::Released, Self::Expired, Self::Broken, Self::Transferred, Self::Undelivered];

    /// The one of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// The name, as in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Breaking => "breaking",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Broken => "broken",
            Self::Transferred => "transferred",
            Self::Undelivered => "undelivered",
        }
    }

    /// The name, as a heading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Held => "Held",
            Self::Breaking => "Breaking",
            Self::Released => "Released",
            Self::Expired => "Expired",
            Self::Broken => "Broken",
            Self::Transferred => "Transferred",
            Self::Undelivered => "Undelivered",
        }
    }

    /// What it is at `now`, if it was this before and the lease ends at `expires_at`: over, whether or not anybody has told.
    #[must_use]
    pub fn at(self, expires_at: Timestamp, now: Option<Timestamp>) -> Self {
        let is_over = now.is_some_and(|now| now >= expires_at);
        match self {
            Self::Held if is_over => Self::Expired,
            Self::Breaking if is_over => Self::Broken,
            status => status,
        }
    }

    /// Whether the holder may still work.
    #[must_use]
    pub const fn is_alive(self) -> bool {
        matches!(self, Self::Held | Self::Breaking)
    }
}

/// A lease as it is at `server_time`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// Names this one grant. Not a secret.
    pub lease_id: LeaseId,
    /// The key.
    pub lease_key: LeaseKey,
    /// The job it is for.
    pub job_key: Option<JobKey>,
    /// Who holds or held it.
    pub owner: Owner,
    /// What it is.
    pub status: Status,
    /// Greater with every later grant of the key.
    pub fencing_token: FencingToken,
    /// When it was granted.
    pub acquired_at: Timestamp,
    /// When it ends, or ended.
    pub expires_at: Timestamp,
    /// Its last change.
    pub updated_at: Timestamp,
    /// Until expiry, rounded down; 0 once it has ended.
    pub ttl_remaining_ms: u64,
    /// The server's time of this answer.
    pub server_time: Timestamp,
    /// How often it was renewed.
    pub renewals: u32,
    /// No renewal goes past this.
    pub max_hold_until: Option<Timestamp>,
    /// What it concerns.
    pub subjects: Arc<[Subject]>,
    /// What its owner wanted kept.
    pub metadata: Metadata,
}

impl Lease {
    /// A lease as it is at `now`.
    #[must_use]
    pub fn at(lease_key: LeaseKey, lease: &domain::lease::Lease, now: Timestamp) -> Self {
        let status = Status::from(lease.status(now));
        let expires_at = lease.ending().at;
        let remaining = if status.is_alive() { expires_at.since(now).as_millis() } else { 0 };
        Self {
            lease_id: lease.id(),
            lease_key,
            job_key: lease.job_key.clone(),
            owner: lease.owner.clone(),
            status,
            fencing_token: lease.token,
            acquired_at: lease.acquired_at,
            expires_at,
            updated_at: lease.updated_at,
            ttl_remaining_ms: remaining.unsigned_abs(),
            server_time: now,
            renewals: lease.renewals,
            max_hold_until: lease.max_hold_until,
            subjects: Arc::clone(&lease.subjects),
            metadata: lease.metadata.clone(),
        }
    }
}

/// A lease that was given back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Released {
    /// The lease.
    #[serde(flatten)]
    pub lease: Lease,
    /// How it had ended: by this or an earlier release, or because its time ran out.
    pub outcome: ReleaseOutcome,
}

/// A key as it is at `server_time`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Key {
    /// The key.
    pub lease_key: LeaseKey,
    /// What it is.
    pub status: KeyStatus,
    /// Its current or last lease.
    pub lease: Option<Lease>,
    /// Until when nothing is granted, if it cools.
    pub cooling_until: Option<Timestamp>,
    /// Set while an operator has stopped grants.
    pub quarantine: Option<Quarantine>,
    /// How many wait for it.
    pub queue_length: u64,
    /// The server's time of this answer.
    pub server_time: Timestamp,
}

/// Why a key is quarantined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quarantine {
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: Reason,
    /// By whom.
    pub by: Arc<Actor>,
}

/// A key with all that an operator may want to know of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inspection {
    /// What it is.
    #[serde(flatten)]
    pub key: Key,
    /// Who waits for it, first to be served first; at most [`Inspection::MOST_WAITERS`].
    pub waiters: Vec<Waiter>,
    /// The latest renewals of its current or last lease, newest first.
    pub recent_renewals: Vec<Renewal>,
    /// What operators did to it, newest first, at most 50.
    pub interventions: Vec<Intervention>,
}

impl Inspection {
    /// The most waiters that are named; `queue_length` counts all.
    pub const MOST_WAITERS: usize = 100;
}

/// A caller who waits for a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// Who.
    pub owner: Owner,
    /// Since when.
    pub since: Timestamp,
    /// Until when at the longest.
    pub deadline: Timestamp,
}

/// A renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// When.
    pub at: Timestamp,
    /// How much time was left then.
    pub margin_ms: u64,
}

/// What an operator did to a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intervention {
    /// Where it stands in the timeline.
    pub position: u64,
    /// When.
    pub at: Timestamp,
    /// What, as in the timeline: `lease.breaking`, `key.quarantined` ...
    pub kind: String,
    /// By whom.
    pub by: Arc<Actor>,
    /// Why, where a reason is asked for.
    pub reason: Option<Reason>,
    /// Whose lease it was, where one ended.
    pub owner: Option<Owner>,
}

/// What a fencing token is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// `current`, `stale` or `unknown`.
    pub verdict: Verdict,
    /// The key's greatest token; `null` if it never gave one out.
    pub current_token: Option<FencingToken>,
}

/// The leases of an acquire-many, in the order of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leases {
    /// All of them.
    pub leases: Vec<Lease>,
}

/// The results of a batch, in the order of its operations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchResults {
    /// One for each operation.
    pub results: Vec<BatchResult>,
}

/// The result of one operation of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BatchResult {
    /// As the operation by itself would have answered.
    Ok(BatchAnswer),
    /// As the operation by itself would have been refused, without a request id.
    Error(ApiError),
}

/// The answer of one operation of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum BatchAnswer {
    /// To release.
    Released(Box<Released>),
    /// To acquire and renew.
    Lease(Box<Lease>),
}

// What stands behind it.
