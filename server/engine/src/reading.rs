//! What lists, history and counters ask of the read models, whatever database holds them.

use domain::lease::{FencingToken, Lease, LeaseStatus};
use domain::{JobKey, LeaseKey, Owner, Span, Subject, Timestamp};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::timeline::Position;

/// By what a list is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SortField {
    /// By name.
    LeaseKey,
    /// By the time of the grant; tokens rise with it.
    AcquiredAt,
    /// By the time of expiry, or of the end.
    ExpiresAt,
    /// By the last change.
    UpdatedAt,
}

/// By what a list is sorted, and in which direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// By what.
    pub field: SortField,
    /// The greatest first.
    pub descending: bool,
}

/// Which grants to list.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// Only the last grant of each key.
    pub current_only: bool,
    /// Only keys that begin so.
    pub prefix: Option<String>,
    /// Only keys that begin with one of these, if there are any: what the caller may see.
    pub allowed_prefixes: Vec<String>,
    /// Only this owner's.
    pub owner: Option<Owner>,
    /// Only this job's.
    pub job_key: Option<JobKey>,
    /// Only what concerns this.
    pub subject: Option<Subject>,
    /// Only what is so now.
    pub status: Option<LeaseStatus>,
    /// In which order.
    pub sort: Sort,
    /// At most so many: 1 to 500.
    pub limit: u32,
    /// Only what comes after this.
    pub cursor: Option<Cursor>,
    /// Whether to count as well, all that answer to the filters, up to [`MOST_COUNTED`].
    pub count: bool,
}

/// So many grants are counted and no more: whoever reads a list wants to know whether it is long, not how long.
pub const MOST_COUNTED: u32 = 1_000;

/// Which grants of one key to list, the newest first.
#[derive(Clone, Debug)]
pub struct HistoryQuery {
    /// Of which key.
    pub lease_key: LeaseKey,
    /// Only what was granted before this.
    pub before: Option<FencingToken>,
    /// At most so many: 1 to 500.
    pub limit: u32,
}

/// Where a page ended: the next one begins after it, whatever has changed meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// By what the list was sorted; a cursor is good for no other order.
    pub field: SortField,
    /// The last row's value, in microseconds, if it was sorted by a time.
    pub value: i64,
    /// The last row's key.
    pub lease_key: String,
    /// The last row's token.
    pub token: i64,
}

impl Cursor {
    /// Where a page that ends with `row` ended.
    #[must_use]
    pub fn after(row: &GrantRow, field: SortField) -> Self {
        let value = match field {
            SortField::LeaseKey => 0,
            SortField::AcquiredAt => row.lease.acquired_at.as_micros(),
            SortField::ExpiresAt => row.lease.expires_at.as_micros(),
            SortField::UpdatedAt => row.lease.updated_at.as_micros(),
        };
        Self { field, value, lease_key: row.lease_key.as_str().to_owned(), token: row.lease.token.as_i64() }
    }
}

/// A grant in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRow {
    /// On which key.
    pub lease_key: LeaseKey,
    /// The grant; what it is now follows from the time.
    pub lease: Lease,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct Page {
    /// In the order asked for.
    pub rows: Vec<GrantRow>,
    /// Where it ended, if there is more.
    pub next: Option<Cursor>,
    /// How far the read models had come.
    pub as_of: Position,
    /// How many there are in all, if it was asked: one more than [`MOST_COUNTED`] stands for any greater number.
    pub count: Option<u32>,
}

/// What has a name besides keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// Who holds leases.
    Owner,
    /// What they are for.
    Job,
    /// What they concern.
    Subject,
}

/// What is known of a key besides its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Background {
    /// The latest renewals of its last grant, newest first: when, and how much time was left.
    pub renewals: Vec<(Timestamp, Span)>,
    /// What operators did to it, newest first: lines of the timeline as they are stored.
    pub interventions: Vec<(Position, String)>,
}

/// What happened in one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Minute {
    /// When it began.
    pub at: Timestamp,
    /// Leases granted.
    pub granted: i64,
    /// Leases renewed.
    pub renewed: i64,
    /// Leases given back.
    pub released: i64,
    /// Leases that ended otherwise.
    pub cut_short: i64,
    /// Duplicates refused.
    pub refused: i64,
    /// Leases held at its end.
    pub held: i64,
}

/// What there is, in numbers. What a caller limited to prefixes cannot be told is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// How far the read models had come.
    pub as_of: Position,
    /// Keys that were ever leased.
    pub keys: i64,
    /// Leases held now.
    pub held: i64,
    /// Grants in all.
    pub grants: Option<i64>,
    /// Jobs known from leases.
    pub jobs: Option<i64>,
    /// Owners that ever held a lease.
    pub owners: Option<i64>,
    /// How often a duplicate was refused, in all.
    pub collisions: i64,
    /// How often a duplicate was refused since midnight UTC.
    pub collisions_today: i64,
}

/// The read models of some database.
pub(crate) trait Reading: Send + Sync {
    fn list(&self, query: ListQuery, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>>;
    fn history(&self, query: HistoryQuery) -> BoxFuture<'_, Result<Page, StoreError>>;
    /// Of all keys, or of those that begin with one of the prefixes.
    fn counters<'a>(&'a self, prefixes: &'a [String], now: Timestamp) -> BoxFuture<'a, Result<Counters, StoreError>>;
    /// At most `limit` names that begin so, in their order.
    fn names(&self, of: Named, prefix: String, limit: u32) -> BoxFuture<'_, Result<Vec<String>, StoreError>>;
    fn background<'a>(&'a self, key: &'a LeaseKey) -> BoxFuture<'a, Result<Background, StoreError>>;
    /// The minutes since `from` in which anything happened, oldest first, and the one before them.
    fn minutes(&self, from: Timestamp) -> BoxFuture<'_, Result<Vec<Minute>, StoreError>>;
    /// Keys whose lease is over but not recorded so, the longest over first.
    fn due(&self, now: Timestamp, limit: u32) -> BoxFuture<'_, Result<Vec<LeaseKey>, StoreError>>;
}
