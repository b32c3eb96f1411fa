//! Deciding a batch by what this node wrote last, instead of reading it first.
//!
//! `xmin` of a row tells which transaction wrote it last. As long as that is one of this node's, the state of the key is what this
//! node remembers. A batch on such keys is decided by that, and written by one statement that is a transaction by itself and changes
//! nothing unless all of it is still so: one question to the database instead of four, and no key read that is known.
//! Had another node come between, nothing has happened, and the batch is decided once more by what is read.
//!
//! It is decided by a time that is over when it is written. So that nothing happens to a key before a time as of which somebody else
//! has been told of it, who reads a key that another node wrote last takes it over: it is written as it is, and its `xmin` is another.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::lease::{FencingToken, KeyState, Room};
use domain::{LeaseKey, Timestamp};
use tokio::time::Instant;

use super::super::link::Link;
use super::super::queue::{Waiting, queue_changes};
use super::super::time::Told;
use super::{Change, OUTAGE_AFTER, PostgresTx, Row, Written, transaction, written_by};
use crate::error::StoreError;
use crate::metrics::ByResult;
use crate::store::{Batch, CommitError, Locked, Needs};

/// By so much, in microseconds, may the server's clock be after the time by which a batch was decided when it is written.
const MOST_AFTER: i64 = 250_000;

/// And before it: that is waited for.
pub(super) const MOST_BEFORE: i64 = 5_000;

/// What may have been on its way for longer than this, in microseconds, tells too little of the time.
const MOST_LATE: i64 = 2_000;

/// For so long, in microseconds, it is good what the database told of the time: by how much its clock may be quicker than this node's
/// meanwhile, some 500 millionths, is what holders allow for who count by clocks of their own.
const GOOD_FOR: i64 = 100_000;

/// A connection that was in use not longer ago than this is taken for one that stands.
const WARM: Duration = Duration::from_secs(1);

/// So many keys are remembered in each of two generations; the older one is let go when the younger is full.
const GENERATION: usize = 8_192;

/// So many tokens are kept for what is decided by memory, and for so long: what sorts grants by their tokens sorts them by time, but for
/// that.
const TOKENS: usize = 4_096;
const TOKENS_KEPT: Duration = Duration::from_millis(250);

/// For so long nothing is decided by memory after another node has come between; twice as long each time that happens again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// After so many batches in which nobody did, the pause is the shortest one again.
const RUN: u32 = 100;

/// Whether no outage, change of access or other clock came between, the service lived, and the time is about what was decided by; which
/// is waited for if it has not come yet.
macro_rules! life {
    () => {
        "SELECT pg_sleep(greatest(0, ($2::bigint[])[8] - job_leases.clock()) / 1000000.0) FROM job_leases.service AS s, job_leases.access AS a \
         WHERE s.id = 1 AND a.id = 1 AND s.outages = $1 AND a.changes = ($2::bigint[])[1] \
         AND s.ahead = ($2::bigint[])[2] AND s.ahead_since = ($2::bigint[])[3] AND s.server = job_leases.server() \
         AND s.lived_at >= ($2::bigint[])[4] AND job_leases.clock() BETWEEN ($2::bigint[])[5] AND ($2::bigint[])[6]"
    };
}
/// Whether keys that are only told of are as they are remembered, and nobody is at them, nor was since the statement began: whoever
/// comes later does what it does later. They are not locked. `xmax` of a row is the transaction that had it locked last, over or not;
/// transactions are compared by their whole numbers, of which rows carry the lower half.
macro_rules! unchanged {
    ($keys:literal, $written_by:literal) => {
        concat!(
            "(SELECT count(*) FROM unnest(",
            $keys,
            "::text[], ",
            $written_by,
            "::integer[]) AS d (lease_key, xid) JOIN job_leases.keys AS k ON k.lease_key = d.lease_key \
             CROSS JOIN LATERAL (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next, k.xmax::text::bigint AS xid OFFSET 0) AS l \
             WHERE k.xmin = d.xid AND (l.xid = 0 OR pg_visible_in_snapshot(\
             (l.next + (((l.xid - l.next) & 4294967295) # 2147483648) - 2147483648)::text::xid8, pg_current_snapshot()))) = cardinality(",
            $keys,
            "::text[])"
        )
    };
}
/// Whether all is as it is remembered, where nothing is to be written: nothing is locked, and no flush waited for. It is looked for when
/// the time has come.
const STILL_SO: &str = concat!(
    "-- still so\nWITH life AS MATERIALIZED (",
    life!(),
    ") SELECT EXISTS (SELECT 1 FROM life) AND ",
    unchanged!("$3", "$4")
);
/// Changes nothing unless that is so, and each key was last written by the transaction that is remembered. Keys that change are
/// locked; those that do not are [`unchanged`]. What others have locked is not waited for. Its parameters are numbered
/// like those of [`write`](super::write): where those make keys, these tell what is remembered.
macro_rules! write_if {
    ($name:literal, $queues:expr) => {
        concat!(
            "-- ",
            $name,
            "\nWITH life AS MATERIALIZED (",
            life!(),
            " FOR KEY SHARE OF s SKIP LOCKED), \
             locked AS MATERIALIZED (SELECT k.lease_key FROM unnest($6::text[], $3::integer[]) AS d (lease_key, xid) \
             JOIN job_leases.keys AS k ON k.lease_key = d.lease_key WHERE k.xmin = d.xid \
             ORDER BY k.lease_key FOR NO KEY UPDATE OF k SKIP LOCKED), \
             good AS MATERIALIZED (SELECT EXISTS (SELECT 1 FROM life) \
             AND ",
            unchanged!("$4", "$5"),
            " AND (SELECT count(*) FROM locked) = cardinality($6::text[]) AS ok), \
             changed AS (UPDATE job_leases.keys AS k SET state = d.state, outage = $1, waiting = d.waiting, queue = d.queue \
             FROM unnest($6::text[], $7::text[], $8::integer[], $9::bigint[]) AS d (lease_key, state, waiting, queue) \
             WHERE k.lease_key = d.lease_key AND (SELECT ok FROM good) RETURNING 1), ",
            $queues,
            "logged AS (INSERT INTO job_leases.log (body) SELECT d.body \
             FROM unnest($10::text[]) WITH ORDINALITY AS d (body, n) WHERE (SELECT ok FROM good) ORDER BY d.n RETURNING 1) \
             SELECT g.ok, (SELECT count(*) FROM changed), (SELECT count(*) FROM logged), \
             CASE WHEN g.ok AND cardinality($6::text[]) > 0 THEN ",
            written_by!(),
            " END, ARRAY(SELECT nextval('job_leases.tokens_given') \
             FROM generate_series(1, CASE WHEN g.ok THEN ($2::bigint[])[7] ELSE 0 END)) FROM good AS g"
        )
    };
}
const WRITE_IF: &str = write_if!("write if", "");
/// The same, and how queues change.
const WRITE_IF_QUEUES: &str = write_if!("write with queues if", queue_changes!("(SELECT ok FROM good)"));

/// Every statement of this file, for the test that prepares them.
#[cfg(test)]
pub(super) fn statements() -> Vec<&'static str> {
    vec![STILL_SO, WRITE_IF, WRITE_IF_QUEUES]
}

/// What else must be so for anything to be decided by memory: as it was when keys were last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Basis {
    /// The last outage.
    pub(super) outage: i64,
    /// How often access was changed.
    pub(super) access: i64,
    /// By how much server time was ahead of the server's clock in microseconds, and since when, as they are written down.
    ahead: (i64, i64),
}

impl Basis {
    pub(super) fn new(outage: i64, access: i64, told: Told) -> Self {
        Self { outage, access, ahead: told.ahead().1 }
    }
}

/// What this node wrote last of a key.
pub(super) struct Known {
    pub(super) state: KeyState,
    pub(super) waiting: Arc<Waiting>,
    /// How often its queue has changed.
    pub(super) queue: i64,
}

/// Tokens in their order, each with when it was drawn.
pub(super) type Tokens = VecDeque<(u64, Instant)>;

#[expect(
    clippy::disallowed_methods,
    reason = "no lease depends on it, only how the database is asked and how lists are sorted"
)]
fn now() -> Instant {
    Instant::now()
}

/// The greatest token that any of these keys was given.
pub(super) fn greatest<'s>(states: impl Iterator<Item = &'s KeyState>) -> Option<FencingToken> {
    states.filter_map(|state| state.lease.as_ref()).map(|lease| lease.token).max()
}

/// Tokens that were drawn just now.
pub(super) fn drawn(tokens: &[i64]) -> Tokens {
    let now = now();
    tokens.iter().map(|token| (token.cast_unsigned(), now)).collect()
}

/// By which transaction this node wrote a key last, and how it did; which is not known of one that was only taken over.
type Mine = (i32, Option<Arc<Known>>);

/// The keys that this node wrote last, and by which transactions.
#[derive(Default)]
pub(in super::super) struct Recent(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    young: HashMap<LeaseKey, Mine>,
    old: HashMap<LeaseKey, Mine>,
    /// With by how much server time was ahead of the server's clock, in microseconds.
    basis: Option<(Basis, i64)>,
    /// Drawn and not given out, with when they were drawn.
    tokens: BTreeMap<u64, Instant>,
    /// Server time is not later than this, in microseconds, when so many had elapsed.
    latest: Option<(i64, i64)>,
    /// Until when nothing is decided by it.
    pause: Option<(Instant, Duration)>,
    /// How often it was right since it was wrong.
    right: u32,
}

/// What a batch is decided by.
pub(super) struct Guess {
    /// By how much server time is ahead of the server's clock, in microseconds.
    ahead: i64,
    /// The transactions that wrote its keys.
    written_by: HashMap<LeaseKey, i32>,
    /// So many tokens are drawn for later ones.
    tokens: i64,
}

impl Recent {
    /// Forgets all of it.
    pub(in super::super) fn clear(&self) {
        let mut memory = self.memory();
        memory.basis = None;
        memory.forget();
    }

    /// What keys were read by: what is remembered from before another outage or another server's clock is forgotten.
    pub(super) fn found(&self, basis: Basis, told: Told) {
        let mut memory = self.memory();
        if !memory.goes_by(basis) {
            memory.forget();
        }
        memory.basis = Some((basis, told.ahead().0));
    }

    /// What the database told of the time, asked for when so much had elapsed and heard of when so much had, in microseconds, of which it
    /// was at the statement for so long before it told.
    pub(in super::super) fn was_told(&self, told: Told, asked: i64, spent: i64, heard: i64) {
        let late = (heard - asked - spent).max(0);
        if late > MOST_LATE {
            return;
        }
        let told = told.time().as_micros();
        let mut memory = self.memory();
        let now = told + late;
        let latest = match memory.latest_at(heard) {
            // Else the clock was moved.
            Some(known) if known >= told => known.min(now),
            _ => now,
        };
        memory.latest = Some((heard, latest));
    }

    /// Keys as a transaction that went by this wrote them, which has been committed.
    pub(super) fn keep(&self, basis: Basis, known: Vec<Known>, written_by: i32) {
        let mut memory = self.memory();
        if !memory.goes_by(basis) {
            // Another lane has found an outage meanwhile, through which these were not read.
            return;
        }
        for known in known {
            memory.keep(known.state.lease_key.clone(), (written_by, Some(Arc::new(known))));
        }
    }

    /// Keys that this transaction took over. It is not durable yet, and its number may come again if the database crashes: nothing is
    /// decided by it.
    pub(super) fn took_over(&self, keys: Vec<LeaseKey>, taken_by: i32) {
        let mut memory = self.memory();
        for key in keys {
            memory.keep(key, (taken_by, None));
        }
    }

    /// Whether it was this node that wrote a key by this transaction.
    pub(super) fn is_mine(&self, key: &LeaseKey, written_by: i32) -> bool {
        self.memory().get(key).is_some_and(|(by, _)| *by == written_by)
    }

    /// Tokens for keys of which this is the greatest that was given, at most so many.
    pub(super) fn tokens(&self, greatest: Option<FencingToken>, wanted: usize) -> Tokens {
        self.memory().take(greatest, wanted)
    }

    /// Keeps tokens that nobody was given, drawn by transactions that went by this and have been committed: others might be drawn once
    /// more.
    pub(super) fn keep_tokens(&self, basis: Basis, tokens: Tokens) {
        let mut memory = self.memory();
        if !memory.goes_by(basis) {
            // Another server may give them out once more.
            return;
        }
        memory.tokens.extend(tokens);
        while memory.tokens.len() > TOKENS {
            memory.tokens.pop_first();
        }
    }

    /// How many tokens to draw, so that there are enough for a batch that needs so many.
    pub(super) fn lacks(&self, tokens: usize) -> usize {
        let mut memory = self.memory();
        memory.let_go();
        tokens.saturating_sub(memory.tokens.len())
    }

    /// Another node came between, or may have.
    fn was_wrong(&self, guess: &Guess) {
        let mut memory = self.memory();
        for key in guess.written_by.keys() {
            memory.young.remove(key);
            memory.old.remove(key);
        }
        let last = memory.pause.map_or(SHORTEST_PAUSE / 2, |(_, pause)| pause);
        let pause = (last * 2).min(LONGEST_PAUSE);
        memory.pause = Some((now() + pause, pause));
        memory.right = 0;
    }

    fn was_right(&self) {
        let mut memory = self.memory();
        memory.right = memory.right.saturating_add(1);
        if memory.right >= RUN {
            memory.pause = None;
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// Whether it goes by the same outage and clock: then what is remembered by the one is so by the other.
    fn goes_by(&self, basis: Basis) -> bool {
        self.basis.is_some_and(|(known, _)| (known.outage, known.ahead) == (basis.outage, basis.ahead))
    }

    /// Server time is not later than this, in microseconds, when so many have elapsed; if what was told is good enough.
    fn latest_at(&self, elapsed: i64) -> Option<i64> {
        let (heard, latest) = self.latest?;
        let passed = (elapsed - heard).max(0);
        (passed <= GOOD_FOR).then(|| latest + passed)
    }

    /// Lets go of tokens that are old. The least were drawn first.
    fn let_go(&mut self) {
        while self.tokens.first_entry().is_some_and(|first| first.get().elapsed() > TOKENS_KEPT) {
            self.tokens.pop_first();
        }
    }

    fn forget(&mut self) {
        self.young.clear();
        self.old.clear();
        self.tokens.clear();
    }

    /// The least that may be given for keys of which this is the greatest that was: for each key they rise. So many, as far as there
    /// are; those that are less are let go.
    fn take(&mut self, greatest: Option<FencingToken>, count: usize) -> Tokens {
        self.let_go();
        if let Some(greatest) = greatest {
            self.tokens = self.tokens.split_off(&(greatest.get() + 1));
        }
        std::iter::from_fn(|| self.tokens.pop_first()).take(count).collect()
    }

    fn keep(&mut self, key: LeaseKey, mine: Mine) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, mine);
    }

    fn get(&self, key: &LeaseKey) -> Option<&Mine> {
        self.young.get(key).or_else(|| self.old.get(key))
    }
}

impl PostgresTx<'_> {
    /// Remembers the keys, if all that the batch needs is remembered and there is a way to write it at once.
    pub(super) fn remember(&mut self, needs: &Needs<'_>) -> Option<Locked> {
        let store = self.store;
        let is_fit = !(needs.fresh || needs.patient || needs.access || needs.recalls || needs.keys.is_empty());
        if !is_fit || !store.beginning.is_plain() || !store.via.is_warm(WARM) {
            return None;
        }
        let mut memory = store.recent.memory();
        if memory.pause.is_some_and(|(until, _)| now() < until) {
            return None;
        }
        let (basis, ahead) = memory.basis?;
        let latest = memory.latest_at(store.clock().elapsed())?;
        let known = |key: &&LeaseKey| memory.get(key).and_then(|(by, known)| Some((*by, Arc::clone(known.as_ref()?))));
        let known: Vec<(i32, Arc<Known>)> = needs.keys.iter().map(known).collect::<Option<_>>()?;
        if !known.iter().all(|(_, known)| known.waiting.are_of(store.node())) {
            return None;
        }
        let waits = needs.waits || known.iter().any(|(_, known)| known.waiting.is_somebody());
        let wanted = needs.grants + if waits { needs.commands } else { 0 };
        let tokens = memory.take(greatest(known.iter().map(|(_, known)| &known.state)), wanted);
        if tokens.len() < wanted {
            memory.tokens.extend(tokens);
            return None;
        }
        let lacks = (2 * wanted).saturating_sub(memory.tokens.len());
        drop(memory);

        self.tokens = tokens;
        self.basis = basis;
        let mut rooms = Vec::with_capacity(known.len());
        let mut written_by = HashMap::with_capacity(known.len());
        for (xid, known) in known {
            let key = known.state.lease_key.clone();
            store.clock().at_least(known.state.changed_at);
            let mut room = Room::new(key.clone());
            room.key = known.state.clone();
            room.queue = known.waiting.queue.clone();
            rooms.push(room);
            written_by.insert(key.clone(), xid);
            self.rows.insert(
                key,
                Row { is_there: true, is_others: false, queue: known.queue, waiting: Arc::clone(&known.waiting) },
            );
        }
        // Not before it was asked for: who counts from then must not believe in a lease for longer than others do.
        self.now = store.clock().at_least(Timestamp::from_micros(latest));
        self.guess = Some(Guess { ahead, written_by, tokens: i64::try_from(lacks).unwrap_or(0) });
        Some(Locked { rooms, busy: Vec::new(), now: self.now, waiting_elsewhere: HashMap::new() })
    }

    /// Writes what was decided by memory, if that is still so.
    pub(super) async fn write_if(
        &mut self,
        guess: Guess,
        batch: &Batch,
        change: &Change,
    ) -> Result<Written, CommitError> {
        let store = self.store;
        let stale = CommitError::RolledBack;
        if !batch.is_only_records() || !batch.wakings.is_empty() {
            // Such as the answer to a waiter whose request carries an idempotency key: it is written otherwise.
            return Err(stale(StoreError::Stale));
        }
        let Some(link) = Link::for_one_warm(&store.via, WARM) else { return Err(stale(StoreError::Stale)) };
        let mut seen: HashMap<&str, i32> = guess.written_by.iter().map(|(key, by)| (key.as_str(), *by)).collect();
        let written_by: Vec<i32> = change.changed.keys.iter().filter_map(|key| seen.remove(&**key)).collect();
        let (seen, seen_written_by): (Vec<&str>, Vec<i32>) = seen.into_iter().unzip();
        let by_clock = self.now.as_micros() - guess.ahead;
        let facts = [
            self.basis.access,
            self.basis.ahead.0,
            self.basis.ahead.1,
            self.now.as_micros() - OUTAGE_AFTER,
            by_clock - MOST_BEFORE,
            by_clock + MOST_AFTER,
            guess.tokens,
            by_clock,
        ];
        let has_queues = !change.queues.is_empty();
        if change.changed.is_empty() && change.bodies.is_empty() && !has_queues {
            let ask = store.via.query_scalar(STILL_SO).bind(self.basis.outage).bind(facts.as_slice());
            let ask = ask.bind(seen).bind(seen_written_by);
            // There was nothing to commit: whatever failed, it can be read.
            let is_so: bool = link.alone(async |db| ask.fetch_one(db).await).await.unwrap_or(false);
            return if self.was_so(&guess, is_so) { Ok(Written::default()) } else { Err(stale(StoreError::Stale)) };
        }
        let write = store.via.query_as(if has_queues { WRITE_IF_QUEUES } else { WRITE_IF }).bind(self.basis.outage);
        let write = write.bind(facts.as_slice()).bind(written_by).bind(seen).bind(seen_written_by);
        let mut write = change.bind(write);
        if has_queues {
            (write, _) = change.queues.bind(write, store.node(), &[], self.now).map_err(stale)?;
        }
        let flush = store.metrics.flush();
        type Answer = (bool, i64, i64, Option<i64>, Vec<i64>);
        let (is_so, changed, logged, by, tokens): Answer = link.alone(async |db| write.fetch_one(db).await).await?;
        if !self.was_so(&guess, is_so) {
            return Err(stale(StoreError::Stale));
        }
        flush.observe();
        if (changed, logged) != (change.changed.len(), change.bodies.len() as i64) {
            // It locked all of them.
            return Err(CommitError::Unknown(StoreError::corrupt("keys that were locked are not there")));
        }
        store.recent.keep_tokens(self.basis, drawn(&tokens));
        let by = by.map(transaction).transpose().map_err(CommitError::Unknown)?;
        Ok(Written { by, ..Written::default() })
    }

    /// Notes whether all was as it was remembered.
    fn was_so(&self, guess: &Guess, is_so: bool) -> bool {
        let (recent, result) = (&self.store.recent, if is_so { "right" } else { "stale" });
        self.store.metrics.remembered.get_or_create(&ByResult { result }).inc();
        if is_so {
            recent.was_right()
        } else {
            recent.was_wrong(guess)
        }
        is_so
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(token: u64) -> FencingToken {
        FencingToken::new(token).unwrap()
    }

    const BASIS: Basis = Basis { outage: 3, access: 4, ahead: (0, 0) };

    fn recent() -> Recent {
        let recent = Recent::default();
        recent.found(BASIS, Told::new((1_000, 0, 0, true)));
        recent
    }

    fn guess(key: &LeaseKey) -> Guess {
        Guess { ahead: 0, written_by: HashMap::from([(key.clone(), 1)]), tokens: 0 }
    }

    #[test]
    fn a_key_is_given_a_token_greater_than_its_last_whoever_drew_that_and_when() {
        let recent = recent();
        let just_now = |tokens: std::ops::Range<i64>| drawn(&tokens.collect::<Vec<_>>());
        let taken = |greatest, wanted| {
            let tokens = recent.tokens(greatest, wanted);
            tokens.into_iter().map(|(token, _)| token).collect::<Vec<_>>()
        };
        recent.keep_tokens(BASIS, just_now(10..20));
        // Another lane drew 15 meanwhile, and has given it for this key.
        assert_eq!(taken(Some(token(15)), 2), [16, 17]);
        recent.keep_tokens(BASIS, just_now(21..23));
        assert_eq!(taken(None, 9), [18, 19, 21, 22]);
        assert_eq!(recent.lacks(4), 4);
        recent.keep_tokens(BASIS, just_now(0..10_000));
        assert_eq!(recent.lacks(10_000), 10_000 - TOKENS);
        assert_eq!(taken(None, 1), [10_000 - TOKENS as u64]);
        let old = now() - 2 * TOKENS_KEPT;
        let recent = self::recent();
        recent.keep_tokens(BASIS, Tokens::from([(1, old), (2, now())]));
        assert_eq!(recent.lacks(2), 1, "what sorts by tokens would put the first before what was granted meanwhile");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_oldest_goes_first() {
        let recent = recent();
        let key = |n: usize| LeaseKey::parse(&format!("k{n}")).unwrap();
        for n in 0..3 * GENERATION {
            let known = Known { state: KeyState::new(key(n)), waiting: Arc::default(), queue: 0 };
            recent.keep(BASIS, vec![known], 1);
        }
        let memory = recent.memory();
        assert!(memory.young.len() + memory.old.len() <= 2 * GENERATION);
        assert!(memory.get(&key(0)).is_none());
        assert!(memory.get(&key(2 * GENERATION)).is_some() && memory.get(&key(3 * GENERATION - 1)).is_some());
    }

    #[test]
    fn who_was_wrong_again_and_again_goes_by_memory_less_and_less_and_as_before_when_right_for_a_while() {
        let recent = recent();
        let wrong = guess(&LeaseKey::parse("a").unwrap());
        let pause = || recent.memory().pause.map(|(_, pause)| pause);
        let mut pauses = Vec::new();
        for _ in 0..10 {
            recent.was_wrong(&wrong);
            pauses.push(pause().unwrap());
        }
        assert!(pauses.is_sorted() && pauses[0] == SHORTEST_PAUSE && pauses[9] == LONGEST_PAUSE, "{pauses:?}");
        for _ in 1..RUN {
            recent.was_right();
        }
        assert_eq!(pause(), Some(LONGEST_PAUSE));
        recent.was_right();
        assert_eq!(pause(), None);
    }

    #[test]
    fn what_was_remembered_before_an_outage_or_by_another_clock_is_forgotten() {
        let recent = Recent::default();
        let told = |ahead| Told::new((1_000, ahead, 500, true));
        let key = LeaseKey::parse("a").unwrap();
        let mut before = BASIS;
        for (n, (outage, access, ahead, kept)) in
            [(1, 1, 0, false), (1, 2, 0, true), (2, 2, 0, false), (2, 2, 7, false), (2, 3, 7, true)]
                .into_iter()
                .enumerate()
        {
            let basis = Basis::new(outage, access, told(ahead));
            recent.found(basis, told(ahead));
            assert_eq!((recent.lacks(1) == 0, recent.memory().get(&key).is_some()), (kept, kept), "{n}");
            let known = || vec![Known { state: KeyState::new(key.clone()), waiting: Arc::default(), queue: 0 }];
            if !kept {
                // What a transaction wrote and drew that had begun before that, and is told of only now.
                recent.keep_tokens(before, drawn(&[1]));
                recent.keep(before, known(), 1);
                assert_eq!((recent.lacks(1), recent.memory().get(&key).is_some()), (1, false), "{n}");
            }
            recent.keep_tokens(basis, drawn(&[1]));
            recent.keep(basis, known(), 1);
            before = basis;
        }
    }

    #[test]
    fn it_is_known_how_late_it_is_at_the_most() {
        let recent = Recent::default();
        let at = |elapsed| recent.memory().latest_at(elapsed);
        let told = |clock| Told::new((clock, 0, 0, true));
        assert_eq!(at(0), None);
        // Asked at 100 and heard at 400, of which the database was at it for 50 before it told.
        recent.was_told(told(10_000), 100, 50, 400);
        assert_eq!((at(400), at(10_400), at(400 + GOOD_FOR + 1)), (Some(10_250), Some(20_250), None));
        // Whoever tells later what is no later is no better; who tells it sooner is.
        recent.was_told(told(10_100), 500, 0, 900);
        assert_eq!(at(900), Some(10_500));
        recent.was_told(told(10_600), 1_000, 0, 1_010);
        assert_eq!(at(1_010), Some(10_610));
        // What was on its way for too long tells nothing.
        recent.was_told(told(10_600), 1_000, 0, 1_001 + MOST_LATE);
        assert_eq!(at(1_010), Some(10_610));
        // The clock was put forward.
        recent.was_told(told(50_000), 1_100, 0, 1_200);
        assert_eq!(at(1_200), Some(50_100));
    }
}
