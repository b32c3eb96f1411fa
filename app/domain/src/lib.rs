//! The rules of Job Leases, and nothing else: no input or output, no clock, no async.
//!
//! Time, randomness and fresh tokens are parameters, so the same functions run in production, in the property tests
//! and in the exhaustive model.

pub mod actor;
pub mod lease;
pub mod text;
pub mod time;

pub use actor::{Actor, ActorKind, RequestId, Role};
pub use text::{JobKey, LeaseKey, Metadata, Owner, Reason, Subject, TextError};
pub use time::{Span, Timestamp};
