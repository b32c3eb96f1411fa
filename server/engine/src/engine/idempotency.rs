//! What a request with an `Idempotency-Key` did, so that the same request again does nothing more.

use std::sync::Arc;

use domain::Timestamp;
use domain::lease::{LeaseReading, Refusal, Reply};
use serde::{Deserialize, Serialize};

/// Names a request: an idempotency key belongs to its caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyId {
    /// The caller's public id.
    pub caller: Arc<str>,
    /// The `Idempotency-Key`.
    pub key: Arc<str>,
}

/// An `Idempotency-Key` and the request it came with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// 1 to 255 characters.
    pub key: Arc<str>,
    /// SHA-256 of the operation and its arguments.
    pub fingerprint: [u8; 32],
}

/// A request that had an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Which.
    pub id: IdempotencyId,
    /// SHA-256 of the operation and its arguments.
    pub fingerprint: [u8; 32],
    /// What was answered.
    pub answer: Stored,
    /// When.
    pub at: Timestamp,
}

/// What was answered. No secret is ever in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stored {
    /// A lease that its caller counts on, to be reported as it is when asked again, or as lost.
    Grant(Reply),
    /// Any other command's reply.
    Reply(Reply),
    /// The replies of a batch, in order; which of them are leases that the caller counts on.
    Batch(Vec<(Result<Reply, Refusal>, bool)>),
    /// A token or session was made or ended: its public id.
    Access(Arc<str>),
}

impl Stored {
    /// The leases that are told anew.
    pub(crate) fn grants(&self) -> Box<dyn Iterator<Item = &LeaseReading> + '_> {
        match self {
            Self::Grant(reply) | Self::Reply(reply) => Box::new(reply.leases()),
            Self::Batch(results) => Box::new(
                results
                    .iter()
                    .filter(|(_, granted)| *granted)
                    .filter_map(|(result, _)| result.as_ref().ok())
                    .flat_map(Reply::leases),
            ),
            Self::Access(_) => Box::new(std::iter::empty()),
        }
    }
}
