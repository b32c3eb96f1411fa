//! Pages of lists.

use domain::Timestamp;
use serde::{Deserialize, Serialize};

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// The `cursor` of the next page; `null` after the last.
    pub next: Option<String>,
    /// How many there are on all pages, if that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<Count>,
    /// What of the past it includes.
    pub as_of: AsOf,
    /// The server's time; every status on the page is the one at this instant.
    pub server_time: Timestamp,
}

/// How many rows there are, counted up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// So many at the least.
    pub at_least: u32,
    /// Whether those are all.
    pub is_all: bool,
}

/// How far along the timeline an answer is: all that was committed up to here is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsOf {
    /// The position of the last event included.
    pub position: u64,
    /// When that was read.
    pub time: Timestamp,
}
