//! What can be asked of one key.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{FencingToken, LeaseId, WaiterId};
use crate::{JobKey, Metadata, Owner, Reason, Span, Subject, Timestamp};

/// The terms on which a lease is asked for; lengths of time already lie within the rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Acquire {
    /// Who asks.
    pub owner: Owner,
    /// The job it is for.
    pub job_key: Option<JobKey>,
    /// How long from the grant to expiry.
    pub ttl: Span,
    /// After a release the key cools until this long after the grant; zero is none.
    pub min_hold: Span,
    /// No renewal goes further than this from the grant.
    pub max_hold: Option<Span>,
    /// How long the key cools after the lease expired or was broken; zero is none.
    pub lock_delay: Span,
    /// What it concerns.
    pub subjects: Arc<[Subject]>,
    /// What the owner wants kept.
    pub metadata: Metadata,
}

/// How an acquire waits if the key is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wait {
    /// Under what name.
    pub waiter: WaiterId,
    /// How long, from `now`.
    pub time: Span,
}

/// A command on one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Take a lease, now or after waiting.
    Acquire {
        /// On what terms.
        request: Acquire,
        /// Whether and how to wait.
        wait: Option<Wait>,
    },
    /// Keep a lease for longer.
    Renew {
        /// Which.
        lease_id: LeaseId,
        /// For how long from now; the last ttl if absent.
        ttl: Option<Span>,
        /// Whether the expiry may become earlier than it was.
        shorten: bool,
    },
    /// Give a lease back.
    Release {
        /// Which.
        lease_id: LeaseId,
    },
    /// Hand a lease to another owner.
    Transfer {
        /// Which.
        lease_id: LeaseId,
        /// To whom.
        to_owner: Owner,
    },
    /// End somebody's lease.
    Break {
        /// Why.
        reason: Reason,
        /// How long its holder has to stop; zero is at once.
        grace: Span,
        /// Which lease is meant; whichever is held if absent.
        lease_id: Option<LeaseId>,
    },
    /// Stop all grants on the key.
    Quarantine {
        /// Why.
        reason: Reason,
    },
    /// Allow grants on the key again.
    Lift {
        /// Why.
        reason: Reason,
    },
    /// The answer that granted this lease did not reach its caller.
    Undelivered {
        /// Which.
        lease_id: LeaseId,
    },
    /// What the key is.
    Get,
    /// Whether a fencing token is the current one.
    Validate {
        /// The token.
        token: FencingToken,
    },
    /// Nothing: settle the key, whose time has come.
    Settle,
}

impl Command {
    /// Its name in logs and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Acquire { .. } => "acquire",
            Self::Renew { .. } => "renew",
            Self::Release { .. } => "release",
            Self::Transfer { .. } => "transfer",
            Self::Break { .. } => "break",
            Self::Quarantine { .. } => "quarantine",
            Self::Lift { .. } => "lift",
            Self::Undelivered { .. } => "undelivered",
            Self::Get => "get",
            Self::Validate { .. } => "validate",
            Self::Settle => "settle",
        }
    }

    /// The lease it names.
    #[must_use]
    pub const fn lease_id(&self) -> Option<LeaseId> {
        match self {
            Self::Renew { lease_id, .. }
            | Self::Release { lease_id }
            | Self::Transfer { lease_id, .. }
            | Self::Undelivered { lease_id } => Some(*lease_id),
            Self::Break { lease_id, .. } => *lease_id,
            _ => None,
        }
    }

    /// Until when an acquire that begins to wait now may wait.
    #[must_use]
    pub(super) fn deadline(wait: Wait, now: Timestamp) -> Timestamp {
        now + wait.time
    }
}

impl Wait {
    /// For so long, under a name that is given later.
    #[must_use]
    pub const fn lasting(time: Span) -> Self {
        Self { waiter: WaiterId(0), time }
    }
}
