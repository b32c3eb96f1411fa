//! Keeps the read models behind the timeline, and not far behind.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{Line, Position, ReadError, Timeline};
use domain::Timestamp;
use domain::lease::FencingToken;
use tokio::sync::{mpsc, oneshot};

use crate::error::StoreError;

/// Lines in one transaction: many, since a key that changed often is written once.
const BATCH: u32 = 8_192;

/// How long lines may wait for company: a page of the database that is written once for many of them costs a fraction of
/// what it would for each. What reads the models asks for them at once.
const LINGER: Duration = Duration::from_millis(250);

/// So many lines do not wait for more.
const PLENTY: i64 = 4_096;

/// After an error.
const PAUSE: Duration = Duration::from_millis(500);

/// The read models of some database.
pub(crate) trait Projection: Send {
    /// Applies lines that follow those applied before, all or none.
    fn apply<'a>(&'a mut self, lines: &'a [Line]) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Makes all that was applied durable, so that the lines are not needed for it any more. False if it could not be
    /// done just now.
    fn make_durable(&mut self) -> BoxFuture<'_, Result<bool, StoreError>>;

    /// Forgets grants that are not the last of their key and ended before a time: looks at no more than `limit` grants
    /// after `after`, and tells the last one it looked at, if there may be more.
    fn forget(
        &mut self,
        ended_before: Timestamp,
        after: Option<FencingToken>,
        limit: u32,
    ) -> BoxFuture<'_, Result<Option<FencingToken>, StoreError>>;

    /// Closes the database: on return nothing of this process touches its files any more.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// What else the one who writes the read models is asked for.
pub(crate) enum Request {
    /// To make them durable; up to where they are.
    Durable(oneshot::Sender<Result<Option<Position>, StoreError>>),
    /// To forget old grants, as [`Projection::forget`] does.
    Forget {
        ended_before: Timestamp,
        after: Option<FencingToken>,
        limit: u32,
        reply: oneshot::Sender<Result<Option<FencingToken>, StoreError>>,
    },
}

/// Applies all that is committed, before anybody is served.
pub(crate) async fn catch_up(timeline: &Timeline, projection: &mut dyn Projection) -> Result<(), ReadError> {
    while step(timeline, projection).await? {}
    Ok(())
}

/// Applies what comes, until told to stop; then closes the read models.
pub(crate) async fn follow(
    timeline: Arc<Timeline>,
    mut projection: Box<dyn Projection>,
    applied: impl Fn(Position) + Send,
    requests: mpsc::Receiver<Request>,
    stop: CancellationToken,
) {
    keep_up(&timeline, &mut *projection, applied, requests, stop).await;
    projection.close().await;
}

async fn keep_up(
    timeline: &Timeline,
    projection: &mut dyn Projection,
    applied: impl Fn(Position) + Send,
    mut requests: mpsc::Receiver<Request>,
    stop: CancellationToken,
) {
    let mut head = timeline.subscribe();
    loop {
        let request = tokio::select! {
            biased;
            request = requests.recv() => request,
            changed = head.wait_for(|head| *head > timeline.applied()) => {
                if changed.is_err() { return }
                None
            }
            () = stop.cancelled() => return,
        };
        if let Some(request) = request {
            serve(timeline, projection, request).await;
            continue;
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
        match step(timeline, projection).await {
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

async fn serve(timeline: &Timeline, projection: &mut dyn Projection, request: Request) {
    // Whoever asked may be gone by now; what was done stays done.
    match request {
        Request::Durable(reply) => {
            let applied = timeline.applied();
            let durable = projection.make_durable().await;
            let _ = reply.send(durable.map(|is_durable| is_durable.then_some(applied)));
        }
        Request::Forget { ended_before, after, limit, reply } => {
            let _ = reply.send(projection.forget(ended_before, after, limit).await);
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
