//! `job-leases demo`: a small crowd of workers that collide, wait, renew and crash, so that the console has something to show.
//!
//! It is a plain client like any other: what it does could be done by workers. Its keys all lie below `demo/`.

use std::time::Duration;

use app::api::leases::{AcquireRequest, Lease};
use app::api::values::Millis;
use domain::{JobKey, LeaseKey, Metadata, Owner, Subject, TextError};
use tokio::task::JoinSet;

use super::client::{Client, Failure, PATIENCE};
use super::clock::{Instant, sleep};
use super::connection::Connection;
use super::duration::{self, millis};
use super::exit::Problem;
use super::run::renew;
use super::run::take::give_back;
use super::say::say;

/// What the crowd works on: the job, and what it concerns.
const WORK: [(&str, &str); 16] = [
    ("billing/close-month", "customer:acme"),
    ("billing/dunning", "customer:globex"),
    ("import/eu-west", "customer:initech"),
    ("import/us-east", "customer:acme"),
    ("nightly/report", "customer:umbrella"),
    ("nightly/vacuum", "license:L-7"),
    ("mail/digest", "customer:globex"),
    ("deploy/api", "license:L-12"),
    ("deploy/web", "license:L-12"),
    ("sync/crm", "customer:hooli"),
    ("invoice/2041", "invoice:2041"),
    ("invoice/2042", "invoice:2042"),
    ("index/customers", "customer:initech"),
    ("ledger/reconcile", "customer:acme"),
    ("feed/orders", "customer:umbrella"),
    ("backup/primary", "license:L-3"),
];

const TTL: Duration = Duration::from_secs(20);

/// Show the console alive: a crowd of workers that collide, wait, renew and crash, on keys below demo/
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// How many workers
    #[arg(long, default_value = "12", value_parser = clap::value_parser!(u16).range(1..=200))]
    workers: u16,
    /// For how long; until it is interrupted if left out
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse)]
    time: Option<Duration>,
    #[command(flatten)]
    connection: Connection,
}

impl Demo {
    pub(super) async fn run(self) -> Result<(), Problem> {
        let client = self.connection.client()?;
        // Whether the server is there and lets this in is better told at once than by each worker.
        let first = acquire(&client, "demo/starting", "demo", None, Duration::from_secs(1)).await?;
        let _ = give_back(&client, &first, 1).await;
        say(format_args!("{} workers are at work on keys below demo/ at {}", self.workers, client.url()));
        let mut workers = JoinSet::new();
        for number in 1..=self.workers {
            workers.spawn(work(client.clone(), format!("worker-{number}")));
        }
        tokio::select! {
            () = sleep(self.time.unwrap_or(Duration::MAX)) => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        // What they hold runs out by itself, as after any crash.
        workers.shutdown().await;
        Ok(())
    }
}

/// A number below 1.
fn chance() -> f64 {
    #[expect(clippy::disallowed_methods, reason = "a crowd is no crowd if all do the same; nothing depends on it")]
    let number = rand::random::<f64>();
    number
}

fn between(least: f64, most: f64) -> Duration {
    Duration::from_secs_f64(least + (most - least) * chance())
}

/// One worker's life.
async fn work(client: Client, owner: String) {
    sleep(between(0.0, 3.0)).await;
    loop {
        // Some jobs are wanted more than others.
        let index = ((chance() * chance()) * WORK.len() as f64) as usize;
        let (job, subject) = WORK[index.min(WORK.len() - 1)];
        let wait = if chance() < 0.4 { between(5.0, 30.0) } else { Duration::ZERO };
        match acquire(&client, &format!("demo/{job}"), &owner, Some((job, subject)), wait).await {
            Ok(lease) => hold(&client, lease).await,
            Err(failure) if failure.is_passing() => sleep(Duration::from_secs(2)).await,
            // Somebody else is at it.
            Err(_) => {}
        }
        sleep(between(0.3, 4.0)).await;
    }
}

/// Works for a while, renewing; then gives the lease back, or crashes and forgets it.
async fn hold(client: &Client, lease: Lease) {
    let end = Instant::now() + between(2.0, 45.0);
    let crashes = chance() < 0.08;
    loop {
        let left = end.since(Instant::now());
        sleep(left.min(TTL / 3)).await;
        if left <= TTL / 3 {
            break;
        }
        if renew(client, &lease, PATIENCE).await.is_err() {
            // Broken by an operator, or the server is away: either way this worker stops.
            return;
        }
    }
    if !crashes {
        // If it cannot be given back, it will run out.
        let _ = give_back(client, &lease, 1).await;
    }
}

async fn acquire(
    client: &Client,
    key: &str,
    owner: &str,
    about: Option<(&str, &str)>,
    wait: Duration,
) -> Result<Lease, Failure> {
    let request = AcquireRequest {
        lease_key: good(LeaseKey::parse(key)),
        owner: good(Owner::parse(owner)),
        job_key: about.map(|(job, _)| good(JobKey::parse(&job.replace('/', "-")))),
        ttl_ms: Some(Millis(millis(TTL))),
        wait_ms: (!wait.is_zero()).then(|| Millis(millis(wait))),
        min_hold_ms: None,
        max_hold_ms: None,
        lock_delay_ms: None,
        subjects: about.map(|(_, subject)| good(Subject::parse(subject))).into_iter().collect(),
        metadata: Metadata::parse(r#"{"from":"job-leases demo"}"#).ok(),
    };
    client.call("leases/acquire", &request, None, wait + PATIENCE).await
}

/// A name that was parsed.
fn good<T>(parsed: Result<T, TextError>) -> T {
    parsed.unwrap_or_else(|error| unreachable!("the names of the demonstration are good ones: {error}"))
}
