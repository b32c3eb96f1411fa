//! Those who wait for a key, as the database has them, and what waiters of other nodes are told.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use domain::lease::{Queue, Refusal, Reply, Waiter, WaiterId};
use domain::{LeaseKey, Timestamp};
use sqlx::postgres::PgArguments;
use sqlx::query::QueryAs;
use sqlx::{PgConnection, Postgres};

use super::link::{Link, in_time};
use super::via::Via;
use crate::engine::idempotency::IdempotencyId;
use crate::error::StoreError;
use crate::store::{Elsewhere, Waking};

/// Of those that are known already only who they are.
const LOAD: &str = "-- load waiters\nSELECT w.lease_key, w.waiter, CASE WHEN NOT known THEN w.body END, \
     CASE WHEN NOT known THEN w.caller END, CASE WHEN NOT known THEN w.key END, CASE WHEN NOT known THEN w.fingerprint END \
     FROM job_leases.waiters AS w, LATERAL (SELECT w.waiter = ANY($2) AS known) AS k \
     WHERE w.lease_key = ANY($1) ORDER BY w.lease_key, w.place";
/// How queues change and what waiters of other nodes are told, as parts of a greater statement, on some condition. Callers join in the
/// order in which they came.
macro_rules! queue_changes {
    ($condition:literal) => {
        concat!(
        "gone AS (DELETE FROM job_leases.waiters WHERE waiter = ANY($11) AND ", $condition, "), \
         joined AS (INSERT INTO job_leases.waiters (lease_key, waiter, node, body, caller, key, fingerprint) \
         SELECT d.lease_key, d.waiter, $12, d.body, d.caller, d.key, d.fingerprint \
         FROM unnest($13::text[], $14::bigint[], $15::text[], $16::text[], $17::text[], $18::bytea[]) \
         WITH ORDINALITY AS d (lease_key, waiter, body, caller, key, fingerprint, n) WHERE ", $condition, " ORDER BY d.n), \
         told AS (INSERT INTO job_leases.wakings (waiter, node, told_at, result, is_kept) \
         SELECT d.waiter, d.node, $19, d.result, d.is_kept \
         FROM unnest($20::bigint[], $21::bigint[], $22::text[], $23::boolean[]) AS d (waiter, node, result, is_kept) \
         WHERE ", $condition, " ON CONFLICT DO NOTHING), ")
    };
}
pub(super) use queue_changes;
const TAKE: &str = "-- take wakings\nDELETE FROM job_leases.wakings WHERE node = $1 \
     RETURNING waiter, told_at, result, is_kept";
const ARE_TOLD: &str = "-- are there wakings\nSELECT EXISTS (SELECT 1 FROM job_leases.wakings WHERE node = $1)";
/// That many wait at other nodes than this.
const COUNT: &str = "-- waiting elsewhere\nSELECT count(*) FROM job_leases.waiters WHERE node <> $1";
/// Keys with waiters whose node is gone.
const FORSAKEN: &str = "-- forsaken queues\nSELECT DISTINCT w.lease_key FROM job_leases.waiters AS w WHERE NOT EXISTS \
     (SELECT 1 FROM job_leases.nodes AS n WHERE n.node = w.node AND n.seen_at > $1) LIMIT 500";
/// What nobody will take any more.
const UNTAKEN: &str = "-- untaken wakings\nDELETE FROM job_leases.wakings AS w WHERE NOT EXISTS \
     (SELECT 1 FROM job_leases.nodes AS n WHERE n.node = w.node AND n.seen_at > $1) \
     RETURNING waiter, told_at, result, is_kept";

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![LOAD, TAKE, ARE_TOLD, COUNT, FORSAKEN, UNTAKEN]
}

/// A waiter's name begins with its node's number, so that names are unique and tell where to go.
const OWN_BITS: u32 = 40;

/// The first name that a node gives.
pub(super) const fn first_waiter(node: i64) -> u64 {
    (node.cast_unsigned() << OWN_BITS) + 1
}

/// The node at which a waiter waits.
pub(super) const fn node_of(waiter: WaiterId) -> i64 {
    (waiter.0 >> OWN_BITS).cast_signed()
}

/// A request's idempotency key and fingerprint.
pub(super) type Request = Option<(IdempotencyId, [u8; 32])>;

/// The queue of one key.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    pub(super) queue: Queue,
    /// Of those whose request carries an idempotency key.
    requests: HashMap<WaiterId, (IdempotencyId, [u8; 32])>,
}

impl Waiting {
    fn push(&mut self, waiter: Arc<Waiter>, request: Request) {
        if let Some(request) = request {
            self.requests.insert(waiter.id, request);
        }
        self.queue.join(waiter);
    }

    /// Whether anybody waits.
    pub(super) fn is_somebody(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether all wait at this node.
    pub(super) fn are_of(&self, node: i64) -> bool {
        self.queue.iter().all(|waiter| node_of(waiter.id) == node)
    }

    /// Those of other nodes that live.
    pub(super) fn elsewhere(&self, node: i64, live: &[i64], into: &mut HashMap<WaiterId, Elsewhere>) {
        for waiter in self.queue.iter() {
            let at = node_of(waiter.id);
            if at != node && live.contains(&at) {
                let (actor, request) = (Arc::clone(&waiter.actor), self.requests.get(&waiter.id).cloned());
                into.insert(waiter.id, Elsewhere { actor, request });
            }
        }
    }

    /// What it takes to make this queue that one.
    fn changes(&self, queue: &Queue) -> (Vec<WaiterId>, Vec<Arc<Waiter>>) {
        let before: HashSet<WaiterId> = self.queue.iter().map(|waiter| waiter.id).collect();
        let after: HashSet<WaiterId> = queue.iter().map(|waiter| waiter.id).collect();
        let left = self.queue.iter().map(|waiter| waiter.id).filter(|id| !after.contains(id)).collect();
        let joined = queue.iter().filter(|waiter| !before.contains(&waiter.id)).cloned().collect();
        (left, joined)
    }
}

/// Queues as they were last seen, by how often they had changed by then: a queue that is not longer unchanged is read anew.
#[derive(Default)]
pub(super) struct Seen(Mutex<HashMap<LeaseKey, (i64, Arc<Waiting>)>>);

impl Seen {
    /// The queues of these keys, each given with how often it has changed.
    pub(super) async fn load(
        &self,
        via: &Via,
        db: &mut PgConnection,
        wanted: &[(LeaseKey, i64)],
    ) -> Result<HashMap<LeaseKey, Arc<Waiting>>, StoreError> {
        let mut found = HashMap::with_capacity(wanted.len());
        let mut missing = Vec::new();
        // Waiters are what they were when they came.
        let mut known: HashMap<i64, (Arc<Waiter>, Request)> = HashMap::new();
        {
            let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, version) in wanted {
                match seen.get(key) {
                    Some((at, waiting)) if at == version => drop(found.insert(key.clone(), Arc::clone(waiting))),
                    older => {
                        missing.push(key.as_str().to_owned());
                        for waiter in older.iter().flat_map(|(_, waiting)| waiting.queue.iter()) {
                            let request = older.and_then(|(_, waiting)| waiting.requests.get(&waiter.id)).cloned();
                            known.insert(waiter.id.0.cast_signed(), (Arc::clone(waiter), request));
                        }
                    }
                }
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        type Row = (String, i64, Option<String>, Option<String>, Option<String>, Option<Vec<u8>>);
        let names: Vec<i64> = known.keys().copied().collect();
        let rows: Vec<Row> = in_time(via.query_as(LOAD).bind(missing).bind(names).fetch_all(db)).await?;
        let mut read: HashMap<LeaseKey, Waiting> = HashMap::new();
        for (lease_key, name, body, caller, key, fingerprint) in rows {
            let lease_key = LeaseKey::parse(&lease_key).map_err(StoreError::corrupt)?;
            let waiting = read.entry(lease_key).or_default();
            let Some(body) = body else {
                let known = known.remove(&name).ok_or_else(|| StoreError::corrupt("a waiter without a body"))?;
                waiting.push(known.0, known.1);
                continue;
            };
            let waiter: Waiter = serde_json::from_str(&body).map_err(StoreError::corrupt)?;
            let request = match (caller, key, fingerprint) {
                (Some(caller), Some(key), Some(fingerprint)) => {
                    let fingerprint = fingerprint.as_slice().try_into().map_err(StoreError::corrupt)?;
                    Some((IdempotencyId { caller: Arc::from(caller), key: Arc::from(key) }, fingerprint))
                }
                _ => None,
            };
            waiting.push(Arc::new(waiter), request);
        }
        found.extend(read.into_iter().map(|(key, waiting)| (key, Arc::new(waiting))));
        Ok(found)
    }

    /// A queue as it is after a commit.
    pub(super) fn keep(&self, key: LeaseKey, version: i64, waiting: Arc<Waiting>) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.queue.is_empty() {
            seen.remove(&key);
        } else {
            seen.insert(key, (version, waiting));
        }
    }

    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// A statement and what is bound to it.
pub(super) type Asks<'q, O> = QueryAs<'q, Postgres, O, PgArguments>;

/// How the queues of some keys change.
#[derive(Default)]
pub(super) struct Changes {
    left: Vec<i64>,
    joined: Vec<(LeaseKey, Arc<Waiter>, Request)>,
}

impl Changes {
    /// Notes how one queue changes; what it is then, if it does.
    pub(super) fn note(
        &mut self,
        key: &LeaseKey,
        before: &Waiting,
        queue: &Queue,
        requests: &HashMap<WaiterId, Request>,
    ) -> Option<Waiting> {
        let (left, joined) = before.changes(queue);
        if left.is_empty() && joined.is_empty() {
            return None;
        }
        let mut waiting = Waiting { queue: queue.clone(), requests: before.requests.clone() };
        for id in &left {
            waiting.requests.remove(id);
        }
        self.left.extend(left.iter().map(|id| id.0.cast_signed()));
        for waiter in joined {
            let request = requests.get(&waiter.id).cloned().flatten();
            if let Some(request) = &request {
                waiting.requests.insert(waiter.id, request.clone());
            }
            self.joined.push((key.clone(), waiter, request));
        }
        Some(waiting)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.left.is_empty() && self.joined.is_empty()
    }

    /// Binds them, and what is left for waiters of other nodes, to a statement that ends so; at which nodes these are.
    pub(super) fn bind<'q, O>(
        &'q self,
        query: Asks<'q, O>,
        node: i64,
        wakings: &'q [Waking],
        now: Timestamp,
    ) -> Result<(Asks<'q, O>, Vec<i64>), StoreError> {
        let joined = || self.joined.iter();
        let mut bodies = Vec::with_capacity(self.joined.len());
        for (_, waiter, _) in joined() {
            bodies.push(serde_json::to_string(&**waiter).map_err(StoreError::corrupt)?);
        }
        let requests = || joined().map(|(_, _, request)| request.as_ref());
        let keys: Vec<&str> = joined().map(|(key, ..)| key.as_str()).collect();
        let waiters: Vec<i64> = joined().map(|(_, waiter, _)| waiter.id.0.cast_signed()).collect();
        let callers: Vec<Option<&str>> = requests().map(|request| request.map(|(id, _)| &*id.caller)).collect();
        let names: Vec<Option<&str>> = requests().map(|request| request.map(|(id, _)| &*id.key)).collect();
        let fingerprints: Vec<Option<&[u8]>> =
            requests().map(|request| request.map(|(_, fingerprint)| fingerprint.as_slice())).collect();
        let query = query.bind(&self.left).bind(node).bind(keys).bind(waiters).bind(bodies);
        let query = query.bind(callers).bind(names).bind(fingerprints);

        let mut results = Vec::with_capacity(wakings.len());
        for waking in wakings {
            results.push(serde_json::to_string(&waking.result).map_err(StoreError::corrupt)?);
        }
        let woken: Vec<i64> = wakings.iter().map(|waking| waking.waiter.0.cast_signed()).collect();
        let nodes: Vec<i64> = wakings.iter().map(|waking| node_of(waking.waiter)).collect();
        let kept: Vec<bool> = wakings.iter().map(|waking| waking.is_kept).collect();
        Ok((query.bind(now.as_micros()).bind(woken).bind(nodes.clone()).bind(results).bind(kept), nodes))
    }
}

type Row = (i64, i64, String, bool);

fn wakings(rows: Vec<Row>) -> Result<Vec<(Waking, Timestamp)>, StoreError> {
    rows.into_iter()
        .map(|(waiter, told_at, result, is_kept)| {
            let result: Result<Reply, Refusal> = serde_json::from_str(&result).map_err(StoreError::corrupt)?;
            let waiter = WaiterId(waiter.cast_unsigned());
            Ok((Waking { waiter, result, is_kept }, Timestamp::from_micros(told_at)))
        })
        .collect()
}

/// What waiters of this node are to be told, and of which time it is. It is taken away: it is told once.
pub(super) async fn take(via: &Via, db: &mut PgConnection, node: i64) -> Result<Vec<(Waking, Timestamp)>, StoreError> {
    wakings(in_time(via.query_as(TAKE).bind(node).fetch_all(db)).await?)
}

/// Whether waiters of this node are to be told anything.
pub(super) async fn are_told(via: &Via, node: i64) -> Result<bool, StoreError> {
    let mut look = Link::for_one(via).await?;
    let are_told = in_time(via.query_scalar(ARE_TOLD).bind(node).fetch_one(&mut *look)).await?;
    look.commit().await?;
    Ok(are_told)
}

/// Keys with waiters whose node was not seen since then (microseconds), and what such waiters were to be told.
pub(super) async fn forsaken(
    via: &Via,
    db: &mut PgConnection,
    since: i64,
) -> Result<(Vec<LeaseKey>, Vec<(Waking, Timestamp)>), StoreError> {
    let keys: Vec<String> = in_time(via.query_scalar(FORSAKEN).bind(since).fetch_all(&mut *db)).await?;
    let keys = keys.iter().map(|key| LeaseKey::parse(key).map_err(StoreError::corrupt)).collect::<Result<_, _>>()?;
    Ok((keys, wakings(in_time(via.query_as(UNTAKEN).bind(since).fetch_all(db)).await?)?))
}

/// How many wait at other nodes.
pub(super) async fn count(via: &Via, db: &mut PgConnection, node: i64) -> Result<i64, StoreError> {
    in_time(via.query_scalar(COUNT).bind(node).fetch_one(db)).await
}
