//! What a worker does with a lease by itself: `acquire`, `renew`, `release`, `validate`.

use std::time::Duration;

use app::api::leases::{AcquireRequest, Lease, ReleaseRequest, Released, RenewRequest, ValidateRequest, Validity};
use app::api::values::Millis;
use domain::lease::{FencingToken, LeaseId, Verdict};
use domain::{JobKey, LeaseKey, Metadata, Owner, Subject};

use super::connection::Connection;
use super::duration::{self, millis};
use super::exit::{Exit, Problem};
use super::output;
use super::run::take::Taking;

/// Reads a lease key.
pub(super) fn key(text: &str) -> Result<LeaseKey, String> {
    LeaseKey::parse(text).map_err(|error| error.to_string())
}

/// Reads an owner.
pub(super) fn owner(text: &str) -> Result<Owner, String> {
    Owner::parse(text).map_err(|error| error.to_string())
}

/// Reads a lease id.
pub(super) fn lease_id(text: &str) -> Result<LeaseId, String> {
    LeaseId::parse(text).map_err(|error| error.to_string())
}

/// Reads a job key.
pub(super) fn job_key(text: &str) -> Result<JobKey, String> {
    JobKey::parse(text).map_err(|error| error.to_string())
}

/// Reads a subject.
pub(super) fn subject(text: &str) -> Result<Subject, String> {
    Subject::parse(text).map_err(|error| error.to_string())
}

fn metadata(text: &str) -> Result<Metadata, String> {
    Metadata::parse(text).map_err(|error| error.to_string())
}

fn fencing_token(text: &str) -> Result<FencingToken, String> {
    let number = text.parse().ok().and_then(FencingToken::new);
    number.ok_or_else(|| "is not a fencing token: a whole number from 1 to 2^53 - 1".to_owned())
}

/// The terms of a lease that is asked for.
#[derive(Debug, clap::Args)]
pub(super) struct Terms {
    /// Who asks; user@host/process if left out
    #[arg(long, short, env = "JOB_LEASES_OWNER", value_parser = owner)]
    owner: Option<Owner>,
    /// The job that the lease is for
    #[arg(long, env = "JOB_LEASES_JOB", value_name = "JOB_KEY", value_parser = job_key)]
    job: Option<JobKey>,
    /// Never hold it for longer than this, however often it is renewed
    #[arg(long, env = "JOB_LEASES_MAX_HOLD", value_name = "TIME", value_parser = duration::parse)]
    pub(super) max_hold: Option<Duration>,
    /// Keep the key cooling until so long after the grant, even if the lease is given back sooner
    #[arg(long, env = "JOB_LEASES_MIN_HOLD", value_name = "TIME", value_parser = duration::parse)]
    min_hold: Option<Duration>,
    /// Keep the key cooling for so long after the lease has expired or was broken
    #[arg(long, env = "JOB_LEASES_LOCK_DELAY", value_name = "TIME", value_parser = duration::parse)]
    lock_delay: Option<Duration>,
    /// What the work concerns, like customer:acme; can be given 16 times
    #[arg(long, env = "JOB_LEASES_SUBJECT", value_name = "KIND:ID", value_parser = subject)]
    subject: Vec<Subject>,
    /// What to keep with the lease: a JSON object
    #[arg(long, env = "JOB_LEASES_METADATA", value_name = "JSON", value_parser = metadata)]
    metadata: Option<Metadata>,
}

impl Terms {
    /// The request for a lease on `lease_key` on these terms.
    pub(super) fn request(&self, lease_key: LeaseKey, ttl: Option<Duration>) -> AcquireRequest {
        let to_millis = |length: Option<Duration>| length.map(|length| Millis(millis(length)));
        AcquireRequest {
            lease_key,
            owner: self.owner.clone().unwrap_or_else(who_am_i),
            job_key: self.job.clone(),
            ttl_ms: to_millis(ttl),
            wait_ms: None,
            min_hold_ms: to_millis(self.min_hold),
            max_hold_ms: to_millis(self.max_hold),
            lock_delay_ms: to_millis(self.lock_delay),
            subjects: self.subject.clone(),
            metadata: self.metadata.clone(),
        }
    }
}

/// A name that leads an operator to this process.
fn who_am_i() -> Owner {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok()).filter(|user| !user.is_empty());
    let user = user.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string());
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let process = std::process::id();
    Owner::parse(&format!("{user}@{host}/{process}"))
        .or_else(|_| Owner::parse(&format!("process {process}")))
        .unwrap_or_else(|_| unreachable!("a word and a number make an owner"))
}

/// Take a lease, and leave it to the caller to renew and release it
#[derive(Debug, clap::Args)]
pub struct Acquire {
    /// What must not be done twice at once
    #[arg(env = "JOB_LEASES_KEY", value_parser = key)]
    key: LeaseKey,
    #[command(flatten)]
    terms: Terms,
    /// How long it is held without a renewal; what the server's rules say if left out
    #[arg(long, env = "JOB_LEASES_TTL", value_name = "TIME", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// How long to wait for it; not at all if left out
    #[arg(long, env = "JOB_LEASES_WAIT", value_name = "TIME", value_parser = duration::parse)]
    wait: Option<Duration>,
    #[command(flatten)]
    common: Common,
}

/// Keep a lease for longer
#[derive(Debug, clap::Args)]
pub struct Renew {
    #[command(flatten)]
    which: Which,
    /// For how long from now; as last time if left out
    #[arg(long, env = "JOB_LEASES_TTL", value_name = "TIME", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// Let it end earlier than before, if the ttl says so
    #[arg(long, env = "JOB_LEASES_SHORTEN")]
    shorten: bool,
    #[command(flatten)]
    common: Common,
}

/// Give a lease back
#[derive(Debug, clap::Args)]
pub struct Release {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    common: Common,
}

/// Ask whether a fencing token is its key's current one (exit 0); 75 if it is stale, 66 if it is unknown
#[derive(Debug, clap::Args)]
pub struct Validate {
    /// The key
    #[arg(env = "JOB_LEASE_KEY", value_parser = key)]
    key: LeaseKey,
    /// The token
    #[arg(env = "JOB_LEASE_FENCING_TOKEN", value_parser = fencing_token)]
    fencing_token: FencingToken,
    #[command(flatten)]
    common: Common,
}

/// A lease, by its key and id. Under `job-leases run` the environment names it.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// The key
    #[arg(env = "JOB_LEASE_KEY", value_parser = key)]
    pub(super) key: LeaseKey,
    /// The lease: ls_ and eleven characters
    #[arg(env = "JOB_LEASE_ID", value_parser = lease_id)]
    pub(super) lease_id: LeaseId,
}

/// The options that all but `run` have.
#[derive(Debug, clap::Args)]
pub struct Common {
    /// Print the server's answer as JSON
    #[arg(long, env = "JOB_LEASES_JSON")]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl Acquire {
    pub(super) async fn run(self) -> Result<(), Problem> {
        let client = self.common.connection.client()?;
        let request = self.terms.request(self.key, self.ttl);
        let taken = Taking::new(&client, request, self.wait.unwrap_or_default()).take().await?;
        self.common.print_lease(&taken.lease)
    }
}

impl Renew {
    pub(super) async fn run(self) -> Result<(), Problem> {
        let request = RenewRequest {
            lease_key: self.which.key,
            lease_id: self.which.lease_id,
            ttl_ms: self.ttl.map(|ttl| Millis(millis(ttl))),
            shorten: self.shorten.then_some(true),
        };
        let lease: Lease = self.common.connection.client()?.ask("leases/renew", &request).await?;
        self.common.print_lease(&lease)
    }
}

impl Release {
    pub(super) async fn run(self) -> Result<(), Problem> {
        let request = ReleaseRequest { lease_key: self.which.key, lease_id: self.which.lease_id };
        let released: Released = self.common.connection.client()?.ask("leases/release", &request).await?;
        if self.common.json {
            return self.common.print_json(&released);
        }
        self.common.print_lease(&released.lease)
    }
}

impl Validate {
    pub(super) async fn run(self) -> Result<(), Problem> {
        let request = ValidateRequest { lease_key: self.key, fencing_token: self.fencing_token };
        let validity: Validity = self.common.connection.client()?.ask("leases/validate", &request).await?;
        let (word, exit) = match validity.verdict {
            Verdict::Current => ("current", Exit::Done),
            Verdict::Stale => ("stale", Exit::Lost),
            Verdict::Unknown => ("unknown", Exit::Nothing),
        };
        if self.common.json {
            self.common.print_json(&validity)?;
        } else {
            let current = validity.current_token.map(|token| token.to_string()).unwrap_or_default();
            output::facts(&[("verdict", word.to_owned()), ("current token", current)])?;
        }
        if exit == Exit::Done { Ok(()) } else { Err(Problem::silent(exit)) }
    }
}

impl Common {
    /// Prints an answer as it came.
    pub(super) fn print_json(&self, answer: &impl serde::Serialize) -> Result<(), Problem> {
        let value = serde_json::to_value(answer).map_err(|error| Problem::new(Exit::Internal, error))?;
        Ok(output::json(&value)?)
    }

    /// Prints a lease, as the person or the script wants it.
    pub(super) fn print_lease(&self, lease: &Lease) -> Result<(), Problem> {
        if self.json {
            return self.print_json(lease);
        }
        Ok(output::facts(&lease_facts(lease))?)
    }
}

/// What there is to say of a lease.
pub(super) fn lease_facts(lease: &Lease) -> Vec<(&'static str, String)> {
    let subjects: Vec<_> = lease.subjects.iter().map(Subject::as_str).collect();
    let mut expires = lease.expires_at.to_string();
    if lease.status.is_alive() {
        expires = format!("{expires}, in {}", output::span(lease.ttl_remaining_ms));
    }
    let metadata = if lease.metadata.is_empty() { String::new() } else { lease.metadata.as_str().to_owned() };
    vec![
        ("key", lease.lease_key.to_string()),
        ("status", lease.status.as_str().to_owned()),
        ("owner", lease.owner.to_string()),
        ("job", lease.job_key.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("lease id", lease.lease_id.to_string()),
        ("fencing token", lease.fencing_token.to_string()),
        ("acquired at", lease.acquired_at.to_string()),
        (if lease.status.is_alive() { "expires at" } else { "ended at" }, expires),
        ("renewals", lease.renewals.to_string()),
        ("held at most until", lease.max_hold_until.map(|until| until.to_string()).unwrap_or_default()),
        ("subjects", subjects.join(" ")),
        ("metadata", metadata),
    ]
}
