//! What an operator does to other people's leases: `break`, `transfer`, `quarantine`, `lift`.

use std::time::Duration;

use app::api::leases::{BreakRequest, Key, Lease, QuarantineRequest, TransferRequest};
use app::api::values::Millis;
use domain::lease::LeaseId;
use domain::{LeaseKey, Owner, Reason};

use super::duration::{self, millis};
use super::exit::Problem;
use super::holder::{Common, Which, key, lease_id, owner};
use super::reading::print_key;

fn reason(text: &str) -> Result<Reason, String> {
    Reason::parse(text).map_err(|error| error.to_string())
}

/// End somebody's lease (operators)
#[derive(Debug, clap::Args)]
pub struct Break {
    /// The key
    #[arg(env = "JOB_LEASES_KEY", value_parser = key)]
    key: LeaseKey,
    /// Why; it stands in the timeline
    #[arg(long, short, env = "JOB_LEASES_REASON", value_parser = reason)]
    reason: Reason,
    /// How long the holder has to stop; 0 ends it at once
    #[arg(long, env = "JOB_LEASES_GRACE", value_name = "TIME", value_parser = duration::parse)]
    grace: Option<Duration>,
    /// Only if this very lease is held
    #[arg(long, env = "JOB_LEASES_LEASE_ID", value_parser = lease_id)]
    lease_id: Option<LeaseId>,
    #[command(flatten)]
    common: Common,
}

/// Hand a lease to another owner, under a new id and fencing token
#[derive(Debug, clap::Args)]
pub struct Transfer {
    #[command(flatten)]
    which: Which,
    /// To whom
    #[arg(long, env = "JOB_LEASES_TO_OWNER", value_parser = owner)]
    to_owner: Owner,
    #[command(flatten)]
    common: Common,
}

/// A key, and why something is done to it.
#[derive(Debug, clap::Args)]
pub struct KeyAndReason {
    /// The key
    #[arg(env = "JOB_LEASES_KEY", value_parser = key)]
    key: LeaseKey,
    /// Why; it stands in the timeline
    #[arg(long, short, env = "JOB_LEASES_REASON", value_parser = reason)]
    reason: Reason,
    #[command(flatten)]
    common: Common,
}

impl Break {
    pub(super) async fn run(self) -> Result<(), Problem> {
        let request = BreakRequest {
            lease_key: self.key,
            reason: self.reason,
            grace_ms: self.grace.map(|grace| Millis(millis(grace))),
            lease_id: self.lease_id,
        };
        let lease: Lease = self.common.connection.client()?.ask("leases/break", &request).await?;
        self.common.print_lease(&lease)
    }
}

impl Transfer {
    pub(super) async fn run(self) -> Result<(), Problem> {
        let request =
            TransferRequest { lease_key: self.which.key, lease_id: self.which.lease_id, to_owner: self.to_owner };
        let lease: Lease = self.common.connection.client()?.ask("leases/transfer", &request).await?;
        self.common.print_lease(&lease)
    }
}

impl KeyAndReason {
    /// `quarantine` or `lift`.
    pub(super) async fn run(self, operation: &str) -> Result<(), Problem> {
        let request = QuarantineRequest { lease_key: self.key, reason: self.reason };
        let answer: Key = self.common.connection.client()?.ask(operation, &request).await?;
        print_key(&self.common, &answer)
    }
}
