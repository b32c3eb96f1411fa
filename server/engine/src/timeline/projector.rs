//! Keeps the read models behind the timeline, and not far behind.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{Line, Position, ReadError, Timeline};
use crate::error::StoreError;

/// Lines in one transaction: many, since a key that changed often is written once.
const BATCH: u32 = 4_096;

/// How long lines may wait for company. What reads the models asks for them at once.
const LINGER: Duration = Duration::from_millis(25);

/// So many lines do not wait for more.
const PLENTY: i64 = 1_024;

/// After an error.
const PAUSE: Duration = Duration::from_millis(500);

/// The read models of some database.
pub(crate) trait Projection: Send {
    /// Applies lines that follow those applied before, all or none.
    fn apply<'a>(&'a mut self, lines: &'a [Line]) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// Applies all that is committed, before anybody is served.
pub(crate) async fn catch_up(timeline: &Timeline, projection: &mut dyn Projection) -> Result<(), ReadError> {
    while step(timeline, projection).await? {}
    Ok(())
}

/// Applies what comes, until told to stop; then what is left.
pub(crate) async fn follow(
    timeline: Arc<Timeline>,
    mut projection: Box<dyn Projection>,
    applied: impl Fn(Position) + Send,
    stop: CancellationToken,
) {
    let mut head = timeline.subscribe();
    loop {
        tokio::select! {
            biased;
            changed = head.wait_for(|head| *head > timeline.applied()) => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
        if timeline.head().0 - timeline.applied().0 < PLENTY {
            tokio::select! {
                biased;
                () = timeline.wanted.notified() => {}
                () = stop.cancelled() => {}
                _ = head.wait_for(|head| head.0 - timeline.applied().0 >= PLENTY) => {}
                () = tokio::time::sleep(LINGER) => {}
            }
        }
        match step(&timeline, &mut *projection).await {
            Ok(_) => applied(timeline.applied()),
            Err(error) => {
                tracing::error!(%error, "the read models could not be brought up to the timeline");
                if stop.is_cancelled() {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Applies one batch; whether there was one.
async fn step(timeline: &Timeline, projection: &mut dyn Projection) -> Result<bool, ReadError> {
    let lines = timeline.read_after(timeline.applied(), BATCH).await?;
    let Some(last) = lines.last() else { return Ok(false) };
    projection.apply(&lines).await?;
    timeline.set_applied(last.position);
    Ok(true)
}
