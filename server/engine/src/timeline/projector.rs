//! Keeps the read models behind the timeline, and not far behind.
//!
//! Lines are folded as they come: what is held for the read models is each changed key and grant once, not the lines. Of what
//! was folded many lines are written together, since a page of the database that is written once for all of them costs a
//! fraction of what it would for each. Whoever reads the models asks for what is there to be written at once.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{Folded, Position, ReadError, Timeline};
use domain::Timestamp;
use domain::lease::FencingToken;

use crate::error::StoreError;

/// Lines that are read at once.
const PIECE: u32 = 4_096;

/// How long lines may wait for company where nobody else writes or reads the models.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// So many lines do not wait for more, nor lines of so many bytes.
const PLENTY: usize = 32_768;
const PLENTY_BYTES: usize = 16 << 20;

/// After an error.
const PAUSE: Duration = Duration::from_millis(500);

/// The read models of some database.
pub(crate) trait Projection: Send {
    /// Writes what lines came to that follow those written before, all or nothing.
    fn write<'a>(&'a mut self, folded: &'a Folded) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Makes all that was written durable, so that the lines are not needed for it any more. False if it could not be
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
    loop {
        let mut folded = Folded::default();
        while !is_plenty(&folded) && take(timeline, &mut folded).await? {}
        if folded.lines == 0 {
            return Ok(());
        }
        projection.write(&folded).await?;
        if let Some((position, _)) = folded.last {
            // They were there before this process, which never counted their bytes.
            timeline.set_applied(position, 0);
        }
    }
}

/// Applies what comes, which may wait for more for as long as `linger`, until told to stop, or until somebody else has gone on with
/// them; then closes the read models.
pub(crate) async fn follow(
    timeline: Arc<Timeline>,
    mut projection: Box<dyn Projection>,
    applied: impl Fn(Position) + Send,
    requests: mpsc::Receiver<Request>,
    linger: Duration,
    stop: CancellationToken,
) {
    keep_up(&timeline, &mut *projection, applied, requests, linger, stop).await;
    projection.close().await;
}

async fn keep_up(
    timeline: &Timeline,
    projection: &mut dyn Projection,
    applied: impl Fn(Position) + Send,
    mut requests: mpsc::Receiver<Request>,
    linger: Duration,
    stop: CancellationToken,
) {
    let mut folded = Folded::default();
    loop {
        match gather(timeline, &mut folded, &mut requests, linger, &stop).await {
            Ok(Next::Stop) => return,
            Ok(Next::Serve(request)) => {
                serve(timeline, projection, request).await;
                continue;
            }
            Ok(Next::Write) => {}
            Err(error) => {
                tracing::error!(%error, "the timeline could not be read for the read models");
                if pause(&stop).await {
                    return;
                }
                continue;
            }
        }
        // Lines go on being folded meanwhile, or they would pile up.
        let mut next = Folded::default();
        loop {
            let written = write(timeline, projection, &folded);
            match while_writing(timeline, &mut next, written).await {
                Ok(()) => break,
                // What was folded does not follow what is there now.
                Err(ReadError::Store(StoreError::Overtaken)) => return,
                Err(error) => {
                    tracing::error!(%error, "the read models could not be brought up to the timeline");
                    if pause(&stop).await {
                        return;
                    }
                }
            }
        }
        applied(timeline.applied());
        folded = next;
    }
}

/// Waits a while after an error; whether it is time to stop.
async fn pause(stop: &CancellationToken) -> bool {
    tokio::select! {
        () = stop.cancelled() => true,
        () = tokio::time::sleep(PAUSE) => false,
    }
}

enum Next {
    /// What was folded is to be written.
    Write,
    Serve(Request),
    Stop,
}

/// Folds what comes until it is enough, has waited long enough, or somebody waits for it.
async fn gather(
    timeline: &Timeline,
    folded: &mut Folded,
    requests: &mut mpsc::Receiver<Request>,
    most: Duration,
    stop: &CancellationToken,
) -> Result<Next, ReadError> {
    let mut linger = None;
    loop {
        take(timeline, folded).await?;
        if is_plenty(folded) {
            return Ok(Next::Write);
        }
        if folded.lines > 0 && linger.is_none() {
            linger = Some(Box::pin(tokio::time::sleep(most)));
        }
        tokio::select! {
            biased;
            Some(request) = requests.recv() => return Ok(Next::Serve(request)),
            () = stop.cancelled() => return Ok(Next::Stop),
            () = timeline.wanted.notified() => {
                while take(timeline, folded).await? {}
                // Nothing is to be had by waiting for what is there already.
                if folded.lines > 0 {
                    return Ok(Next::Write);
                }
            }
            () = timeline.unfolded.notified() => {}
            () = async { if let Some(linger) = &mut linger { linger.await } }, if linger.is_some() => {
                while take(timeline, folded).await? {}
                return Ok(Next::Write);
            }
        }
    }
}

/// Folds what comes while something is written.
async fn while_writing(
    timeline: &Timeline,
    next: &mut Folded,
    written: impl Future<Output = Result<(), ReadError>>,
) -> Result<(), ReadError> {
    let mut written = std::pin::pin!(written);
    let mut may_fold = true;
    loop {
        tokio::select! {
            biased;
            // To its end, whatever happens meanwhile: a transaction that is left in the middle stays open.
            written = &mut written => return written,
            () = timeline.unfolded.notified(), if may_fold => match take(timeline, next).await {
                // Beyond that the writer at the door waits.
                Ok(_) => may_fold = !is_plenty(next),
                Err(error) => {
                    tracing::error!(%error, "the timeline could not be read for the read models");
                    may_fold = false;
                }
            },
        }
    }
}

/// Folds lines that came after all that were folded before; whether there may be more.
async fn take(timeline: &Timeline, folded: &mut Folded) -> Result<bool, ReadError> {
    let lines = timeline.read_after(timeline.folded(), PIECE).await?;
    let Some(last) = lines.last() else { return Ok(false) };
    folded.take(&lines);
    timeline.set_folded(last.position);
    Ok(lines.len() == PIECE as usize)
}

async fn write(timeline: &Timeline, projection: &mut dyn Projection, folded: &Folded) -> Result<(), ReadError> {
    projection.write(folded).await?;
    if let Some((position, _)) = folded.last {
        timeline.set_applied(position, folded.bytes);
    }
    Ok(())
}

fn is_plenty(folded: &Folded) -> bool {
    folded.lines >= PLENTY || folded.bytes >= PLENTY_BYTES
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
