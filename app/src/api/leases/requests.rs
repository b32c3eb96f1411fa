//! What is asked about leases.

use domain::lease::{FencingToken, LeaseId};
use domain::{JobKey, LeaseKey, Metadata, Owner, Reason, Subject};
use serde::{Deserialize, Serialize};

use super::answers::Status;
use crate::api::values::{Millis, PageSize, Prefix, list as at_most, object, objects, present};

/// Take a lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct AcquireRequest {
    /// What must not collide.
    pub lease_key: LeaseKey,
    /// Who asks.
    pub owner: Owner,
    /// The job it is for.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub job_key: Option<JobKey>,
    /// From the grant to expiry; the rules' default if absent.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<Millis>,
    /// How long to wait in the queue if the key is not free; none if absent or 0.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<Millis>,
    /// After a release the key cools until this long after the grant.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub min_hold_ms: Option<Millis>,
    /// No renewal goes further than this from the grant.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_hold_ms: Option<Millis>,
    /// How long the key cools after the lease expired or was broken.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub lock_delay_ms: Option<Millis>,
    /// What it concerns, each `kind:id`.
    #[serde(
        default,
        deserialize_with = "at_most::<_, _, { Subject::MAX_COUNT }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub subjects: Vec<Subject>,
    /// What the owner wants kept with it.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

/// Keep a lease for longer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct RenewRequest {
    /// The key.
    pub lease_key: LeaseKey,
    /// Which lease.
    pub lease_id: LeaseId,
    /// For how long from now; as last time if absent.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<Millis>,
    /// Whether it may come to end earlier than before.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub shorten: Option<bool>,
}

/// Give a lease back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct ReleaseRequest {
    /// The key.
    pub lease_key: LeaseKey,
    /// Which lease.
    pub lease_id: LeaseId,
}

/// Hand a lease to another owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct TransferRequest {
    /// The key.
    pub lease_key: LeaseKey,
    /// Which lease.
    pub lease_id: LeaseId,
    /// To whom.
    pub to_owner: Owner,
}

/// End somebody's lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct BreakRequest {
    /// The key.
    pub lease_key: LeaseKey,
    /// Why.
    pub reason: Reason,
    /// How long the holder has to stop; the rules' default if absent, at once if 0.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<Millis>,
    /// Which lease is meant; whichever is held if absent.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<LeaseId>,
}

/// Stop grants on a key, or allow them again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct QuarantineRequest {
    /// The key.
    pub lease_key: LeaseKey,
    /// Why.
    pub reason: Reason,
}

/// Ask whether a fencing token is the current one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct ValidateRequest {
    /// The key.
    pub lease_key: LeaseKey,
    /// The token.
    pub fencing_token: FencingToken,
}

/// Ask what a key is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct GetRequest {
    /// The key.
    pub lease_key: LeaseKey,
}

/// Wait until a lease is over or is to end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct AttendRequest {
    /// The key.
    pub lease_key: LeaseKey,
    /// Which lease.
    pub lease_id: LeaseId,
    /// How long at the most; not at all if absent or 0.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<Millis>,
}

/// Take several leases, all or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct AcquireManyRequest {
    /// Who asks.
    pub owner: Owner,
    /// From the grant to expiry, for those that name none of their own.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<Millis>,
    /// Which; no key twice.
    #[serde(deserialize_with = "objects::<_, _, { AcquireManyRequest::MAX }>")]
    pub leases: Vec<OneOfMany>,
}

impl AcquireManyRequest {
    /// The most keys.
    pub const MAX: usize = 100;
}

/// One lease of an acquire-many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct OneOfMany {
    /// What must not collide.
    pub lease_key: LeaseKey,
    /// The job it is for.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub job_key: Option<JobKey>,
    /// From the grant to expiry.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<Millis>,
    /// After a release the key cools until this long after the grant.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub min_hold_ms: Option<Millis>,
    /// No renewal goes further than this from the grant.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub max_hold_ms: Option<Millis>,
    /// How long the key cools after the lease expired or was broken.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub lock_delay_ms: Option<Millis>,
    /// What it concerns, each `kind:id`.
    #[serde(
        default,
        deserialize_with = "at_most::<_, _, { Subject::MAX_COUNT }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub subjects: Vec<Subject>,
    /// What the owner wants kept with it.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

/// Several independent operations, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct BatchRequest {
    /// Which.
    #[serde(deserialize_with = "at_most::<_, _, { BatchRequest::MAX }>")]
    pub operations: Vec<BatchOperation>,
}

impl BatchRequest {
    /// The most operations.
    pub const MAX: usize = 500;
}

/// One operation of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", expecting = "an object with one member: acquire, renew or release")]
pub enum BatchOperation {
    /// Without waiting.
    Acquire(#[serde(deserialize_with = "object")] Box<AcquireRequest>),
    /// As by itself.
    Renew(#[serde(deserialize_with = "object")] RenewRequest),
    /// As by itself.
    Release(#[serde(deserialize_with = "object")] ReleaseRequest),
}

/// List leases: the latest of each key, unless a status or another filter says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a JSON object")]
pub struct ListRequest {
    /// Keys that begin so.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Prefix>,
    /// Of this owner.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// For this job.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub job_key: Option<JobKey>,
    /// That concern this.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// In this state now.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// In which order; by key if absent.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub sort: Option<Sort>,
    /// How many at most, 1 to 500; 100 if absent.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageSize>,
    /// The `next` of the page before.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Whether to count as well all that answer to the filters, up to a thousand.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub count: Option<bool>,
}

/// Every grant of a key, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct HistoryRequest {
    /// The key.
    pub lease_key: LeaseKey,
    /// How many at most, 1 to 500; 100 if absent.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageSize>,
    /// The `next` of the page before.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// By key.
    #[default]
    LeaseKey,
    /// By key, last first.
    #[serde(rename = "-lease_key")]
    LeaseKeyDown,
    /// By the time of the grant, oldest first.
    AcquiredAt,
    /// By the time of the grant, newest first.
    #[serde(rename = "-acquired_at")]
    AcquiredAtDown,
    /// By expiry, soonest first.
    ExpiresAt,
    /// By expiry, latest first.
    #[serde(rename = "-expires_at")]
    ExpiresAtDown,
    /// By the last change, oldest first.
    UpdatedAt,
    /// By the last change, newest first.
    #[serde(rename = "-updated_at")]
    UpdatedAtDown,
}

impl Sort {
    /// Every order, each with the opposite one beside it.
    pub const PAIRS: [(Self, Self); 4] = [
        (Self::LeaseKey, Self::LeaseKeyDown),
        (Self::AcquiredAt, Self::AcquiredAtDown),
        (Self::ExpiresAt, Self::ExpiresAtDown),
        (Self::UpdatedAt, Self::UpdatedAtDown),
    ];

    /// The name, as in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LeaseKey => "lease_key",
            Self::LeaseKeyDown => "-lease_key",
            Self::AcquiredAt => "acquired_at",
            Self::AcquiredAtDown => "-acquired_at",
            Self::ExpiresAt => "expires_at",
            Self::ExpiresAtDown => "-expires_at",
            Self::UpdatedAt => "updated_at",
            Self::UpdatedAtDown => "-updated_at",
        }
    }

    /// The order of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::PAIRS.into_iter().flat_map(|(up, down)| [up, down]).find(|sort| sort.as_str() == name)
    }
}
