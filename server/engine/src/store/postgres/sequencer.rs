//! The sequencer: gives what was committed its position in the timeline. One node at a time, by a duty with a token: whoever was
//! paused past the end of it changes nothing on waking.
//!
//! Which of two transactions is first nobody can say while both are under way, so no position is given then. What is not
//! sequenced is still in the log; a number is never skipped.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::PostgresStore;
use super::link::in_time;
use super::open::hash;
use super::project::ViewWriter;
use crate::error::StoreError;
use crate::timeline::{self, Position, chain};

/// So many lines at once.
const PIECE: i64 = 4_096;

/// How long to wait for more when there was nothing; committing at this node ends it.
const IDLE: Duration = Duration::from_millis(10);

/// How long lines may wait for company before the read models are written.
const LINGER: Duration = Duration::from_millis(100);

const HEAD: &str = "-- head\nSELECT position, hash FROM job_leases.head WHERE id = 1";
const READ: &str = "-- read log\nSELECT id, body FROM job_leases.log ORDER BY id LIMIT $1";
/// Compares the duty's token under its lock, and where the timeline ends.
const MOVE: &str = "-- move to timeline\nWITH duty AS (SELECT 1 FROM job_leases.duties \
     WHERE name = 'sequencer' AND token = $1 FOR SHARE), \
     moved AS (UPDATE job_leases.head SET position = $2, hash = $3 \
     WHERE id = 1 AND position = $4 AND EXISTS (SELECT 1 FROM duty) RETURNING 1), \
     gone AS (DELETE FROM job_leases.log AS l USING unnest($5::bigint[]) AS d (id) \
     WHERE l.id = d.id AND EXISTS (SELECT 1 FROM moved) RETURNING l.id, l.body) \
     INSERT INTO job_leases.timeline (position, hash, body) SELECT d.position, d.hash, g.body FROM gone AS g \
     JOIN unnest($5::bigint[], $6::bigint[], $7::bytea[]) AS d (id, position, hash) ON d.id = g.id";

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
    loop {
        match step(store, token).await {
            Ok(Some(moved)) => {
                store.moved.notify_one();
                if moved == PIECE {
                    continue;
                }
            }
            Ok(None) => {
                tracing::info!("the timeline is sequenced by another node now");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "the timeline could not be sequenced; it is tried again");
                tokio::time::sleep(IDLE * 10).await;
            }
        }
        tokio::select! {
            () = store.logged.notified() => {}
            () = tokio::time::sleep(IDLE) => {}
        }
    }
}

/// Moves the lines that are there; how many, or none if the duty is another's.
async fn step(store: &PostgresStore, token: i64) -> Result<Option<i64>, StoreError> {
    let via = &store.via;
    let mut tx = via.begin().await?;
    let found: Vec<(i64, String)> = in_time(via.query_as(READ).bind(PIECE).fetch_all(&mut *tx)).await?;
    if found.is_empty() {
        tx.rollback().await;
        return Ok(Some(0));
    }
    let (last, last_hash): (i64, Vec<u8>) = in_time(via.query_as(HEAD).fetch_one(&mut *tx)).await?;
    let (mut position, mut end) = (Position(last), hash(&last_hash)?);
    let mut ids = Vec::with_capacity(found.len());
    let mut positions = Vec::with_capacity(found.len());
    let mut hashes = Vec::with_capacity(found.len());
    for (id, body) in &found {
        position = position.next();
        end = chain(&end, position, body);
        ids.push(*id);
        positions.push(position.0);
        hashes.push(end.to_vec());
    }
    let count = ids.len() as u64;
    let query = via.query(MOVE).bind(token).bind(position.0).bind(end.as_slice()).bind(last);
    let moved = in_time(query.bind(ids).bind(positions).bind(hashes).execute(&mut *tx)).await?.rows_affected();
    if moved != count {
        tx.rollback().await;
        return Ok(None);
    }
    tx.commit().await?;
    Ok(Some(i64::try_from(count).unwrap_or(PIECE)))
}

/// Keeps the read models behind the timeline while this node sequences it.
async fn project(store: Arc<PostgresStore>, over: CancellationToken) {
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
    store.timeline.fold_from(applied);
    let (_kept, requests) = tokio::sync::mpsc::channel(1);
    let projection = Box::new(ViewWriter::new(store.via.clone()));
    let timeline = Arc::clone(&store.timeline);
    timeline::follow(timeline, projection, |_| {}, requests, LINGER, over).await;
}
