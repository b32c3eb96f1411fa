//! Leases: take, hold, give back; look; intervene.

use std::sync::Arc;

use domain::lease::{FencingToken, KeyStatus, LeaseId, LeaseStatus, Outcome, ReleaseOutcome, Verdict};
use domain::{Actor, JobKey, LeaseKey, Metadata, Owner, Reason, Subject, Timestamp};
use leptos::prelude::server;
use serde::{Deserialize, Serialize};

use super::error::ApiError;
#[cfg(feature = "ssr")]
use super::exchange::Exchange;
use super::page::Page;
use super::protocol;
use super::values::{Millis, PageSize, Prefix, list as at_most, object, objects, present};

// What is asked.

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

    /// Whether the holder may still work.
    #[must_use]
    pub const fn is_alive(self) -> bool {
        matches!(self, Self::Held | Self::Breaking)
    }
}

// What is answered.

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

/// Leases, on the server. Each method checks what the caller may do.
#[cfg(feature = "ssr")]
#[expect(missing_docs, reason = "each method is the server function of its name")]
pub trait LeasesBackend: Send + Sync {
    fn acquire<'a>(&'a self, exchange: &'a Exchange, request: AcquireRequest) -> super::Pending<'a, Lease>;
    fn renew<'a>(&'a self, exchange: &'a Exchange, request: RenewRequest) -> super::Pending<'a, Lease>;
    fn release<'a>(&'a self, exchange: &'a Exchange, request: ReleaseRequest) -> super::Pending<'a, Released>;
    fn transfer<'a>(&'a self, exchange: &'a Exchange, request: TransferRequest) -> super::Pending<'a, Lease>;
    fn break_lease<'a>(&'a self, exchange: &'a Exchange, request: BreakRequest) -> super::Pending<'a, Lease>;
    fn quarantine<'a>(&'a self, exchange: &'a Exchange, request: QuarantineRequest) -> super::Pending<'a, Key>;
    fn lift<'a>(&'a self, exchange: &'a Exchange, request: QuarantineRequest) -> super::Pending<'a, Key>;
    fn validate<'a>(&'a self, exchange: &'a Exchange, request: ValidateRequest) -> super::Pending<'a, Validity>;
    fn acquire_many<'a>(&'a self, exchange: &'a Exchange, request: AcquireManyRequest) -> super::Pending<'a, Leases>;
    fn batch<'a>(&'a self, exchange: &'a Exchange, request: BatchRequest) -> super::Pending<'a, BatchResults>;
    fn get<'a>(&'a self, exchange: &'a Exchange, request: GetRequest) -> super::Pending<'a, Key>;
    fn list<'a>(&'a self, exchange: &'a Exchange, request: ListRequest) -> super::Pending<'a, Page<Lease>>;
    fn history<'a>(&'a self, exchange: &'a Exchange, request: HistoryRequest) -> super::Pending<'a, Page<Lease>>;
}

// The functions.

/// Take a lease, at once or after waiting.
#[server(protocol = protocol::Post<AcquireRequest>, prefix = "/api/v1", endpoint = "leases/acquire")]
pub async fn acquire(request: AcquireRequest) -> Result<Lease, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().leases.acquire(&exchange, request).await
}

/// Keep a lease for longer.
#[server(protocol = protocol::Post<RenewRequest>, prefix = "/api/v1", endpoint = "leases/renew")]
pub async fn renew(request: RenewRequest) -> Result<Lease, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().leases.renew(&exchange, request).await
}

/// Give a lease back.
#[server(protocol = protocol::Post<ReleaseRequest>, prefix = "/api/v1", endpoint = "leases/release")]
pub async fn release(request: ReleaseRequest) -> Result<Released, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().leases.release(&exchange, request).await
}

/// Hand a lease to another owner, who gets a lease of its own.
#[server(protocol = protocol::Post<TransferRequest>, prefix = "/api/v1", endpoint = "leases/transfer")]
pub async fn transfer(request: TransferRequest) -> Result<Lease, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().leases.transfer(&exchange, request).await
}

/// End somebody's lease, now or after a grace.
#[server(name = Break, protocol = protocol::Post<BreakRequest>, prefix = "/api/v1", endpoint = "leases/break")]
pub async fn break_lease(request: BreakRequest) -> Result<Lease, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().leases.break_lease(&exchange, request).await
}

/// Stop all grants on a key.
#[server(name = QuarantineKey, protocol = protocol::Post<QuarantineRequest>, prefix = "/api/v1", endpoint = "leases/quarantine")]
pub async fn quarantine(request: QuarantineRequest) -> Result<Key, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().leases.quarantine(&exchange, request).await
}

/// Allow grants on a key again.
#[server(protocol = protocol::Post<QuarantineRequest>, prefix = "/api/v1", endpoint = "leases/lift")]
pub async fn lift(request: QuarantineRequest) -> Result<Key, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().leases.lift(&exchange, request).await
}

/// Ask whether a fencing token is the current one.
#[server(protocol = protocol::Post<ValidateRequest>, prefix = "/api/v1", endpoint = "leases/validate")]
pub async fn validate(request: ValidateRequest) -> Result<Validity, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().leases.validate(&exchange, request).await
}

/// The same by `GET`.
#[server(name = ValidateByQuery, protocol = protocol::Get<ValidateRequest>, prefix = "/api/v1", endpoint = "leases/validate")]
pub async fn validate_by_query(request: ValidateRequest) -> Result<Validity, ApiError> {
    validate(request).await
}

/// Take several leases, all or none.
#[server(protocol = protocol::Post<AcquireManyRequest>, prefix = "/api/v1", endpoint = "leases/acquire-many")]
pub async fn acquire_many(request: AcquireManyRequest) -> Result<Leases, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().leases.acquire_many(&exchange, request).await
}

/// Several independent operations, in order, each with its own result.
#[server(protocol = protocol::Post<BatchRequest>, prefix = "/api/v1", endpoint = "leases/batch")]
pub async fn batch(request: BatchRequest) -> Result<BatchResults, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().leases.batch(&exchange, request).await
}

/// Ask what a key is.
#[server(protocol = protocol::Post<GetRequest>, prefix = "/api/v1", endpoint = "leases/get")]
pub async fn get(request: GetRequest) -> Result<Key, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().leases.get(&exchange, request).await
}

/// The same by `GET`.
#[server(name = GetByQuery, protocol = protocol::Get<GetRequest>, prefix = "/api/v1", endpoint = "leases/get")]
pub async fn get_by_query(request: GetRequest) -> Result<Key, ApiError> {
    get(request).await
}

/// List leases.
#[server(protocol = protocol::Post<ListRequest>, prefix = "/api/v1", endpoint = "leases/list")]
pub async fn list(request: ListRequest) -> Result<Page<Lease>, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().leases.list(&exchange, request).await
}

/// The same by `GET`.
#[server(name = ListByQuery, protocol = protocol::Get<ListRequest>, prefix = "/api/v1", endpoint = "leases/list")]
pub async fn list_by_query(request: ListRequest) -> Result<Page<Lease>, ApiError> {
    list(request).await
}

/// Every grant of a key, newest first.
#[server(protocol = protocol::Post<HistoryRequest>, prefix = "/api/v1", endpoint = "leases/history")]
pub async fn history(request: HistoryRequest) -> Result<Page<Lease>, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().leases.history(&exchange, request).await
}

/// The same by `GET`.
#[server(name = HistoryByQuery, protocol = protocol::Get<HistoryRequest>, prefix = "/api/v1", endpoint = "leases/history")]
pub async fn history_by_query(request: HistoryRequest) -> Result<Page<Lease>, ApiError> {
    history(request).await
}
