//! How a node learns what others did: it follows the timeline, and is told when one of its waiters is served elsewhere.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use domain::lease::WaiterId;
use futures::future::BoxFuture;
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgListener, PgPool};

use super::link::{Failed, Link, in_time};
use super::open::hash;
use super::time::{Told, spent, told_columns};
use super::via::Via;
use super::{PostgresStore, queue};
use crate::error::StoreError;
use crate::timeline::{Happening, Hash, Line, Lines, Position, Record};

/// Lines that are read at once.
const PIECE: u32 = 4_096;

/// How often a node looks for lines that others wrote, and how often when there were none for a while.
const OFTEN: Duration = Duration::from_millis(10);
const SELDOM: Duration = Duration::from_millis(50);
/// So many times in vain are a while.
const WHILE: u32 = 100;

/// How often a node looks whether its waiters were served elsewhere, hint or not.
const LISTEN: Duration = Duration::from_millis(20);

/// So many times it does not look while nobody waits.
const LISTEN_ANYWAY: u32 = 25;

/// Where hints are given. A hint may be lost: it only saves waiting.
const CHANNEL: &str = "job_leases";

const ENDS: &str = "-- ends\nSELECT h.position, p.applied FROM job_leases.head AS h, job_leases_views.progress AS p \
     WHERE h.id = 1 AND p.id = 1";
/// The same, and the time.
const ENDS_AND_TIME: &str = concat!(
    "-- ends and time\nSELECT h.position, p.applied, ",
    told_columns!(),
    ", ",
    spent!(),
    " FROM job_leases.head AS h, job_leases_views.progress AS p, job_leases.service AS s \
     WHERE h.id = 1 AND p.id = 1 AND s.id = 1"
);
const READ_LINES: &str = "-- read lines\nSELECT position, hash, body, (SELECT base_position FROM job_leases.head WHERE id = 1) \
     FROM job_leases.timeline WHERE position > $1 ORDER BY position LIMIT $2";
const READ_BACK: &str = "-- read lines backwards\nSELECT position, hash, body FROM job_leases.timeline WHERE position < $1 \
     ORDER BY position DESC LIMIT $2";
const READ_BASE: &str = "-- read base\nSELECT base_position FROM job_leases.head WHERE id = 1";
/// That of a line which is held, or of the last that was taken away.
const HASH_AT: &str = "-- hash at\nSELECT coalesce((SELECT hash FROM job_leases.timeline WHERE position = $1), \
     (SELECT base_hash FROM job_leases.head WHERE id = 1 AND base_position = $1))";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![ENDS, ENDS_AND_TIME, READ_LINES, READ_BACK, READ_BASE, HASH_AT]
}

/// Where the timeline ends, and how far the read models have come.
pub(super) async fn ends(via: &Via, mut tx: Link) -> Result<(Position, Position), StoreError> {
    let (head, applied): (i64, i64) = in_time(via.query_as(ENDS).fetch_one(&mut *tx)).await?;
    tx.commit().await?;
    Ok((Position(head), Position(applied)))
}

/// Follows the timeline until told to stop.
pub(super) async fn lines(store: Arc<PostgresStore>) {
    let mut in_vain = 0;
    loop {
        // Whoever moves lines has taken them in already.
        let sequences = store.term.borrow().is_some();
        let pause = if in_vain < WHILE && !sequences { OFTEN } else { SELDOM };
        tokio::select! {
            () = store.stop.cancelled() => return,
            () = store.moved.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
        match catch_up(&store).await {
            Ok(0) => in_vain = u32::min(in_vain + 1, WHILE),
            Ok(_) => in_vain = 0,
            Err(error) => {
                tracing::debug!(%error, "the timeline could not be followed; it is tried again");
                in_vain = WHILE;
            }
        }
    }
}

/// Takes in the lines that are new; how many.
async fn catch_up(store: &PostgresStore) -> Result<usize, StoreError> {
    let _one = store.following.lock().await;
    let via = &store.via;
    let (head, applied) = look(store).await?;
    let mut count = 0;
    while store.timeline.head() < head {
        let (lines, _) = read(via, store.timeline.head(), PIECE).await?;
        if lines.is_empty() {
            // Retention was quicker than this node: it goes on from the end.
            store.timeline.reset(head);
            break;
        }
        count += lines.len();
        take_in(store, lines).await?;
    }
    store.timeline.found_applied(applied);
    Ok(count)
}

/// Where the timeline ends, and how far the read models have come; from the same question it is known how late it is.
async fn look(store: &PostgresStore) -> Result<(Position, Position), StoreError> {
    let via = &store.via;
    let mut link = Link::for_one(via).await?;
    let asked = store.clock().elapsed();
    type Row = (i64, i64, i64, i64, i64, bool, i64);
    let row = via.query_as(ENDS_AND_TIME).fetch_one(&mut *link);
    let (head, applied, by_clock, ahead, since, is_good, spent): Row = in_time(row).await?;
    let told = Told::new((by_clock, ahead, since, is_good));
    store.was_told(told, asked, spent);
    link.commit().await?;
    Ok((Position(head), Position(applied)))
}

/// Takes in lines that this node has just moved behind this position, without reading them once more; unless it has not come to
/// what was before them.
pub(super) async fn moved(
    store: &PostgresStore,
    mut position: Position,
    hashes: &[Hash],
    bodies: &[&str],
) -> Result<(), StoreError> {
    let _one = store.following.lock().await;
    if store.timeline.head() != position {
        store.moved.notify_one();
        return Ok(());
    }
    let mut lines = Vec::with_capacity(bodies.len());
    for (hash, body) in hashes.iter().zip(bodies) {
        position = position.next();
        lines.push(line(position, *hash, Arc::from(*body))?);
    }
    take_in(store, lines).await
}

async fn take_in(store: &PostgresStore, lines: Vec<Line>) -> Result<(), StoreError> {
    let mut access = false;
    for line in &lines {
        if let Record::Other(other) = &*line.record {
            match &other.happening {
                Happening::Retained { up_to } => store.timeline.retain(*up_to),
                Happening::Outage(_) | Happening::Collisions { .. } => {}
                _ => access = true,
            }
        }
    }
    if access {
        store.learn_access().await?;
    }
    store.timeline.found(&lines);
    let records: Vec<Arc<Record>> = lines.into_iter().map(|line| line.record).collect();
    (store.hooks.happened)(&records);
    Ok(())
}

/// Tells waiters of this node what others have left for them, until told to stop.
pub(super) async fn wakings(store: Arc<PostgresStore>, pool: Option<PgPool>) {
    let mut ear = None;
    let mut told = HashSet::new();
    let mut passed = 0;
    loop {
        if ear.is_none()
            && let Some(pool) = &pool
        {
            ear = listen(pool).await.ok();
        }
        let is_hinted = tokio::select! {
            () = store.stop.cancelled() => return,
            heard = hear(&mut ear, store.node()) => {
                if !heard {
                    ear = None;
                }
                heard
            }
            () = tokio::time::sleep(LISTEN) => {
                passed += 1;
                // Somebody who has hung up may be granted a key before others know of it: then it is to be ended.
                if store.metrics.waiting.get() == 0 && passed < LISTEN_ANYWAY {
                    continue;
                }
                passed = 0;
                false
            }
        };
        if let Err(error) = tell(&store, is_hinted, &mut told).await {
            tracing::debug!(%error, "what waiters are to be told could not be read; it is tried again");
        }
    }
}

async fn listen(pool: &PgPool) -> Result<PgListener, sqlx::Error> {
    let mut ear = PgListener::connect_with(pool).await?;
    ear.listen(CHANNEL).await?;
    Ok(ear)
}

/// Waits for a hint that concerns this node; false if none can be heard any more.
async fn hear(ear: &mut Option<PgListener>, node: i64) -> bool {
    let Some(ear) = ear else { return std::future::pending().await };
    loop {
        match ear.recv().await {
            Ok(hint) if hint.payload().parse() == Ok(node) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

/// Tells what there is; what may have to be taken away once more is noted in `told`, since it must not be told once more.
async fn tell(store: &PostgresStore, is_hinted: bool, told: &mut HashSet<WaiterId>) -> Result<(), StoreError> {
    if !is_hinted && !queue::are_told(&store.via, store.node()).await? {
        return Ok(());
    }
    let mut tx = store.via.begin().await?;
    let wakings = queue::take(&store.via, &mut tx, store.node()).await?;
    if wakings.is_empty() {
        tx.rollback().await;
        return Ok(());
    }
    let taken = tx.try_commit().await;
    let is_unknown = match &taken {
        Ok(()) => false,
        Err(Failed::Unknown(_)) => true,
        Err(Failed::Refused(_)) => return Ok(()),
    };
    for (waking, told_at) in wakings {
        let is_new = if is_unknown { told.insert(waking.waiter) } else { !told.remove(&waking.waiter) };
        if is_new {
            (store.hooks.wake)(waking, told_at);
        }
    }
    Ok(())
}

/// Gives nodes a hint, in a transaction of its own: all that give hints commit one after another. It need not outlive anything, so
/// nothing is flushed for it, and it is all said at once.
pub(super) async fn hint(via: &Via, nodes: &[i64]) -> Result<(), StoreError> {
    let notify = nodes.iter().map(|node| format!("SELECT pg_notify('{CHANNEL}', '{node}'); "));
    let hint = format!("BEGIN; SET LOCAL synchronous_commit = off; {}COMMIT", notify.collect::<String>());
    Link::all_at_once(via, AssertSqlSafe(hint)).await
}

fn line(position: Position, hash: Hash, body: Arc<str>) -> Result<Line, StoreError> {
    let record = serde_json::from_str(&body)
        .map_err(|error| StoreError::corrupt(format_args!("line {} of the timeline: {error}", position.0)))?;
    Ok(Line { position, hash, body, record: Arc::new(record) })
}

fn stored_line(position: i64, stored: &[u8], body: String) -> Result<Line, StoreError> {
    line(Position(position), hash(stored)?, Arc::from(body))
}

pub(super) async fn read(via: &Via, after: Position, limit: u32) -> Result<(Vec<Line>, Position), StoreError> {
    let mut tx = via.begin().await?;
    let rows = via.query_as(READ_LINES).bind(after.0).bind(i64::from(limit)).fetch_all(&mut *tx);
    let rows: Vec<(i64, Vec<u8>, String, i64)> = in_time(rows).await?;
    let base = match rows.first() {
        Some((_, _, _, base)) => *base,
        None => in_time(via.query_scalar(READ_BASE).fetch_one(&mut *tx)).await?,
    };
    tx.commit().await?;
    let lines = rows.into_iter().map(|(position, hash, body, _)| stored_line(position, &hash, body));
    Ok((lines.collect::<Result<_, StoreError>>()?, Position(base)))
}

async fn read_back(via: &Via, before: Position, limit: u32) -> Result<Vec<Line>, StoreError> {
    let mut tx = via.begin().await?;
    let rows = via.query_as(READ_BACK).bind(before.0).bind(i64::from(limit)).fetch_all(&mut *tx);
    let rows: Vec<(i64, Vec<u8>, String)> = in_time(rows).await?;
    tx.commit().await?;
    rows.into_iter().map(|(position, hash, body)| stored_line(position, &hash, body)).collect()
}

async fn hash_at(via: &Via, position: Position) -> Result<Option<Hash>, StoreError> {
    let mut tx = via.begin().await?;
    let found: Option<Vec<u8>> = in_time(via.query_scalar(HASH_AT).bind(position.0).fetch_one(&mut *tx)).await?;
    tx.commit().await?;
    found.as_deref().map(hash).transpose()
}

/// Stored lines. Each reading is a task of its own, which whoever asks cannot cancel.
pub(super) struct StoredLines(pub(super) Via);

/// Carries out something that must not be cancelled half way.
pub(super) async fn whole<R: Send + 'static>(
    work: impl Future<Output = Result<R, StoreError>> + Send + 'static,
) -> Result<R, StoreError> {
    tokio::spawn(work).await.map_err(|_| StoreError::Closed)?
}

impl Lines for StoredLines {
    fn read(&self, after: Position, limit: u32) -> BoxFuture<'_, Result<(Vec<Line>, Position), StoreError>> {
        let via = self.0.clone();
        Box::pin(whole(async move { read(&via, after, limit).await }))
    }

    fn read_back(&self, before: Position, limit: u32) -> BoxFuture<'_, Result<Vec<Line>, StoreError>> {
        let via = self.0.clone();
        Box::pin(whole(async move { read_back(&via, before, limit).await }))
    }

    fn hash(&self, position: Position) -> BoxFuture<'_, Result<Option<Hash>, StoreError>> {
        let via = self.0.clone();
        Box::pin(whole(async move { hash_at(&via, position).await }))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        // The pool is closed with the store.
        Box::pin(async {})
    }
}
