//! One write: rows of keys locked, time and tokens read after that, and all that changes in one transaction.

pub(super) mod optimistic;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use domain::lease::{FencingToken, KeyState, Lease, Outage, Room};
use domain::{LeaseKey, Timestamp};

use self::optimistic::{Basis, Guess, Known, Tokens};
use super::link::{Link, in_time};
use super::queue::{self, Asks, Waiting, queue_changes};
use super::time::{Told, spent};
use super::{PostgresStore, access, former, log, retention};
use crate::engine::idempotency::{IdempotencyId, Remembered};
use crate::error::StoreError;
use crate::store::{Batch, CommitError, Locked, Needs, Recalled, Tx};
use crate::timeline::Record;

/// Waits for keys, in the order of their names, so that two who wait never wait for each other.
const WAIT: &str =
    "-- wait for keys\nSELECT FROM job_leases.keys WHERE lease_key = ANY($1) ORDER BY lease_key FOR NO KEY UPDATE";
const KNOWN: &str = "-- known keys\nSELECT lease_key FROM job_leases.keys WHERE lease_key = ANY($1)";
/// Locks keys and reads them; what others have locked is passed over and not waited for. The time is read and tokens are drawn
/// when all that can be locked is locked: what is asked of `found`, which counts, comes after it. So for each key tokens rise with
/// every grant. What the other tables say is as of the start of the statement, before which this transaction had the lock that
/// keeps outages from being recorded.
const READ: &str = concat!(
    "-- lock keys and read\nWITH locked AS MATERIALIZED (SELECT lease_key, state, outage, waiting, queue, xmin::text::bigint AS written_by \
     FROM job_leases.keys WHERE lease_key = ANY($1) ORDER BY lease_key FOR NO KEY UPDATE SKIP LOCKED), \
     found AS (SELECT array_agg(lease_key) AS keys, array_agg(state) AS states, array_agg(outage) AS outages, \
     array_agg(waiting) AS waiting, array_agg(queue) AS queues, array_agg(written_by) AS written_by, \
     coalesce(sum(waiting), 0) AS all_waiting FROM locked) \
     SELECT f.keys, f.states, f.outages AS outages_seen, f.waiting, f.queues, f.written_by, s.lived_at, s.outages AS outage, \
     a.changes AS access, n.nodes, n.seen, \
     CASE WHEN f.all_waiting >= 0 THEN job_leases.clock() END AS clock, s.ahead, s.ahead_since, \
     s.server = job_leases.server() AS is_good, \
     CASE WHEN f.all_waiting >= 0 THEN ",
    spent!(),
    " END AS spent, ARRAY(SELECT nextval('job_leases.tokens_given') \
     FROM generate_series(1, CASE WHEN f.all_waiting > 0 THEN $2::integer + $3::integer ELSE $2::integer END)) AS tokens \
     FROM found AS f, job_leases.service AS s, job_leases.access AS a, \
     (SELECT array_agg(node) AS nodes, array_agg(seen_at) AS seen FROM job_leases.nodes) AS n WHERE s.id = 1 AND a.id = 1"
);
const LOCK_ACCESS: &str = "-- lock access\nSELECT changes FROM job_leases.access WHERE id = 1 FOR NO KEY UPDATE";
/// The transaction that writes, as `xmin` of what it wrote tells it.
macro_rules! written_by {
    () => {
        "(pg_current_xact_id()::text::bigint & 4294967295)"
    };
}
use written_by;
/// Keys that nobody had before are inserted only here: should another node have been first, nothing of this happens. Log ids are
/// drawn in the order of what happened.
macro_rules! write {
    ($name:literal, $queues:expr) => {
        concat!(
            "-- ",
            $name,
            "\nWITH made AS (INSERT INTO job_leases.keys (lease_key, state, outage, waiting, queue) \
             SELECT d.lease_key, d.state, $1, d.waiting, d.queue \
             FROM unnest($2::text[], $3::text[], $4::integer[], $5::bigint[]) AS d (lease_key, state, waiting, queue) \
             ORDER BY d.lease_key ON CONFLICT DO NOTHING RETURNING 1), \
             changed AS (UPDATE job_leases.keys AS k SET state = d.state, outage = $1, waiting = d.waiting, queue = d.queue \
             FROM unnest($6::text[], $7::text[], $8::integer[], $9::bigint[]) AS d (lease_key, state, waiting, queue) \
             WHERE k.lease_key = d.lease_key RETURNING 1), ",
            $queues,
            "logged AS (INSERT INTO job_leases.log (body) SELECT d.body \
             FROM unnest($10::text[]) WITH ORDINALITY AS d (body, n) ORDER BY d.n RETURNING 1) \
             SELECT (SELECT count(*) FROM made), (SELECT count(*) FROM changed), (SELECT count(*) FROM logged), ",
            written_by!()
        )
    };
}
const WRITE: &str = write!("write", "");
/// The same, and how queues change.
const WRITE_QUEUES: &str = write!("write with queues", queue_changes!("TRUE"));
/// Takes over keys of which is only told: see [`optimistic`]. That is not waited for until it is durable: who decides by memory is
/// not so late that a server could have crashed and come back meanwhile, and another server would be noticed.
const TAKE_OVER: &str = concat!(
    "-- take over\nWITH taken AS (UPDATE job_leases.keys SET outage = outage WHERE lease_key = ANY($1) RETURNING 1) \
     SELECT (SELECT count(*) FROM taken), ",
    written_by!(),
    ", CASE WHEN $2 THEN set_config('synchronous_commit', 'off', TRUE) END"
);
const REMEMBER: &str = "-- remember\nINSERT INTO job_leases.idempotency (caller, key, fingerprint, answer, created_at) \
     SELECT d.caller, d.key, d.fingerprint, d.answer, d.created_at \
     FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::bigint[]) \
     AS d (caller, key, fingerprint, answer, created_at) ON CONFLICT DO NOTHING";
const RECALL: &str = "-- recall\nSELECT i.caller, i.key, i.fingerprint, i.answer, i.created_at \
     FROM unnest($1::text[], $2::text[]) AS w (caller, key) \
     JOIN job_leases.idempotency AS i ON i.caller = w.caller AND i.key = w.key";
const IN_PROGRESS: &str = "-- requests that wait\nSELECT q.caller, q.key, q.fingerprint, q.node \
     FROM unnest($1::text[], $2::text[]) AS w (caller, key) \
     JOIN job_leases.waiters AS q ON q.caller = w.caller AND q.key = w.key WHERE q.caller IS NOT NULL";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    let read = vec![WAIT, KNOWN, READ, LOCK_ACCESS, WRITE, WRITE_QUEUES, TAKE_OVER, REMEMBER, RECALL, IN_PROGRESS];
    [read, optimistic::statements()].concat()
}

/// A node that was not seen for so long (microseconds) is taken for dead.
pub(super) const UNSEEN: i64 = 3_000_000;

/// No sign of life of any node for so long is an outage, in microseconds.
pub(super) const OUTAGE_AFTER: i64 = 2_000_000;

/// A write under way.
pub struct PostgresTx<'s> {
    store: &'s PostgresStore,
    link: Link,
    now: Timestamp,
    /// What the database told of the time after keys were locked, and when so much had elapsed, in microseconds.
    told: (i64, i64),
    /// Whether there is no other node.
    is_alone: bool,
    /// What the rows of the locked keys were.
    rows: HashMap<LeaseKey, Row>,
    tokens: Tokens,
    /// More tokens were asked for than there are.
    is_short: bool,
    live: Vec<i64>,
    /// As of which outage, change of access and clock it is decided.
    basis: Basis,
    /// What it is decided by, if nothing was read.
    guess: Option<Guess>,
}

/// What a locked key was.
struct Row {
    /// Whether it is in the database already.
    is_there: bool,
    /// Whether another node wrote it last, as far as is known, or another lane may have; which may decide by its memory of it.
    is_others: bool,
    /// How often its queue has changed.
    queue: i64,
    waiting: Arc<Waiting>,
}

/// A row of a key: its name, state, last outage, how many wait, how often the queue has changed, and by which transaction it was
/// written last.
type Found = (String, String, i64, i32, i64, i64);

/// What else was read with the rows.
#[derive(sqlx::FromRow)]
struct Read {
    keys: Option<Vec<String>>,
    states: Option<Vec<String>>,
    outages_seen: Option<Vec<i64>>,
    waiting: Option<Vec<i32>>,
    queues: Option<Vec<i64>>,
    /// By which transactions they were written last.
    written_by: Option<Vec<i64>>,
    lived_at: i64,
    /// The last outage.
    outage: i64,
    /// How often access was changed.
    access: i64,
    /// All nodes that were seen a while ago, and when.
    nodes: Option<Vec<i64>>,
    seen: Option<Vec<i64>>,
    clock: i64,
    ahead: i64,
    ahead_since: i64,
    is_good: bool,
    spent: i64,
    tokens: Vec<i64>,
}

impl Read {
    fn rows(&mut self) -> impl Iterator<Item = Found> + use<> {
        let keys = self.keys.take().into_iter().flatten();
        let (states, outages) = (self.states.take(), self.outages_seen.take());
        let (waiting, queues) = (self.waiting.take(), self.queues.take());
        let rows = keys.zip(states.into_iter().flatten()).zip(outages.into_iter().flatten());
        let rows = rows.zip(waiting.into_iter().flatten()).zip(queues.into_iter().flatten());
        let rows = rows.zip(self.written_by.take().into_iter().flatten());
        rows.map(|(((((key, state), outage), waiting), queue), by)| (key, state, outage, waiting, queue, by))
    }
}

impl<'s> PostgresTx<'s> {
    pub(super) fn new(store: &'s PostgresStore) -> Self {
        Self {
            store,
            link: Link::none(&store.via),
            now: store.clock().now(),
            told: (0, 0),
            is_alone: false,
            rows: HashMap::new(),
            tokens: Tokens::new(),
            is_short: false,
            live: Vec::new(),
            basis: Basis::default(),
            guess: None,
        }
    }

    /// Locks the rows of these keys, and reads what else must be read after that.
    async fn read(&mut self, needs: &Needs<'_>, names: &[&str]) -> Result<Read, StoreError> {
        let via = &self.store.via;
        if needs.patient {
            in_time(via.query(WAIT).bind(names).execute(self.link.db()?)).await?;
        }
        if needs.access {
            in_time(via.query(LOCK_ACCESS).execute(self.link.db()?)).await?;
        }
        // Whoever waits, in this batch or before it, may be granted a key by any command.
        let grants = needs.grants + if needs.waits { needs.commands } else { 0 };
        // And later ones that are decided by memory.
        let grants = grants + self.store.recent.lacks(2 * grants);
        let grants = i32::try_from(grants).map_err(StoreError::corrupt)?;
        let commands = if needs.waits { 0 } else { i32::try_from(needs.commands).map_err(StoreError::corrupt)? };
        let read = via.query_as(READ).bind(names).bind(grants).bind(commands);
        in_time(read.fetch_one(self.link.db()?)).await
    }

    /// Keys among these that are there, so that others have them locked.
    async fn known(&mut self, names: &[&str]) -> Result<Vec<LeaseKey>, StoreError> {
        let known = self.store.via.query_scalar(KNOWN).bind(names).fetch_all(self.link.db()?);
        let known: Vec<String> = in_time(known).await?;
        known.iter().map(|key| LeaseKey::parse(key).map_err(StoreError::corrupt)).collect()
    }

    /// What a batch comes to. Rows that are left are those of keys of which is only told.
    fn change(&mut self, batch: &Batch) -> Result<Change, StoreError> {
        if self.is_short {
            return Err(StoreError::corrupt("more tokens were needed than were drawn"));
        }
        let mut change = Change::default();
        for room in &batch.rooms {
            let key = &room.key.lease_key;
            let Some(row) = self.rows.remove(key) else {
                return Err(StoreError::corrupt(format_args!("{key} was changed and not locked")));
            };
            let changed = change.queues.note(key, &row.waiting, &room.queue, &batch.joined);
            let has_changed = changed.is_some();
            let waiting = changed.map_or_else(|| Arc::clone(&row.waiting), Arc::new);
            let kept = Kept { queue: row.queue + i64::from(has_changed), waiting, has_changed };
            let columns = if row.is_there { &mut change.changed } else { &mut change.made };
            columns.keys.push(key.as_str().to_owned());
            columns.states.push(serde_json::to_string(&room.key).map_err(StoreError::corrupt)?);
            columns.waiting.push(i32::try_from(room.queue.len()).map_err(StoreError::corrupt)?);
            columns.queues.push(kept.queue);
            change.kept.push(kept);
        }
        let mut bodies = Vec::with_capacity(batch.records.len());
        for record in &batch.records {
            bodies.push(serde_json::to_string(record).map_err(StoreError::corrupt)?);
        }
        change.bodies = log::rows(bodies);
        Ok(change)
    }

    /// Keeps keys until the database has come to the time as of which they are told of, by which this node's clock may be ahead of it:
    /// another node that has them locked next would decide by an earlier one. A clock that was set back is not waited for.
    async fn come_to_now(&self) {
        if self.is_alone {
            return;
        }
        let (told, heard) = self.told;
        let before = self.now.as_micros() - told - (self.store.clock().elapsed() - heard);
        if (1..=optimistic::MOST_BEFORE).contains(&before) {
            tokio::time::sleep(Duration::from_micros(before.unsigned_abs())).await;
        }
    }

    /// Writes all of it in the transaction that has read it, and takes over keys of which is only told.
    async fn write(&mut self, batch: &Batch, change: &Change) -> Result<Written, StoreError> {
        let (store, outage) = (self.store, self.basis.outage);
        let via = &store.via;
        let db = self.link.db()?;
        let expected = (change.made.len(), change.changed.len(), change.bodies.len() as i64);
        let has_queues = !change.queues.is_empty() || !batch.wakings.is_empty();
        let mut written = Written::default();
        if expected != (0, 0, 0) || has_queues {
            let made = &change.made;
            let write = via.query_as(if has_queues { WRITE_QUEUES } else { WRITE }).bind(outage);
            let write = write.bind(&made.keys).bind(&made.states).bind(&made.waiting).bind(&made.queues);
            let mut write = change.bind(write);
            if has_queues {
                (write, written.nodes) = change.queues.bind(write, store.node(), &batch.wakings, self.now)?;
            }
            let (made, changed, logged, by): (i64, i64, i64, i64) = in_time(write.fetch_one(&mut *db)).await?;
            if (made, changed, logged) != expected {
                return Err(StoreError::Overtaken);
            }
            written.by = Some(transaction(by)?);
        }
        if remember(store, db, &batch.remembered).await? != batch.remembered.len() as u64 {
            return Err(StoreError::Overtaken);
        }
        remember(store, db, &batch.remembered_late).await?;
        access::write(via, db, &batch.access).await?;
        if let Some(retain) = &batch.retention {
            retention::write(via, db, retain).await?;
        }
        let others: Vec<&LeaseKey> = self.rows.iter().filter(|(_, row)| row.is_others).map(|(key, _)| key).collect();
        if !others.is_empty() {
            let names: Vec<&str> = others.iter().map(|key| key.as_str()).collect();
            let take_over = via.query_as(TAKE_OVER).bind(names).bind(batch.is_empty());
            let (taken, by, _): (i64, i64, Option<String>) = in_time(take_over.fetch_one(&mut *db)).await?;
            if taken != others.len() as i64 {
                return Err(StoreError::corrupt("keys that were locked are not there"));
            }
            written.taken_by = Some(transaction(by)?);
        }
        self.come_to_now().await;
        Ok(written)
    }

    /// The same, and commits it.
    async fn write_and_commit(&mut self, batch: &Batch, change: &Change) -> Result<Written, CommitError> {
        let written = self.write(batch, change).await;
        let link = std::mem::replace(&mut self.link, Link::none(&self.store.via));
        let written = match written {
            Ok(written) => written,
            Err(error) => {
                link.rollback().await;
                return Err(CommitError::RolledBack(error));
            }
        };
        if batch.is_empty() && written.taken_by.is_none() {
            link.rollback().await;
            return Ok(written);
        }
        let flush = self.store.metrics.flush();
        if let Err(failed) = link.try_commit().await {
            // Of what was only told nothing is lost.
            return Err(if batch.is_empty() { CommitError::RolledBack(StoreError::Overtaken) } else { failed.into() });
        }
        if !batch.is_empty() {
            flush.observe();
        }
        if let Some(by) = written.taken_by {
            let others = self.rows.drain().filter(|(_, row)| row.is_others).map(|(key, _)| key);
            self.store.recent.took_over(others.collect(), by);
        }
        Ok(written)
    }
}

/// What a batch comes to, as the database is told of it.
#[derive(Default)]
struct Change {
    made: Columns,
    changed: Columns,
    queues: queue::Changes,
    /// Rows of the log.
    bodies: Vec<String>,
    /// What becomes of the queues of the batch's rooms, in their order.
    kept: Vec<Kept>,
}

impl Change {
    /// Binds what changes of keys that are there, and what is logged.
    fn bind<'q, O>(&'q self, query: Asks<'q, O>) -> Asks<'q, O> {
        let changed = &self.changed;
        let query = query.bind(&changed.keys).bind(&changed.states).bind(&changed.waiting).bind(&changed.queues);
        query.bind(&self.bodies)
    }
}

/// What becomes of a key's queue.
struct Kept {
    /// How often it has changed by then.
    queue: i64,
    waiting: Arc<Waiting>,
    has_changed: bool,
}

#[derive(Default)]
struct Written {
    /// By which transaction, if keys were.
    by: Option<i32>,
    /// By which transaction keys were taken over, if any were.
    taken_by: Option<i32>,
    /// Nodes at which somebody is to be told something.
    nodes: Vec<i64>,
}

/// The name of a transaction as rows carry it.
fn transaction(by: i64) -> Result<i32, StoreError> {
    u32::try_from(by).map(u32::cast_signed).map_err(StoreError::corrupt)
}

/// Rows of keys, by column.
#[derive(Default)]
struct Columns {
    keys: Vec<String>,
    states: Vec<String>,
    waiting: Vec<i32>,
    queues: Vec<i64>,
}

impl Columns {
    const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn len(&self) -> i64 {
        self.keys.len() as i64
    }
}

/// Writes what was not written before under the same name; how many that was.
async fn remember(store: &PostgresStore, db: &mut sqlx::PgConnection, all: &[Remembered]) -> Result<u64, StoreError> {
    if all.is_empty() {
        return Ok(0);
    }
    let mut answers = Vec::with_capacity(all.len());
    for remembered in all {
        answers.push(serde_json::to_string(&remembered.answer).map_err(StoreError::corrupt)?);
    }
    let callers: Vec<&str> = all.iter().map(|remembered| &*remembered.id.caller).collect();
    let keys: Vec<&str> = all.iter().map(|remembered| &*remembered.id.key).collect();
    let fingerprints: Vec<&[u8]> = all.iter().map(|remembered| remembered.fingerprint.as_slice()).collect();
    let times: Vec<i64> = all.iter().map(|remembered| remembered.at.as_micros()).collect();
    let remember = store.via.query(REMEMBER).bind(callers).bind(keys).bind(fingerprints).bind(answers).bind(times);
    Ok(in_time(remember.execute(db)).await?.rows_affected())
}

impl Tx for PostgresTx<'_> {
    fn outage(&self) -> Option<Outage> {
        // It shows only after the locks, and is recorded there.
        None
    }

    async fn lock(&mut self, needs: &Needs<'_>) -> Result<Locked, StoreError> {
        if let Some(locked) = self.remember(needs) {
            return Ok(locked);
        }
        let names: Vec<&str> = needs.keys.iter().map(|key| key.as_str()).collect();
        self.link = Link::begin_writing(&self.store.via, self.store.beginning).await?;
        let clock = self.store.clock();
        let (mut read, told) = loop {
            let asked = clock.elapsed();
            let read = self.read(needs, &names).await?;
            let told = Told::new((read.clock, read.ahead, read.ahead_since, read.is_good));
            self.store.was_told(told, asked, read.spent);
            self.told = (told.time().as_micros(), clock.elapsed());
            let now = clock.at_least(Timestamp::from_micros(read.lived_at));
            if !told.is_good || now.as_micros() - read.lived_at > OUTAGE_AFTER {
                // Nothing is decided before it is recorded, or before it is known by how much another server's clock is off.
                std::mem::replace(&mut self.link, Link::none(&self.store.via)).rollback().await;
                self.store.record_outage().await?;
                self.link = Link::begin_writing(&self.store.via, self.store.beginning).await?;
                continue;
            }
            break (read, told);
        };
        let seen = read.nodes.iter().flatten().zip(read.seen.iter().flatten());
        let since = clock.now().as_micros() - UNSEEN;
        self.live = seen.filter(|(_, seen_at)| **seen_at > since).map(|(node, _)| *node).collect();
        self.store.know_access(self.link.db()?, read.access).await?;
        let outages = self.store.outages(self.link.db()?, read.outage).await?;
        // Not before what it tells of is known here.
        self.basis = Basis::new(read.outage, read.access, told);
        self.store.recent.found(self.basis, told);

        let mut rooms = Vec::with_capacity(names.len());
        let mut with_waiters = Vec::new();
        // Where there is no other node there is nobody who would decide by an earlier time, but for the lane that goes by memory.
        self.is_alone = read.nodes.iter().flatten().all(|node| *node == self.store.node());
        for (lease_key, state, seen, waiting, version, by) in read.rows() {
            let mut state: KeyState = serde_json::from_str(&state)
                .map_err(|error| StoreError::corrupt(format_args!("the state of {lease_key}: {error}")))?;
            for (_, outage) in outages.iter().filter(|(id, _)| *id > seen) {
                state.through(outage);
            }
            clock.at_least(state.changed_at);
            let key = state.lease_key.clone();
            if waiting > 0 {
                with_waiters.push((key.clone(), version));
            }
            let is_others = needs.patient || (!self.is_alone && !self.store.recent.is_mine(&key, transaction(by)?));
            self.rows.insert(key.clone(), Row { is_there: true, is_others, queue: version, waiting: Arc::default() });
            let mut room = Room::new(key);
            room.key = state;
            rooms.push(room);
        }
        let greatest = optimistic::greatest(rooms.iter().map(|room| &room.key));
        // Those that were drawn before are less, and go first. What is left of all is kept once this is committed.
        self.tokens = self.store.recent.tokens(greatest, needs.grants + needs.commands);
        self.tokens.extend(optimistic::drawn(&read.tokens));
        let mut queues = if with_waiters.is_empty() {
            HashMap::new()
        } else {
            self.store.queues.load(&self.store.via, self.link.db()?, &with_waiters).await?
        };
        let mut waiting_elsewhere = HashMap::new();
        for room in &mut rooms {
            let waiting = queues.remove(&room.key.lease_key).unwrap_or_default();
            waiting.elsewhere(self.store.node(), &self.live, &mut waiting_elsewhere);
            room.queue = waiting.queue.clone();
            if let Some(row) = self.rows.get_mut(&room.key.lease_key) {
                row.waiting = waiting;
            }
        }

        let missing: Vec<&LeaseKey> = needs.keys.iter().filter(|key| !self.rows.contains_key(**key)).copied().collect();
        let mut busy = Vec::new();
        if !missing.is_empty() {
            if !needs.patient {
                let names: Vec<&str> = missing.iter().map(|key| key.as_str()).collect();
                busy = self.known(&names).await?;
            }
            let is_busy: HashSet<&LeaseKey> = busy.iter().collect();
            for key in missing.into_iter().filter(|key| !is_busy.contains(key)) {
                rooms.push(Room::new(key.clone()));
                self.rows
                    .insert(key.clone(), Row { is_there: false, is_others: false, queue: 0, waiting: Arc::default() });
            }
        }
        self.now = clock.now();
        if self.now.as_micros() - read.lived_at > OUTAGE_AFTER {
            // This node stood still since the mark was read. The next attempt finds the outage, if it was one.
            return Err(StoreError::Overtaken);
        }
        Ok(Locked { rooms, busy, now: self.now, waiting_elsewhere })
    }

    fn token(&mut self) -> FencingToken {
        let token = self.tokens.pop_front().and_then(|(token, _)| FencingToken::new(token));
        self.is_short |= token.is_none();
        // Then nothing is committed.
        token.unwrap_or(FencingToken::MAX)
    }

    async fn former(&mut self, wanted: &[(LeaseKey, FencingToken)]) -> Result<Vec<Lease>, StoreError> {
        if self.guess.is_some() {
            // Of these nothing is remembered.
            return Err(StoreError::Stale);
        }
        former::load(&self.store.via, self.link.db()?, wanted).await
    }

    async fn recall(&mut self, wanted: &[IdempotencyId]) -> Result<Recalled, StoreError> {
        let callers: Vec<&str> = wanted.iter().map(|id| &*id.caller).collect();
        let keys: Vec<&str> = wanted.iter().map(|id| &*id.key).collect();
        let via = &self.store.via;
        type Done = (String, String, Vec<u8>, String, i64);
        let recall = via.query_as(RECALL).bind(&callers).bind(&keys).fetch_all(self.link.db()?);
        let rows: Vec<Done> = in_time(recall).await?;
        let id = |caller: String, key: String| IdempotencyId { caller: Arc::from(caller), key: Arc::from(key) };
        let mut recalled = Recalled::default();
        for (caller, key, fingerprint, answer, at) in rows {
            recalled.done.push(Remembered {
                id: id(caller, key),
                fingerprint: fingerprint.as_slice().try_into().map_err(StoreError::corrupt)?,
                answer: serde_json::from_str(&answer).map_err(StoreError::corrupt)?,
                at: Timestamp::from_micros(at),
            });
        }
        let of_new = |remembered: &Remembered| {
            let is_new = |key: &LeaseKey| self.rows.get(key).is_some_and(|row| !row.is_there);
            remembered.answer.grants().any(|reading| is_new(&reading.lease_key))
        };
        if recalled.done.iter().any(of_new) {
            // The first request made the key, after this one had looked for it.
            return Err(StoreError::Overtaken);
        }
        let waiting = via.query_as(IN_PROGRESS).bind(&callers).bind(&keys).fetch_all(self.link.db()?);
        let rows: Vec<(String, String, Vec<u8>, i64)> = in_time(waiting).await?;
        for (caller, key, fingerprint, node) in rows {
            // Those of this node are known by their connections.
            if node != self.store.node() && self.live.contains(&node) {
                let fingerprint = fingerprint.as_slice().try_into().map_err(StoreError::corrupt)?;
                recalled.waiting.push((id(caller, key), fingerprint));
            }
        }
        Ok(recalled)
    }

    async fn commit(mut self, batch: Batch) -> Result<Vec<Arc<Record>>, CommitError> {
        let store = self.store;
        let change = match self.change(&batch) {
            Ok(change) => change,
            Err(error) => {
                self.link.rollback().await;
                return Err(CommitError::RolledBack(error));
            }
        };
        let written = match self.guess.take() {
            Some(guess) => self.write_if(guess, &batch, &change).await?,
            None => self.write_and_commit(&batch, &change).await?,
        };
        let mut known = Vec::with_capacity(change.kept.len());
        for (room, kept) in batch.rooms.into_iter().zip(change.kept) {
            let Kept { queue, waiting, has_changed } = kept;
            if has_changed {
                store.queues.keep(room.key.lease_key.clone(), queue, Arc::clone(&waiting));
            }
            known.push(Known { state: room.key, waiting, queue });
        }
        if let Some(by) = written.by {
            store.recent.keep(self.basis, known, by);
        }
        store.recent.keep_tokens(self.basis, self.tokens);
        store.changed_access(&batch.access, self.basis.access);
        if let Some(up_to) = batch.retention.and_then(|retain| retain.lines) {
            // Others hear of it by the timeline.
            store.timeline.retain(up_to);
        }
        if !batch.records.is_empty() {
            store.logged.notify_one();
        }
        store.hint(written.nodes);
        Ok(batch.records.into_iter().map(Arc::new).collect())
    }
}
