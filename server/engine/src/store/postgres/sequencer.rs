//! The sequencer: gives what was committed its position in the timeline. One node at a time, by a duty with a token: whoever was
//! paused past the end of it changes nothing on waking.
//!
//! Which of two transactions is first nobody can say while both are under way, so no position is given then. What is not
//! sequenced is still in the log; a number is never skipped.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgBindIterExt as _;
use tokio_util::sync::CancellationToken;

use super::link::{Link, in_time};
use super::open::hash;
use super::project::ViewWriter;
use super::{PostgresStore, follow, log};
use crate::error::StoreError;
use crate::timeline::{self, Hash, Position, chain};

/// So many rows of the log at once.
const PIECE: i64 = 256;

/// How long to wait for more when there was nothing; committing at this node ends it.
const IDLE: Duration = Duration::from_millis(10);

/// How long lines may wait for company before they are moved, unless somebody waits for a list: to move them costs about the same for
/// one and for many, and streams are not held up so that anybody would notice.
const GATHER: Duration = Duration::from_millis(20);

/// How long lines may wait for company before the read models are written.
const LINGER: Duration = Duration::from_millis(100);

const HEAD: &str = "-- head\nSELECT position, hash FROM job_leases.head WHERE id = 1";
const READ: &str = "-- read log\nSELECT id, body FROM job_leases.log ORDER BY id LIMIT $1";
/// Compares the duty's token under its lock, and where the timeline ends.
const MOVE: &str = "-- move to timeline\nWITH duty AS (SELECT 1 FROM job_leases.duties \
     WHERE name = 'sequencer' AND token = $1 FOR SHARE), \
     moved AS (UPDATE job_leases.head SET position = $2, hash = $3 \
     WHERE id = 1 AND position = $4 AND EXISTS (SELECT 1 FROM duty) RETURNING 1), \
     gone AS (DELETE FROM job_leases.log WHERE id = ANY($5) AND EXISTS (SELECT 1 FROM moved) RETURNING 1), \
     added AS (INSERT INTO job_leases.timeline (position, hash, body) \
     SELECT d.position, d.hash, d.body FROM unnest($6::bigint[], $7::bytea[], $8::text[]) AS d (position, hash, body) \
     WHERE EXISTS (SELECT 1 FROM moved) RETURNING 1) \
     SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM added)";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![HEAD, READ, MOVE]
}

/// Does its duty whenever it is this node's, until told to stop.
pub(super) async fn run(store: Arc<PostgresStore>) {
    let mut terms = store.term.subscribe();
    loop {
        let term = *terms.borrow_and_update();
        let Some(token) = term else {
            tokio::select! {
                () = store.stop.cancelled() => return,
                _ = terms.changed() => continue,
            }
        };
        let over = store.stop.child_token();
        let projector = tokio::spawn(project(Arc::clone(&store), over.clone()));
        tokio::select! {
            () = sequence(&store, token) => {}
            () = store.stop.cancelled() => {}
            _ = terms.changed() => {}
        }
        over.cancel();
        // It ends by itself; that it panicked is no reason to stop.
        let _ = projector.await;
        if store.stop.is_cancelled() {
            return;
        }
    }
}

/// Moves what is there until the duty is another's.
async fn sequence(store: &PostgresStore, token: i64) {
    let mut end = None;
    loop {
        let pause = match step(store, token, &mut end).await {
            Ok(Step::Moved) => Some(GATHER),
            Ok(Step::Nothing) => None,
            Ok(Step::Elsewhere) => {
                tracing::info!("the timeline is sequenced by another node now");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "the timeline could not be sequenced; it is tried again");
                end = None;
                tokio::time::sleep(IDLE * 10).await;
                continue;
            }
        };
        tokio::select! {
            () = store.wanted.notified() => {}
            () = store.logged.notified(), if pause.is_none() => {}
            () = tokio::time::sleep(pause.unwrap_or(IDLE)) => {}
        }
    }
}

enum Step {
    /// Lines were moved; there may be more.
    Moved,
    /// There were none.
    Nothing,
    /// The duty is another node's.
    Elsewhere,
}

/// Moves the lines that are there. Where the timeline ends is known from the step before, or read; whether it still does is
/// compared when they are moved.
async fn step(store: &PostgresStore, token: i64, end: &mut Option<(Position, Hash)>) -> Result<Step, StoreError> {
    let via = &store.via;
    let mut look = Link::for_one(via).await?;
    let found: Vec<(i64, String)> = in_time(via.query_as(READ).bind(PIECE).fetch_all(&mut *look)).await?;
    look.commit().await?;
    if found.is_empty() {
        return Ok(Step::Nothing);
    }
    let mut tx = via.begin().await?;
    let (last, last_hash) = match *end {
        Some(end) => end,
        None => {
            let (last, last_hash): (i64, Vec<u8>) = in_time(via.query_as(HEAD).fetch_one(&mut *tx)).await?;
            (Position(last), hash(&last_hash)?)
        }
    };
    let (mut position, mut chained) = (last, last_hash);
    let ids: Vec<i64> = found.iter().map(|(id, _)| *id).collect();
    let (mut positions, mut hashes, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    for body in found.iter().flat_map(|(_, row)| log::lines(row)) {
        position = position.next();
        chained = chain(&chained, position, body);
        positions.push(position.0);
        hashes.push(chained);
        bodies.push(body);
    }
    let expected = (ids.len() as i64, bodies.len() as i64);
    let query = via.query_as(MOVE).bind(token).bind(position.0).bind(chained.as_slice()).bind(last.0).bind(&ids);
    let query = query.bind(positions).bind(hashes.iter().map(Hash::as_slice).bind_iter()).bind(&bodies);
    let moved: (i64, i64) = in_time(query.fetch_one(&mut *tx)).await?;
    if moved != expected {
        tx.rollback().await;
        return Ok(Step::Elsewhere);
    }
    // Until it is known that it was committed nothing is.
    *end = None;
    tx.commit().await?;
    *end = Some((position, chained));
    if let Err(error) = follow::moved(store, last, &hashes, &bodies).await {
        // They are read from the database instead.
        tracing::debug!(%error, "lines that were moved here could not be taken in");
        store.moved.notify_one();
    }
    Ok(Step::Moved)
}

/// Keeps the read models behind the timeline while this node sequences it.
async fn project(store: Arc<PostgresStore>, over: CancellationToken) {
    while !over.is_cancelled() {
        let applied = loop {
            match store.applied().await {
                Ok(applied) => break applied,
                Err(error) => {
                    tracing::warn!(%error, "how far the read models have come could not be read");
                    tokio::select! {
                        () = over.cancelled() => return,
                        () = tokio::time::sleep(IDLE * 50) => {}
                    }
                }
            }
        };
        // Whoever had the duty before may still write what it had folded: then once more from there.
        store.timeline.fold_from(applied);
        let (_kept, requests) = tokio::sync::mpsc::channel(1);
        let projection = Box::new(ViewWriter::new(store.via.clone()));
        let timeline = Arc::clone(&store.timeline);
        timeline::follow(timeline, projection, |_| {}, requests, LINGER, over.clone()).await;
    }
}
