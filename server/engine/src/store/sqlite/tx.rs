//! One write: keys from memory, lines to the timeline, one flush.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use domain::lease::{FencingToken, Lease, Outage, Room};
use domain::{LeaseKey, Timestamp};
use sqlx::sqlite::SqliteConnection;

use super::bulk::Bulk;
use super::rows::{self, grant_columns};
use super::{MARK_EVERY, SqliteStore, access, kept};
use crate::clock::ClockMark;
use crate::engine::idempotency::{IdempotencyId, Remembered};
use crate::error::StoreError;
use crate::store::{Batch, CommitError, Locked, Needs, Recalled, Tx};
use crate::timeline::{Happening, Line, Position, Record, chain};

const BEGIN: &str = "BEGIN IMMEDIATE";
const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";
pub(super) const CHECKPOINT: &str = "-- checkpoint\nPRAGMA wal_checkpoint(PASSIVE)";

/// So many lines are one statement.
const APPENDED_AT_ONCE: usize = 64;
static APPEND: Bulk<APPENDED_AT_ONCE> =
    Bulk::for_each_size("-- append\nINSERT INTO timeline (position, hash, body) VALUES", 3, "");
static REMEMBER: Bulk<4> =
    Bulk::new("-- remember\nINSERT INTO idempotency (caller, key, fingerprint, answer, created_at) VALUES", 5, "");
const RECALL: &str = "-- recall\nSELECT i.caller, i.key, i.fingerprint, i.answer, i.created_at FROM json_each(?1) AS w \
     JOIN idempotency AS i ON i.caller = w.value ->> 0 AND i.key = w.value ->> 1";
const SET_BASE: &str = "-- retain: base\nUPDATE head SET base_position = ?1, \
     base_hash = (SELECT hash FROM timeline WHERE position = ?1) WHERE id = 1";
const RETAIN_LINES: &str = "-- retain: lines\nDELETE FROM timeline WHERE position <= ?1";
const RETAIN_IDEMPOTENCY: &str = "-- retain: idempotency\nDELETE FROM idempotency WHERE (caller, key) IN \
     (SELECT caller, key FROM idempotency WHERE created_at < ?1 ORDER BY created_at LIMIT ?2)";
pub(super) const REMEMBERS_BEFORE: &str =
    "-- older idempotency records\nSELECT EXISTS (SELECT 1 FROM idempotency WHERE created_at < ?1)";
const WRITE_MARK: &str = "-- write clock mark\nUPDATE head SET lived_at = ?1, ceiling = ?2, boot_id = ?3, elapsed = ?4 \
     WHERE id = 1";
/// `applied` comes with every row, so that both are of one snapshot.
const LOAD_KEYS: &str = concat!(
    "-- load keys\nSELECT k.lease_key, k.cooling_until, k.quarantine, k.changed_at, \
     (SELECT applied FROM progress) AS applied, ",
    grant_columns!(),
    " FROM json_each(?1) AS w JOIN keys AS k ON k.lease_key = w.value LEFT JOIN grants AS g ON g.token = k.token"
);
const LOAD_FORMER: &str = concat!(
    "-- load former\nSELECT g.lease_key, ",
    grant_columns!(),
    " FROM json_each(?1) AS w JOIN grants AS g ON g.token = w.value"
);

/// So many bytes in the write-ahead log are worth a checkpoint.
const CHECKPOINT_AFTER: u64 = 8 << 20;
/// A commit writes a few pages besides its lines.
const PAGES_A_COMMIT: u64 = 3 * 4096;

/// Every statement on the truth in this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    APPEND
        .all()
        .chain(REMEMBER.all())
        .chain([RECALL, SET_BASE, RETAIN_LINES, RETAIN_IDEMPOTENCY, REMEMBERS_BEFORE, WRITE_MARK, CHECKPOINT])
        .collect()
}

/// Every statement on the read models in this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn view_statements() -> Vec<&'static str> {
    vec![LOAD_KEYS, LOAD_FORMER]
}

/// A write under way.
pub struct SqliteTx<'s> {
    store: &'s SqliteStore,
    mark: ClockMark,
    outage: Option<Outage>,
}

impl<'s> SqliteTx<'s> {
    pub(super) const fn new(store: &'s SqliteStore, mark: ClockMark, outage: Option<Outage>) -> Self {
        Self { store, mark, outage }
    }

    const fn now(&self) -> Timestamp {
        self.mark.lived_at
    }

    async fn load(&self, missing: &[&LeaseKey]) -> Result<Vec<Room>, StoreError> {
        let wanted = serde_json::to_string(missing).map_err(StoreError::corrupt)?;
        let found = sqlx::query(LOAD_KEYS).bind(wanted).fetch_all(&self.store.views).await?;
        let mut rooms = Vec::with_capacity(found.len());
        let memory = self.store.memory();
        for row in &found {
            let key = rows::key_state(row)?;
            let applied = sqlx::Row::try_get(row, "applied").map(Position)?;
            let mut room = Room::new(key.lease_key.clone());
            room.key = key;
            memory.bring_up(&mut room, applied);
            rooms.push(room);
        }
        Ok(rooms)
    }

    /// Chains the records to the head. Nothing else writes lines, so the head does not move meanwhile.
    fn lines(&self, records: Vec<Record>) -> Result<Vec<Line>, StoreError> {
        let (mut position, mut hash) = {
            let memory = self.store.memory();
            (memory.head, memory.hash)
        };
        let mut lines = Vec::with_capacity(records.len());
        for record in records {
            let body = serde_json::to_string(&record).map_err(StoreError::corrupt)?;
            position = position.next();
            hash = chain(&hash, position, &body);
            lines.push(Line { position, hash, body: Arc::from(body), record: Arc::new(record) });
        }
        Ok(lines)
    }

    async fn write(
        &self,
        truth: &mut SqliteConnection,
        lines: &[Line],
        batch: &Batch,
        mark_is_due: bool,
    ) -> Result<(), StoreError> {
        append(truth, lines).await?;
        let remembered: Vec<&Remembered> = batch.remembered.iter().chain(&batch.remembered_late).collect();
        for (sql, remembered) in REMEMBER.statements(&remembered) {
            let mut query = sqlx::query(sql);
            for remembered in remembered {
                let answer = serde_json::to_string(&remembered.answer).map_err(StoreError::corrupt)?;
                query = query
                    .bind(remembered.id.caller.to_string())
                    .bind(remembered.id.key.to_string())
                    .bind(remembered.fingerprint.to_vec())
                    .bind(answer)
                    .bind(remembered.at.as_micros());
            }
            query.execute(&mut *truth).await?;
        }
        for change in &batch.access {
            access::write(truth, change).await?;
        }
        if let Some(retain) = &batch.retention {
            if let Some(up_to) = retain.lines {
                kept::fold(truth, up_to).await?;
                sqlx::query(SET_BASE).bind(up_to.0).execute(&mut *truth).await?;
                sqlx::query(RETAIN_LINES).bind(up_to.0).execute(&mut *truth).await?;
            }
            sqlx::query(RETAIN_IDEMPOTENCY)
                .bind(retain.idempotency_before.as_micros())
                .bind(retain.limit)
                .execute(&mut *truth)
                .await?;
        }
        if mark_is_due {
            write_mark(truth, &self.mark).await?;
        }
        Ok(())
    }

    async fn commit_all(
        &self,
        truth: &mut SqliteConnection,
        lines: &[Line],
        batch: &Batch,
        mark_is_due: bool,
    ) -> Result<(), CommitError> {
        if let Err(error) = sqlx::query(BEGIN).execute(&mut *truth).await {
            return Err(CommitError::RolledBack(error.into()));
        }
        if let Err(error) = self.write(truth, lines, batch, mark_is_due).await {
            return match sqlx::query(ROLLBACK).execute(truth).await {
                Ok(_) => Err(CommitError::RolledBack(error)),
                // SQLite rolls back by itself after some errors; asking it anew tells.
                Err(_) => Err(CommitError::Unknown(error)),
            };
        }
        match sqlx::query(COMMIT).execute(truth).await {
            Ok(_) => Ok(()),
            Err(error) => Err(CommitError::Unknown(error.into())),
        }
    }

    /// What was committed becomes what is in memory.
    fn publish(self, batch: Batch, lines: &[Line], mark_written: bool) {
        for change in &batch.access {
            self.store.directory.apply(change);
        }
        if mark_written {
            self.store.marked(&self.mark);
        }
        let mut memory = self.store.memory();
        if let Some(last) = lines.last() {
            memory.head = last.position;
            memory.hash = last.hash;
        }
        for room in batch.rooms {
            memory.publish(room);
        }
        for (key, lease) in batch.superseded {
            memory.supersede(key, lease);
        }
        for line in lines {
            if let Record::Other(other) = &*line.record
                && let Happening::Outage(outage) = &other.happening
            {
                memory.outage(*outage);
            }
        }
    }

    /// Moves the write-ahead log into the database now and then, between batches.
    async fn checkpoint(&self, truth: &mut SqliteConnection, lines: &[Line]) {
        let bytes: u64 = lines.iter().map(|line| line.body.len() as u64).sum();
        let unchecked = &self.store.unchecked;
        if unchecked.fetch_add(bytes + PAGES_A_COMMIT, Ordering::Relaxed) > CHECKPOINT_AFTER {
            unchecked.store(0, Ordering::Relaxed);
            if let Err(error) = sqlx::query(CHECKPOINT).execute(truth).await {
                tracing::warn!(%error, "a checkpoint failed; it is tried again later");
            }
        }
    }
}

pub(super) async fn append(truth: &mut SqliteConnection, lines: &[Line]) -> Result<(), sqlx::Error> {
    for (sql, lines) in APPEND.statements(lines) {
        let query = lines.iter().fold(sqlx::query(sql), |query, line| {
            query.bind(line.position.0).bind(line.hash.to_vec()).bind(line.body.to_string())
        });
        query.execute(&mut *truth).await?;
    }
    Ok(())
}

/// Whether the database refused a statement for what it says, so that nothing of it happened.
fn is_refused(error: &sqlx::Error) -> bool {
    const TOO_BIG: i64 = 18;
    const CONSTRAINT: i64 = 19;
    let code = error.as_database_error().and_then(|error| error.code()).and_then(|code| code.parse::<i64>().ok());
    code.is_some_and(|code| matches!(code & 0xff, TOO_BIG | CONSTRAINT))
}

/// Writes the clock's mark.
pub(super) async fn write_mark(truth: &mut SqliteConnection, mark: &ClockMark) -> Result<(), StoreError> {
    sqlx::query(WRITE_MARK)
        .bind(mark.lived_at.as_micros())
        .bind(mark.ceiling.as_micros())
        .bind(mark.boot_id.as_deref().map(str::to_owned))
        .bind(mark.elapsed_micros)
        .execute(truth)
        .await?;
    Ok(())
}

impl Tx for SqliteTx<'_> {
    fn outage(&self) -> Option<Outage> {
        self.outage
    }

    async fn lock(&mut self, needs: &Needs<'_>) -> Result<Locked, StoreError> {
        let keys = &needs.keys;
        let mut rooms: Vec<Option<Room>> = {
            let mut memory = self.store.memory();
            keys.iter().map(|key| memory.get(key).cloned()).collect()
        };
        let missing: Vec<&LeaseKey> =
            keys.iter().zip(&rooms).filter(|(_, room)| room.is_none()).map(|(key, _)| *key).collect();
        if !missing.is_empty() {
            let mut loaded: std::collections::HashMap<LeaseKey, Room> =
                self.load(&missing).await?.into_iter().map(|room| (room.key.lease_key.clone(), room)).collect();
            let mut memory = self.store.memory();
            for (key, slot) in keys.iter().zip(&mut rooms).filter(|(_, room)| room.is_none()) {
                let room = loaded.remove(*key).unwrap_or_else(|| Room::new((*key).clone()));
                memory.keep(room.clone());
                *slot = Some(room);
            }
        }
        Ok(Locked {
            rooms: rooms.into_iter().flatten().collect(),
            now: self.now(),
            // There is no other transaction, and no other node.
            busy: Vec::new(),
            waiting_elsewhere: HashMap::new(),
        })
    }

    fn token(&mut self) -> FencingToken {
        let mut memory = self.store.memory();
        memory.token += 1;
        // Tokens start at the microseconds of server time, which reach 2^53 in the year 2255.
        FencingToken::new(memory.token).unwrap_or(FencingToken::MAX)
    }

    async fn former(&mut self, wanted: &[(LeaseKey, FencingToken)]) -> Result<Vec<Lease>, StoreError> {
        let mut found = Vec::with_capacity(wanted.len());
        let mut elsewhere: Vec<u64> = Vec::new();
        {
            let memory = self.store.memory();
            for (key, token) in wanted {
                match memory.former(key, *token) {
                    Some(lease) => found.push(lease.clone()),
                    None => elsewhere.push(token.get()),
                }
            }
        }
        if elsewhere.is_empty() {
            return Ok(found);
        }
        let tokens = serde_json::to_string(&elsewhere).map_err(StoreError::corrupt)?;
        for row in &sqlx::query(LOAD_FORMER).bind(tokens).fetch_all(&self.store.views).await? {
            let lease = rows::lease(row)?;
            let of: &str = sqlx::Row::try_get(row, "lease_key")?;
            // A lease of another key is none of this one.
            if wanted.iter().any(|(key, token)| *token == lease.token && key.as_str() == of) && lease.ended.is_some() {
                found.push(lease);
            }
        }
        Ok(found)
    }

    async fn recall(&mut self, wanted: &[IdempotencyId]) -> Result<Recalled, StoreError> {
        let pairs: Vec<[&str; 2]> = wanted.iter().map(|id| [&*id.caller, &*id.key]).collect();
        let pairs = serde_json::to_string(&pairs).map_err(StoreError::corrupt)?;
        let mut truth = self.store.truth().await?;
        let rows: Vec<(String, String, Vec<u8>, String, i64)> =
            sqlx::query_as(RECALL).bind(pairs).fetch_all(&mut *truth).await?;
        let done: Result<Vec<Remembered>, StoreError> = rows
            .into_iter()
            .map(|(caller, key, fingerprint, answer, at)| {
                Ok(Remembered {
                    id: IdempotencyId { caller: Arc::from(caller), key: Arc::from(key) },
                    fingerprint: fingerprint.as_slice().try_into().map_err(StoreError::corrupt)?,
                    answer: serde_json::from_str(&answer).map_err(StoreError::corrupt)?,
                    at: Timestamp::from_micros(at),
                })
            })
            .collect();
        Ok(Recalled { done: done?, waiting: Vec::new() })
    }

    async fn commit(self, mut batch: Batch) -> Result<Vec<Arc<Record>>, CommitError> {
        let records = std::mem::take(&mut batch.records);
        let lines = self.lines(records).map_err(CommitError::RolledBack)?;
        if lines.is_empty() && batch.is_only_records() {
            // Only waiters came or went.
            self.publish(batch, &lines, false);
            return Ok(Vec::new());
        }
        let store = self.store;
        let mut truth = store.truth().await.map_err(CommitError::RolledBack)?;
        let mark_is_due = self.mark.lived_at.since(store.memory().lived_at) >= MARK_EVERY;
        let flush = store.metrics.flush();
        if batch.is_only_records() && !mark_is_due && lines.len() <= APPENDED_AT_ONCE {
            // A statement by itself is a transaction: each one more would be another walk to the database's thread and back.
            if let Err(error) = append(&mut truth, &lines).await {
                let is_refused = is_refused(&error);
                return Err(if is_refused { CommitError::RolledBack } else { CommitError::Unknown }(error.into()));
            }
        } else {
            self.commit_all(&mut truth, &lines, &batch, mark_is_due).await?;
        }
        flush.observe();
        self.checkpoint(&mut truth, &lines).await;
        drop(truth);
        let retained = batch.retention.and_then(|retain| retain.lines);
        self.publish(batch, &lines, mark_is_due);
        if let Some(up_to) = retained {
            store.timeline.retain(up_to);
        }
        // The timeline's readers may see lines only once memory has what they say.
        store.timeline.push(&lines);
        Ok(lines.into_iter().map(|line| line.record).collect())
    }
}
