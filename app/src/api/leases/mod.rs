//! Leases: take, hold, give back; look; intervene.

mod answers;
mod requests;

use leptos::prelude::server;

pub use self::answers::*;
pub use self::requests::*;
use super::error::ApiError;
#[cfg(feature = "ssr")]
use super::exchange::Exchange;
use super::page::Page;
use super::protocol;

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
    fn inspect<'a>(&'a self, exchange: &'a Exchange, request: GetRequest) -> super::Pending<'a, Inspection>;
    fn attend<'a>(&'a self, exchange: &'a Exchange, request: AttendRequest) -> super::Pending<'a, Key>;
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

/// Ask all that an operator may want to know of a key.
#[server(protocol = protocol::Post<GetRequest>, prefix = "/api/v1", endpoint = "leases/inspect")]
pub async fn inspect(request: GetRequest) -> Result<Inspection, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().leases.inspect(&exchange, request).await
}

/// The same by `GET`.
#[server(name = InspectByQuery, protocol = protocol::Get<GetRequest>, prefix = "/api/v1", endpoint = "leases/inspect")]
pub async fn inspect_by_query(request: GetRequest) -> Result<Inspection, ApiError> {
    inspect(request).await
}

/// Wait until a lease is over or is to end, and tell what the key is then.
#[server(protocol = protocol::Post<AttendRequest>, prefix = "/api/v1", endpoint = "leases/attend")]
pub async fn attend(request: AttendRequest) -> Result<Key, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().leases.attend(&exchange, request).await
}

/// The same by `GET`.
#[server(name = AttendByQuery, protocol = protocol::Get<AttendRequest>, prefix = "/api/v1", endpoint = "leases/attend")]
pub async fn attend_by_query(request: AttendRequest) -> Result<Key, ApiError> {
    attend(request).await
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
