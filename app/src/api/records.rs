//! Records of all kinds by the beginning of their names: leases, owners, jobs, and what leases concern.

use domain::Timestamp;
use leptos::prelude::server;
use serde::{Deserialize, Serialize};

use super::error::ApiError;
#[cfg(feature = "ssr")]
use super::exchange::Exchange;
use super::leases::Status;
use super::protocol;
use super::values::{PageSize, Prefix, present};

/// What is looked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
pub struct FindRequest {
    /// How the name begins; of a customer, license or invoice also how it begins after the kind.
    pub prefix: Prefix,
    /// How many of each kind at most, 1 to 500; 10 if absent.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageSize>,
}

/// What kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordKind {
    /// A key that was ever leased, with its last lease.
    Lease,
    /// Who ever held one.
    Owner,
    /// What one was ever for.
    Job,
    /// What one ever concerned: a customer, a license, an invoice.
    Subject,
}

/// A record that begins so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Of which kind.
    pub kind: RecordKind,
    /// Its name.
    pub name: String,
    /// Of a key: what its last lease is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Of a key: who has or had it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// What was found: kind by kind, each in the order of its names. Callers limited to prefixes are told of leases only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// The records.
    pub items: Vec<Record>,
    /// The server's time; every status is the one at this instant.
    pub server_time: Timestamp,
}

/// The records, on the server.
#[cfg(feature = "ssr")]
#[expect(missing_docs, reason = "each method is the server function of its name")]
pub trait RecordsBackend: Send + Sync {
    fn find<'a>(&'a self, exchange: &'a Exchange, request: FindRequest) -> super::Pending<'a, Records>;
}

/// Find records by the beginning of their names.
#[server(name = RecordsFind, protocol = protocol::Post<FindRequest>, prefix = "/api/v1", endpoint = "records/find")]
pub async fn find(request: FindRequest) -> Result<Records, ApiError> {
    let exchange = Exchange::current()?;
    exchange.backends().records.find(&exchange, request).await
}

/// The same by `GET`.
#[server(name = RecordsFindByQuery, protocol = protocol::Get<FindRequest>, prefix = "/api/v1", endpoint = "records/find")]
pub async fn find_by_query(request: FindRequest) -> Result<Records, ApiError> {
    find(request).await
}
