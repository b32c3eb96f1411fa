//! What happened to a key: the lines of the timeline, and what each does to the state.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Breaking, Ending, FencingToken, KeyState, Lease, LeaseId, Outcome, Quarantine};
use crate::{Actor, JobKey, LeaseKey, Metadata, Owner, Reason, RequestId, Span, Subject, Timestamp};

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Event {
    /// When it was decided.
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub change: Change,
    /// To which key.
    pub lease_key: LeaseKey,
    /// Who brought it about.
    pub actor: Arc<Actor>,
    /// In which request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum Change {
    /// A lease was granted.
    #[serde(rename = "lease.granted")]
    Granted(Granted),
    /// A lease was renewed (or, if asked for, shortened).
    #[serde(rename = "lease.renewed")]
    Renewed(Renewed),
    /// A break was asked for, with some grace, or an earlier one brought forward.
    #[serde(rename = "lease.breaking")]
    Breaking(BreakRequested),
    /// A lease was given back.
    #[serde(rename = "lease.released")]
    Released(Ended),
    /// A lease ran out.
    #[serde(rename = "lease.expired")]
    Expired(Ended),
    /// A lease was ended by an operator.
    #[serde(rename = "lease.broken")]
    Broken(Ended),
    /// A lease was handed to another owner; the next event grants it.
    #[serde(rename = "lease.transferred")]
    Transferred(Ended),
    /// A lease was taken back, since its caller never heard of it.
    #[serde(rename = "lease.undelivered")]
    Undelivered(Ended),
    /// Grants were stopped.
    #[serde(rename = "key.quarantined")]
    Quarantined {
        /// Why.
        reason: Reason,
    },
    /// Grants were allowed again.
    #[serde(rename = "key.lifted")]
    Lifted {
        /// Why.
        reason: Reason,
    },
}

/// How a lease came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The key was free.
    Acquired,
    /// Its owner had waited for it.
    Waited,
    /// It was handed over.
    Transferred,
}

/// The terms of a new lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Granted {
    /// Its id.
    pub lease_id: LeaseId,
    /// Its token.
    pub fencing_token: FencingToken,
    /// The token of the lease before it on the same key: a key's history is a chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_token: Option<FencingToken>,
    /// Its holder.
    pub owner: Owner,
    /// Its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_key: Option<JobKey>,
    /// How it came about.
    pub origin: Origin,
    /// When it expires.
    pub expires_at: Timestamp,
    /// The ttl asked for, in microseconds.
    pub ttl_us: Span,
    /// No renewal goes past this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_hold_until: Option<Timestamp>,
    /// After a release the key cools until this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_hold_until: Option<Timestamp>,
    /// How long the key cools after an unclean end, in microseconds.
    #[serde(default, skip_serializing_if = "Span::is_zero_ref")]
    pub lock_delay_us: Span,
    /// What it concerns.
    #[serde(default = "no_subjects", skip_serializing_if = "is_empty")]
    pub subjects: Arc<[Subject]>,
    /// What its owner wanted kept.
    #[serde(default = "no_metadata", skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
}

fn no_subjects() -> Arc<[Subject]> {
    Arc::from([])
}

fn no_metadata() -> Metadata {
    Metadata::EMPTY
}

fn is_empty(subjects: &Arc<[Subject]>) -> bool {
    subjects.is_empty()
}

impl Span {
    /// For serde, which passes a reference.
    fn is_zero_ref(&self) -> bool {
        self.is_zero()
    }
}

/// A renewal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Renewed {
    /// Which lease.
    pub lease_id: LeaseId,
    /// Its token.
    pub fencing_token: FencingToken,
    /// When it expires now.
    pub expires_at: Timestamp,
    /// The ttl it was renewed for, in microseconds.
    pub ttl_us: Span,
    /// How much time was left, in microseconds: the margin by which the renewal was in time.
    pub margin_us: Span,
}

/// A break with some grace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BreakRequested {
    /// Which lease.
    pub lease_id: LeaseId,
    /// Its token.
    pub fencing_token: FencingToken,
    /// When it ends at the latest.
    pub ends_at: Timestamp,
    /// When it expires now: then at the latest.
    pub expires_at: Timestamp,
    /// Why.
    pub reason: Reason,
}

/// The end of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ended {
    /// Which lease.
    pub lease_id: LeaseId,
    /// Its token.
    pub fencing_token: FencingToken,
    /// Who held it.
    pub owner: Owner,
    /// When it ended; the event's own time may be later, if nobody was there to notice.
    pub ended_at: Timestamp,
    /// Until when the key cools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooling_until: Option<Timestamp>,
    /// Why, if it was broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

impl Change {
    /// The event that ends `lease` so.
    #[must_use]
    pub(super) fn end(lease: &Lease, ending: Ending, reason: Option<Reason>) -> Self {
        let ended = Ended {
            lease_id: lease.id(),
            fencing_token: lease.token,
            owner: lease.owner.clone(),
            ended_at: ending.at,
            cooling_until: lease.cooling_after(ending),
            reason,
        };
        match ending.outcome {
            Outcome::Released => Self::Released(ended),
            Outcome::Expired => Self::Expired(ended),
            Outcome::Broken => Self::Broken(ended),
            Outcome::Transferred => Self::Transferred(ended),
            Outcome::Undelivered => Self::Undelivered(ended),
        }
    }

    /// How a lease ended, if this ends one.
    #[must_use]
    pub const fn ended(&self) -> Option<(Outcome, &Ended)> {
        match self {
            Self::Released(ended) => Some((Outcome::Released, ended)),
            Self::Expired(ended) => Some((Outcome::Expired, ended)),
            Self::Broken(ended) => Some((Outcome::Broken, ended)),
            Self::Transferred(ended) => Some((Outcome::Transferred, ended)),
            Self::Undelivered(ended) => Some((Outcome::Undelivered, ended)),
            _ => None,
        }
    }

    /// The lease it is about.
    #[must_use]
    pub const fn token(&self) -> Option<FencingToken> {
        match self {
            Self::Granted(granted) => Some(granted.fencing_token),
            Self::Renewed(renewed) => Some(renewed.fencing_token),
            Self::Breaking(breaking) => Some(breaking.fencing_token),
            Self::Released(ended)
            | Self::Expired(ended)
            | Self::Broken(ended)
            | Self::Transferred(ended)
            | Self::Undelivered(ended) => Some(ended.fencing_token),
            Self::Quarantined { .. } | Self::Lifted { .. } => None,
        }
    }

    /// The kind's name, as it stands in the event.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Granted(_) => "lease.granted",
            Self::Renewed(_) => "lease.renewed",
            Self::Breaking(_) => "lease.breaking",
            Self::Released(_) => "lease.released",
            Self::Expired(_) => "lease.expired",
            Self::Broken(_) => "lease.broken",
            Self::Transferred(_) => "lease.transferred",
            Self::Undelivered(_) => "lease.undelivered",
            Self::Quarantined { .. } => "key.quarantined",
            Self::Lifted { .. } => "key.lifted",
        }
    }
}

impl Lease {
    /// The lease that a grant at `at` makes.
    #[must_use]
    pub fn granted(granted: &Granted, at: Timestamp) -> Self {
        Self {
            token: granted.fencing_token,
            owner: granted.owner.clone(),
            job_key: granted.job_key.clone(),
            acquired_at: at,
            expires_at: granted.expires_at,
            updated_at: at,
            ttl: granted.ttl_us,
            renewals: 0,
            max_hold_until: granted.max_hold_until,
            min_hold_until: granted.min_hold_until,
            lock_delay: granted.lock_delay_us,
            subjects: Arc::clone(&granted.subjects),
            metadata: granted.metadata.clone(),
            breaking: None,
            ended: None,
        }
    }

    /// What an event about this very lease does to it.
    pub fn apply(&mut self, event: &Event) {
        match &event.change {
            Change::Renewed(renewed) => {
                self.expires_at = renewed.expires_at;
                self.ttl = renewed.ttl_us;
                self.renewals = self.renewals.saturating_add(1);
            }
            Change::Breaking(breaking) => {
                self.expires_at = breaking.expires_at;
                self.breaking = Some(Breaking {
                    ends_at: breaking.ends_at,
                    asked_at: event.at,
                    reason: breaking.reason.clone(),
                    by: Arc::clone(&event.actor),
                });
            }
            change => {
                let Some((outcome, ended)) = change.ended() else { return };
                self.ended = Some(Ending { outcome, at: ended.ended_at });
                self.expires_at = ended.ended_at;
            }
        }
        self.updated_at = event.at;
    }
}

impl KeyState {
    /// What an event about this key does to it. The state is always the replay of its events.
    pub fn apply(&mut self, event: &Event) {
        match &event.change {
            Change::Granted(granted) => {
                self.lease = Some(Lease::granted(granted, event.at));
                self.cooling_until = None;
            }
            Change::Quarantined { reason } => {
                self.quarantine =
                    Some(Quarantine { since: event.at, reason: reason.clone(), by: Arc::clone(&event.actor) });
            }
            Change::Lifted { .. } => self.quarantine = None,
            change => {
                if let Some(lease) = self.lease.as_mut().filter(|lease| change.token() == Some(lease.token)) {
                    lease.apply(event);
                    if let Some((_, ended)) = change.ended() {
                        self.cooling_until = ended.cooling_until;
                    }
                }
            }
        }
        self.changed_at = event.at;
    }
}
