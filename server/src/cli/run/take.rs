//! Takes a lease, waiting longer than one request can, and as calmly for a server that is away.

use std::time::Duration;

use app::api::leases::{AcquireRequest, Lease};
use app::api::values::Millis;

use super::super::client::{Client, Failure, PATIENCE, idempotency_key};
use super::super::clock::{Instant, sleep};
use super::super::duration::{self, millis};
use super::super::exit::{Exit, Problem};
use super::super::say::say;
use super::hold::{Pauses, good_until, is_over, remaining, renew};

/// The longest that the server lets one request wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long an answer that was lost is asked for again, if there is to be no waiting.
const LOST_ANSWER: Duration = Duration::from_secs(5);
/// How long to look for a lease that was granted while the caller gave up.
const LAST_LOOK: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A lease, and when the request was sent of which the lease is the answer.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) lease: Lease,
    pub(crate) sent: Instant,
}

impl Taken {
    /// Until when the lease is certainly held.
    pub(super) fn good_until(&self) -> Instant {
        good_until(self.sent, remaining(&self.lease))
    }
}

/// One acquire, which may take several requests.
pub(crate) struct Taking<'c> {
    client: &'c Client,
    request: AcquireRequest,
    deadline: Instant,
    /// Of the requests that the server must take for one.
    key: String,
    /// Set when the server may have acted on such a request without an answer: it is repeated as it was, until then.
    lost: Option<Instant>,
}

impl<'c> Taking<'c> {
    /// An acquire that waits for `wait` in all; its own `wait_ms` is not used.
    pub(crate) fn new(client: &'c Client, request: AcquireRequest, wait: Duration) -> Self {
        Self { client, request, deadline: Instant::now() + wait, key: idempotency_key(), lost: None }
    }

    /// Takes the lease.
    ///
    /// A connection that breaks while waiting can make it last up to a minute longer than asked for.
    ///
    /// # Errors
    /// If it is not to be had, or the server does not answer.
    pub(crate) async fn take(&mut self) -> Result<Taken, Failure> {
        let mut pauses = Pauses::up_to(LONGEST_PAUSE);
        let mut told = false;
        loop {
            let sent = Instant::now();
            if self.lost.is_none() {
                let wait = self.deadline.since(sent).min(LONGEST_WAIT);
                self.request.wait_ms = (!wait.is_zero()).then(|| Millis(millis(wait)));
            }
            let patience = Duration::from_millis(self.request.wait_ms.map_or(0, |wait| wait.0)) + PATIENCE;
            let failure = match self.client.call("leases/acquire", &self.request, Some(&self.key), patience).await {
                Ok(lease) => return Ok(Taken { lease, sent }),
                Err(failure) => failure,
            };
            let now = Instant::now();
            match failure.code() {
                // It stood in the queue to the end of one request, or an answer that was lost had granted a lease
                // which has run out since: both are settled, and the next request is a new one.
                Some("wait_timeout" | "lease_lost") if now < self.deadline => self.begin_anew(),
                Some("held" | "breaking" | "cooling") if now < self.deadline => {
                    sleep(pauses.next(&failure).min(self.deadline.since(now))).await;
                }
                _ if failure.is_passing() => {
                    if failure.may_have_happened() && self.lost.is_none() {
                        self.lost = Some(self.deadline.max(now + LOST_ANSWER));
                    }
                    let until = self.lost.unwrap_or(self.deadline);
                    if now >= until {
                        return Err(failure);
                    }
                    if !told {
                        told = true;
                        say(format_args!("{failure}; trying again for {}", duration::show(until.since(now))));
                    }
                    sleep(pauses.next(&failure)).await;
                }
                _ => return Err(failure),
            }
        }
    }

    /// Takes the lease with most of its time still ahead: one that was granted while the request waited is renewed
    /// first, since its time counts from the sending. `ttl` is the longest that a renewal can give.
    ///
    /// # Errors
    /// As for [`Self::take`], and if the server answers too slowly for such a ttl.
    pub(crate) async fn take_fresh(&mut self, ttl: Duration) -> Result<Taken, Problem> {
        loop {
            let taken = self.take().await?;
            match self.freshen(taken, ttl).await {
                Err(failure) if is_over(&failure) && Instant::now() < self.deadline => self.begin_anew(),
                Err(failure) => return Err(failure.into()),
                Ok(taken) if taken.good_until() > Instant::now() => return Ok(taken),
                Ok(_) => {
                    let ttl = duration::show(ttl);
                    let message = format!("the server answers too slowly for a lease of {ttl}: take a longer one");
                    return Err(Problem::new(Exit::Unavailable, message));
                }
            }
        }
    }

    async fn freshen(&self, mut taken: Taken, ttl: Duration) -> Result<Taken, Failure> {
        const ATTEMPTS: u32 = 5;
        let mut pauses = Pauses::up_to(ttl / 10);
        // The lease was granted when its answer came, at the latest.
        let end = Instant::now() + remaining(&taken.lease);
        for _ in 0..ATTEMPTS {
            let sent = Instant::now();
            if taken.good_until().since(sent) >= ttl / 2 {
                break;
            }
            match renew(self.client, &taken.lease, PATIENCE.min(ttl)).await {
                Ok(lease) => taken = Taken { lease, sent },
                Err(failure) if failure.is_passing() && Instant::now() < end => sleep(pauses.next(&failure)).await,
                Err(failure) => return Err(failure),
            }
        }
        Ok(taken)
    }

    /// Gives back what may have been granted to a request that was cut off; best effort, for a second or so.
    pub(crate) async fn give_up(self) {
        let last_look = self.client.call("leases/acquire", &self.request, Some(&self.key), LAST_LOOK).await;
        if let Ok(lease) = last_look {
            // If it cannot be given back, it will run out.
            let _ = give_back(self.client, &lease, 1).await;
        }
    }

    fn begin_anew(&mut self) {
        self.key = idempotency_key();
        self.lost = None;
    }
}

/// Releases `lease`, trying so often.
///
/// # Errors
/// The last failure.
pub(crate) async fn give_back(client: &Client, lease: &Lease, attempts: u32) -> Result<(), Failure> {
    let request = app::api::leases::ReleaseRequest { lease_key: lease.lease_key.clone(), lease_id: lease.lease_id };
    let mut pauses = Pauses::up_to(LONGEST_PAUSE);
    let mut attempt = 1;
    loop {
        let answer = client.call::<serde_json::Value>("leases/release", &request, None, Duration::from_secs(2)).await;
        match answer {
            Ok(_) => return Ok(()),
            Err(failure) if attempt < attempts && failure.is_passing() => {
                attempt += 1;
                sleep(pauses.next(&failure)).await;
            }
            Err(failure) => return Err(failure),
        }
    }
}
