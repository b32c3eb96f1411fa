//! What is done from time to time, whether or not anybody asks: of several nodes by one.

use std::sync::Arc;
use std::time::Duration;

use domain::Actor;
use engine::{Call, Engine};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// How often leases that are over are recorded so.
const SWEEP: Duration = Duration::from_secs(2);
/// How many at once.
const MOST: u32 = 500;

/// How often what has been kept long enough is taken away. The first time is one such time after the start.
const RETAIN: Duration = Duration::from_secs(10 * 60);

/// Records the end of leases that nobody asked about again, until `stopping`. Nothing depends on it: whoever asks sees a
/// lease that is over as over, recorded or not.
pub(crate) async fn sweep(engine: Engine, stopping: CancellationToken) {
    let actor = Arc::new(Actor::system("sweeper"));
    let mut ticks = interval(SWEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if !engine.is_on_duty() {
            continue;
        }
        loop {
            let call = Call { actor: Arc::clone(&actor), request_id: None, idempotency: None };
            match engine.sweep(call, MOST).await {
                Ok(swept) if swept == MOST as usize && !stopping.is_cancelled() => {}
                Ok(_) => break,
                Err(error) => {
                    if !stopping.is_cancelled() {
                        tracing::warn!(%error, "leases that are over could not be recorded so");
                    }
                    break;
                }
            }
        }
    }
}

/// Takes away what has been kept long enough, until `stopping`.
pub(crate) async fn retain(engine: Engine, stopping: CancellationToken) {
    let actor = Arc::new(Actor::system("retention"));
    loop {
        tokio::select! {
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(RETAIN) => {}
        }
        if !engine.is_on_duty() {
            continue;
        }
        let call = Call { actor: Arc::clone(&actor), request_id: None, idempotency: None };
        if let Err(error) = engine.retain(call).await
            && !stopping.is_cancelled()
        {
            tracing::warn!(%error, "what has been kept long enough could not be taken away; it is tried again later");
        }
    }
}
