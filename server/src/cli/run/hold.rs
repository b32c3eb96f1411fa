//! Keeps a lease: renews it in time, and knows until when it is certainly held.

use std::sync::Arc;
use std::time::Duration;

use app::api::leases::{AttendRequest, Key, Lease, RenewRequest, Status};
use app::api::values::Millis;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::super::client::{Client, Failure, PATIENCE, jitter};
use super::super::clock::{Instant, sleep, sleep_until};
use super::super::duration::{self, millis};
use super::super::say::say;

/// However long the ttl: so often the server is asked. A break becomes known by that if it does not otherwise.
const SELDOMEST: Duration = Duration::from_secs(10);
/// While the lease is being broken: a second break can bring the end forward.
const WHILE_BREAKING: Duration = Duration::from_secs(1);
/// The longest that one attempt may take.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(5);
/// How long the server is asked to wait for a break: the longest that it lets one request wait.
const ATTENDANCE: Duration = Duration::from_secs(60);
/// Before the server is asked so again, if it could not do it.
const AWAY: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What is known of a lease that is held.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    /// By this clock it is held at least until then.
    pub(super) good_until: Instant,
    /// An operator wants it back by then.
    pub(super) breaking: bool,
    /// It is over, and why.
    pub(super) lost: Option<String>,
}

/// Until when a lease is certainly held, if the request to which `remaining` was the answer was sent at `sent`: the
/// server read its clock later than that. Clocks may run apart by a thousandth, and killing takes a moment.
pub(super) fn good_until(sent: Instant, remaining: Duration) -> Instant {
    let moment = Duration::from_millis(50).min(remaining / 20);
    (sent + remaining).before(remaining / 1_000 + moment)
}

/// How much time the answer gives.
pub(super) fn remaining(lease: &Lease) -> Duration {
    Duration::from_millis(lease.ttl_remaining_ms)
}

/// Asks once for the lease to be kept for as long as last time.
pub(in super::super) async fn renew(client: &Client, lease: &Lease, patience: Duration) -> Result<Lease, Failure> {
    let request =
        RenewRequest { lease_key: lease.lease_key.clone(), lease_id: lease.lease_id, ttl_ms: None, shorten: None };
    client.call("leases/renew", &request, None, patience).await
}

/// Whether the answer to a renewal means that the lease is over.
pub(super) fn is_over(failure: &Failure) -> bool {
    matches!(failure.code(), Some("lease_lost" | "lease_unknown" | "key_unknown"))
}

/// Why it is over, in words.
pub(super) fn loss(failure: &Failure) -> String {
    let reason = match failure {
        Failure::Refused { error, .. } => error.details.as_ref().and_then(|details| details.get("reason")?.as_str()),
        _ => None,
    };
    reason.or(failure.code()).unwrap_or("unknown").to_owned()
}

/// How long to pause before the next of several attempts.
pub(super) struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    /// Pauses that double up to `longest`.
    pub(super) fn up_to(longest: Duration) -> Self {
        let longest = longest.min(LONGEST_PAUSE);
        Self { next: FIRST_PAUSE.min(longest), longest }
    }

    /// The next one: longer if the server asks for it, but never beyond the longest.
    pub(super) fn next(&mut self, failure: &Failure) -> Duration {
        let pause = self.next.max(failure.retry_after().unwrap_or_default()).min(self.longest);
        self.next = (self.next * 2).min(self.longest);
        pause.mul_f64(jitter())
    }
}

/// Renews `lease`, first granted to a request sent at `sent`, until it is over; tells what is known through `hold`.
///
/// `ttl` is the longest that a renewal can give. Nobody listening any more ends it too.
pub(super) async fn keep(client: Client, lease: Lease, ttl: Duration, sent: Instant, hold: watch::Sender<Hold>) {
    let calm = (ttl / 3).min(SELDOMEST);
    let mut next = sent + calm;
    let mut trouble: Option<Pauses> = None;
    let told = Arc::new(Notify::new());
    // Ends with this function.
    let mut attending = JoinSet::new();
    attending.spawn(attend(client.clone(), lease.clone(), Arc::clone(&told)));
    while !hold.is_closed() {
        tokio::select! {
            () = sleep_until(next) => {}
            () = told.notified() => {}
        }
        let sent = Instant::now();
        // Half of what is left each time: there is always time for another attempt.
        let left = hold.borrow().good_until.since(sent);
        let patience = (left / 2).clamp(Duration::from_millis(100), LONGEST_ATTEMPT);
        match renew(&client, &lease, patience).await {
            Ok(renewed) if renewed.status.is_alive() => {
                let until = good_until(sent, remaining(&renewed));
                let breaking = renewed.status == Status::Breaking;
                hold.send_modify(|hold| {
                    // What an earlier answer promised stays true, unless a break has come between.
                    hold.good_until = if breaking { until } else { until.max(hold.good_until) };
                    hold.breaking = breaking;
                });
                if trouble.take().is_some() {
                    say(format_args!("the server answers again, the lease on {} is renewed", lease.lease_key));
                }
                next = sent + if breaking { calm.min(WHILE_BREAKING) } else { calm };
            }
            Ok(ended) => {
                hold.send_modify(|hold| hold.lost = Some(ended.status.as_str().to_owned()));
                return;
            }
            Err(failure) if is_over(&failure) => {
                hold.send_modify(|hold| hold.lost = Some(loss(&failure)));
                return;
            }
            Err(failure) => {
                let now = Instant::now();
                if trouble.is_none() {
                    let left = duration::show(hold.borrow().good_until.since(now));
                    say(format_args!("the lease on {} was not renewed: {failure}", lease.lease_key));
                    say(format_args!("it is held for another {left}; trying again until then"));
                }
                next = now + trouble.get_or_insert_with(|| Pauses::up_to(ttl / 10)).next(&failure);
            }
        }
    }
}

/// Has the server tell when somebody ends the lease or wants it back; what that means, the next renewal tells. Without it a
/// break is heard of by the next renewal that is due, which may be after its end.
async fn attend(client: Client, lease: Lease, told: Arc<Notify>) {
    let request = AttendRequest {
        lease_key: lease.lease_key.clone(),
        lease_id: lease.lease_id,
        wait_ms: Some(Millis(millis(ATTENDANCE))),
    };
    loop {
        let asked = Instant::now();
        match client.call::<Key>("leases/attend", &request, None, ATTENDANCE + PATIENCE).await {
            Ok(key) => {
                let is_held = key.lease.is_some_and(|now| now.lease_id == lease.lease_id && now.status == Status::Held);
                if !is_held {
                    // From now on the renewals come so often that there is nothing more to tell.
                    told.notify_one();
                    return;
                }
                if Instant::now().since(asked) < Duration::from_secs(1) {
                    // A lease so short is renewed as often.
                    sleep(Duration::from_millis(250)).await;
                }
            }
            // Whatever it is, the renewals will find out what it means for the lease.
            Err(_) => sleep(AWAY.mul_f64(jitter())).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_counted_from_the_sending_and_a_little_less_than_promised() {
        let sent = Instant::from_nanos(1_000_000_000);
        let until = good_until(sent, Duration::from_secs(30));
        assert_eq!(until.since(sent), Duration::from_millis(30_000 - 30 - 50));
        let until = good_until(sent, Duration::from_millis(100));
        assert_eq!(until.since(sent), Duration::from_micros(100_000 - 100 - 5_000));
        assert_eq!(good_until(sent, Duration::ZERO), sent);
    }

    #[test]
    fn pauses_grow_to_the_longest_and_heed_the_server_only_that_far() {
        let failure = Failure::Unanswered { message: String::new(), sent: false };
        let mut pauses = Pauses::up_to(Duration::from_millis(300));
        for most in [100, 200, 300, 300] {
            let pause = pauses.next(&failure);
            assert!(pause <= Duration::from_millis(most).mul_f64(1.25), "{pause:?}");
            assert!(pause >= Duration::from_millis(most).mul_f64(0.75), "{pause:?}");
        }
        let busy = Failure::Refused {
            error: Box::new(app::api::ApiError::new("overloaded", "").retry_after_ms(60_000)),
            status: reqwest::StatusCode::SERVICE_UNAVAILABLE,
            retry_after: None,
            had_token: true,
        };
        assert!(Pauses::up_to(Duration::from_secs(1)).next(&busy) <= Duration::from_millis(1_250));
    }
}
