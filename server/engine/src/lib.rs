//! The engine: the one door for writes, the timeline, and what follows from it.
//!
//! A change goes one way: command, decision, timeline, read models. See [`Engine`].

pub mod access;
pub mod clock;
pub mod engine;
pub mod error;
pub mod metrics;
pub mod reading;
pub mod store;
pub mod timeline;

pub use engine::{Call, Database, Delivery, Done, Engine, Options, idempotency::Idempotency};
pub use error::{Fault, OpenError, StoreError};
pub use store::backup::{backup, restore};
pub use store::copy::{Copied, CopyError, copy};
pub use store::postgres::{PostgresUrl, verify as verify_postgres};
pub use store::sqlite::verify;
pub use timeline::{Verified, VerifyError};
