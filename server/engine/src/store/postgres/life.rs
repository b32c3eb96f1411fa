//! A node's signs of life, what depends on them, and what others' silence asks of it.
//!
//! Once a second each node shows that it lives, which is also the service's mark; takes or keeps the duties that one node at a
//! time has; and looks after what nodes that have died left behind: waiters to be passed over, grants that nobody was told.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::lease::Outage;
use domain::{Actor, Timestamp};
use sqlx::PgConnection;

use super::link::{ALONE, in_time};
use super::time::{self, Told, told_columns};
use super::tx::{OUTAGE_AFTER, UNSEEN};
use super::via::Via;
use super::{PostgresStore, open, queue};
use crate::error::StoreError;
use crate::timeline::{Happening, Other, Record};

/// How often a node shows that it lives.
const BEAT: Duration = Duration::from_secs(1);

/// How soon it tries again if it could not.
const AGAIN: Duration = Duration::from_millis(100);

/// How often to look for a sign of life of others.
const LOOK: Duration = Duration::from_millis(10);

/// A duty is anybody's when it was not kept for so long, in microseconds.
const DUTY: i64 = 3_000_000;

/// The numbers of nodes that were not seen for so long are forgotten, in microseconds.
const FORGET: i64 = 60_000_000;

/// All this goes by server time: the database's own clock may have been set back, or be another's.
const ENTER: &str = "-- enter node\nINSERT INTO job_leases.nodes (node, seen_at, version, schema) \
     SELECT $1, greatest($2, s.lived_at), $3, $4 FROM job_leases.service AS s WHERE s.id = 1";
const NUMBER: &str = "-- number node\nSELECT nextval('job_leases.node')";
/// And which programs may use the database now.
const SEEN: &str = concat!(
    "-- when seen\nSELECT n.seen_at, c.oldest, s.lived_at, ",
    told_columns!(),
    " FROM job_leases.service AS s CROSS JOIN job_leases.compatibility AS c \
     LEFT JOIN job_leases.nodes AS n ON n.node = $1 WHERE s.id = 1 AND c.id = 1"
);
const SHOW: &str = "-- show life\nUPDATE job_leases.nodes SET seen_at = greatest(seen_at, $2) WHERE node = $1";
const FORGET_NODES: &str = "-- forget nodes\nDELETE FROM job_leases.nodes WHERE seen_at < $1";
const LEAVE: &str = "-- leave node\nDELETE FROM job_leases.nodes WHERE node = $1";
/// Not if that would hide an outage.
const MARK: &str = "-- mark\nUPDATE job_leases.service SET lived_at = greatest(lived_at, $1) \
     WHERE id = 1 AND lived_at >= $1::bigint - $2::bigint";
const READ_MARK: &str =
    concat!("-- read mark\nSELECT s.lived_at, ", told_columns!(), " FROM job_leases.service AS s WHERE s.id = 1");
const INSERT_OUTAGE: &str = "-- record outage\nINSERT INTO job_leases.outages (began, ended, grace) VALUES ($1, $2, $3) \
     RETURNING id";
const SET_MARK: &str = "-- mark after outage\nUPDATE job_leases.service SET lived_at = $1, outages = $2 WHERE id = 1";
const LOG: &str = "-- log\nINSERT INTO job_leases.log (body) VALUES ($1)";
const LOAD_OUTAGES: &str =
    "-- load outages\nSELECT id, began, ended, grace FROM job_leases.outages WHERE id > $1 ORDER BY id";
/// Whoever kept it goes on with the same token; whoever takes it over has a greater one.
const TAKE_DUTY: &str = "-- take duty\nUPDATE job_leases.duties SET node = $2, held_until = $4, \
     token = CASE WHEN node = $2 AND held_until > $3 THEN token ELSE token + 1 END \
     WHERE name = $1 AND (node = $2 OR held_until <= $3) RETURNING token";
const DROP_DUTIES: &str = "-- drop duties\nUPDATE job_leases.duties SET held_until = 0 WHERE node = $1";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![
        ALONE,
        ENTER,
        NUMBER,
        SEEN,
        SHOW,
        FORGET_NODES,
        LEAVE,
        MARK,
        READ_MARK,
        INSERT_OUTAGE,
        SET_MARK,
        LOG,
        LOAD_OUTAGES,
        TAKE_DUTY,
        DROP_DUTIES,
    ]
}

/// Enters a new node; its number.
pub(super) async fn enter(via: &Via, db: &mut PgConnection, now: Timestamp) -> Result<i64, StoreError> {
    let node: i64 = in_time(via.query_scalar(NUMBER).fetch_one(&mut *db)).await?;
    enter_as(via, db, node, now).await?;
    Ok(node)
}

async fn enter_as(via: &Via, db: &mut PgConnection, node: i64, now: Timestamp) -> Result<(), StoreError> {
    let enter = via.query(ENTER).bind(node).bind(now.as_micros()).bind(env!("CARGO_PKG_VERSION")).bind(open::known());
    in_time(enter.execute(db)).await?;
    Ok(())
}

/// Comes to the time of the nodes that live. While the database's clock is behind what it has told, they go by clocks of their
/// own, of which the mark tells once a second: without waiting for it this node would be behind them by up to that much, and they
/// would end what it grants too early.
pub(super) async fn agree(store: &PostgresStore) -> Result<(), StoreError> {
    let (first, told) = read_mark(store).await?;
    if told >= first {
        return Ok(());
    }
    let next = async {
        while read_mark(store).await?.0 == first {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    };
    // Nobody else may live.
    tokio::time::timeout(BEAT + BEAT / 2, next).await.unwrap_or(Ok(()))
}

/// The mark, which server time is no earlier than from now on, and what the database tells of the time.
async fn read_mark(store: &PostgresStore) -> Result<(Timestamp, Timestamp), StoreError> {
    let via = &store.via;
    let mut tx = via.begin().await?;
    let (lived_at, told) = time::read(via, &mut tx, READ_MARK).await?;
    tx.commit().await?;
    if told.is_good {
        store.clock().observe(told.time());
    }
    store.clock().at_least(lived_at);
    Ok((lived_at, told.time()))
}

/// Lives until told to stop.
pub(super) async fn live(store: Arc<PostgresStore>) {
    let mut was_silent = false;
    let mut pause = Duration::ZERO;
    loop {
        tokio::select! {
            () = store.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        match beat(&store).await {
            Ok(()) => {
                was_silent = false;
                pause = BEAT;
            }
            Err(error) => {
                if was_silent {
                    tracing::debug!(%error, "no sign of life could be given");
                } else {
                    tracing::error!(%error, "no sign of life could be given");
                }
                was_silent = true;
                pause = AGAIN;
            }
        }
    }
}

async fn beat(store: &PostgresStore) -> Result<(), StoreError> {
    let via = &store.via;
    let mut tx = via.begin().await?;
    let (seen, lived_at, told) = loop {
        let (seen, oldest, lived_at, told) = seen(store, &mut tx).await?;
        if let Some(reason) = open::outdated(oldest) {
            tx.rollback().await;
            store.give_up(&reason);
            return Ok(());
        }
        if told.is_good {
            break (seen, lived_at, told);
        }
        // Whoever lived through it says first by how much the clock of another server is off.
        tx.rollback().await;
        store.record_outage().await?;
        tx = via.begin().await?;
    };
    store.clock().observe(told.time());
    let now = store.clock().at_least(lived_at);
    match seen {
        Some(seen_at) => {
            if now.as_micros() - seen_at > UNSEEN {
                store.abandon();
            }
            in_time(via.query(SHOW).bind(store.node()).bind(now.as_micros()).execute(&mut *tx)).await?;
        }
        None => {
            // Others have forgotten this node, and with it all who waited here.
            store.abandon();
            enter_as(via, &mut tx, store.node(), now).await?;
        }
    }
    let now = store.clock().now();
    let mark = via.query(MARK).bind(now.as_micros()).bind(OUTAGE_AFTER).execute(&mut *tx);
    let is_marked = in_time(mark).await?.rows_affected() == 1;
    // Before anything that may be held up by others.
    tx.commit().await?;
    if !is_marked {
        store.record_outage().await?;
    }

    let mut tx = via.begin().await?;
    let sequencer = take_duty(via, &mut tx, "sequencer", store.node(), now).await?;
    let upkeep = take_duty(via, &mut tx, "upkeep", store.node(), now).await?;
    tx.commit().await?;
    store.term.send_if_modified(|term| std::mem::replace(term, sequencer) != sequencer);
    let until = if upkeep.is_some() { now.as_micros() + DUTY } else { 0 };
    store.on_duty_until.store(until, Ordering::Release);

    let mut tx = via.begin().await?;
    in_time(via.query(FORGET_NODES).bind(now.as_micros() - FORGET).execute(&mut *tx)).await?;
    let (keys, untold) = queue::forsaken(via, &mut tx, now.as_micros() - UNSEEN).await?;
    let elsewhere = queue::count(via, &mut tx, store.node()).await?;
    tx.commit().await?;

    store.waiting_elsewhere.store(elsewhere.unsigned_abs(), Ordering::Relaxed);
    for (waking, _) in untold.into_iter().filter(|(waking, _)| !waking.is_kept) {
        if let Ok(reply) = &waking.result {
            for reading in reply.leases() {
                (store.hooks.undelivered)(reading.lease_key.clone(), reading.lease.id());
            }
        }
    }
    for key in keys {
        (store.hooks.settle)(key);
    }
    Ok(())
}

/// When this node was last seen, if it is still known; the oldest schema whose programs may use the database; the mark; and the time.
async fn seen(store: &PostgresStore, db: &mut PgConnection) -> Result<(Option<i64>, i64, Timestamp, Told), StoreError> {
    let seen = store.via.query_as(SEEN).bind(store.node()).fetch_one(db);
    type Row = (Option<i64>, i64, i64, i64, i64, i64, bool);
    let (seen_at, oldest, lived_at, clock, ahead, since, is_good): Row = in_time(seen).await?;
    Ok((seen_at, oldest, Timestamp::from_micros(lived_at), Told::new((clock, ahead, since, is_good))))
}

/// The token of a duty, if it is this node's.
async fn take_duty(
    via: &Via,
    db: &mut PgConnection,
    name: &str,
    node: i64,
    now: Timestamp,
) -> Result<Option<i64>, StoreError> {
    let take = via.query_scalar(TAKE_DUTY).bind(name).bind(node).bind(now.as_micros()).bind(now.as_micros() + DUTY);
    in_time(take.fetch_optional(db)).await
}

/// Lets go of all that this node had.
pub(super) async fn leave(via: &Via, node: i64) -> Result<(), StoreError> {
    let mut tx = via.begin().await?;
    in_time(via.query(DROP_DUTIES).bind(node).execute(&mut *tx)).await?;
    in_time(via.query(LEAVE).bind(node).execute(&mut *tx)).await?;
    tx.commit().await?;
    Ok(())
}

/// Records an outage, unless another node has done so by now; and before that, by how much another server's clock is off.
pub(super) async fn record_outage(store: &PostgresStore) -> Result<(), StoreError> {
    let via = &store.via;
    let mut tx = via.begin().await?;
    in_time(via.query(ALONE).execute(&mut *tx)).await?;
    let (from, is_set) = time::lock(via, &mut tx, store.clock()).await?;
    let to = store.clock().at_least(from);
    if to.since(from).as_micros() <= OUTAGE_AFTER {
        if is_set {
            return tx.commit().await;
        }
        tx.rollback().await;
        return Ok(());
    }
    let outage = Outage { from, to, grace_us: store.outage_grace };
    let insert = via.query_scalar(INSERT_OUTAGE).bind(from.as_micros()).bind(to.as_micros());
    let id: i64 = in_time(insert.bind(outage.grace_us.as_micros()).fetch_one(&mut *tx)).await?;
    in_time(via.query(SET_MARK).bind(to.as_micros()).bind(id).execute(&mut *tx)).await?;
    let record = Record::Other(Other {
        at: to,
        happening: Happening::Outage(outage),
        actor: Arc::new(Actor::system("clock")),
        request_id: None,
    });
    let body = serde_json::to_string(&record).map_err(StoreError::corrupt)?;
    in_time(via.query(LOG).bind(body).execute(&mut *tx)).await?;
    tx.commit().await?;
    tracing::warn!(%from, %to, "the service was away; leases that were alive are extended");
    store.metrics.outages.inc();
    store.logged.notify_one();
    Ok(())
}

/// The outages after this one.
pub(super) async fn outages_after(
    via: &Via,
    db: &mut PgConnection,
    after: i64,
) -> Result<Vec<(i64, Outage)>, StoreError> {
    let rows: Vec<(i64, i64, i64, i64)> = in_time(via.query_as(LOAD_OUTAGES).bind(after).fetch_all(db)).await?;
    let outage = |(id, from, to, grace)| {
        let (from, to) = (Timestamp::from_micros(from), Timestamp::from_micros(to));
        (id, Outage { from, to, grace_us: domain::Span::from_micros(grace) })
    };
    Ok(rows.into_iter().map(outage).collect())
}
