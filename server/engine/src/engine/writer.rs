//! A lane behind the door: it takes all that waits in it as one batch, decides it, commits it, and only then answers.
//!
//! Nothing is delayed on purpose: an idle lane commits one command at once, a busy one shares each flush among all that
//! came meanwhile. Callers that hang up cannot cancel anything half way: they only stop listening.
//!
//! Where the database can take several transactions at once there are several lanes, each for some of the keys. Keys that
//! another node has locked go to a lane that waits for them, so that one hot key does not hold up the rest.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::lease::{Change, Command, LeaseId, Outage, Reply, Rules};
use domain::{Actor, LeaseKey, Span, Timestamp};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::attending::Attending;
use super::delivery::Delivery;
use super::desk::Desk;
use super::staging::{Decided, Prepared, Staging, Verdict, needs, other};
use super::waiting::{Caller, Callers, Timers};
use super::work::{Done, Outcome, Task, Work, refuse, tell};
use crate::access::Directory;
use crate::clock::Clock;
use crate::error::{Fault, StoreError};
use crate::metrics::{ByCommand, Metrics, seconds};
use crate::store::{Batch, CommitError, Store, Tx};
use crate::timeline::{Happening, Record};

/// A batch with so many commands takes in no more: what comes later would share its flush, but wait for all of it.
const BATCH: usize = 512;

/// For so long at most those who join a queue wait for company: others are before them anyway, and what they bring about does not
/// depend on when it is written.
const COMPANY: Duration = Duration::from_millis(2);

/// Of so many keys a lane remembers that somebody waits for them.
const CROWDED: usize = 10_000;

/// How often refusals are written and the clock's mark is renewed.
const TICK: Duration = Duration::from_secs(1);

/// How long after its time a caller who waits is given up.
const FORGOTTEN: Span = Span::millis(3_000);

/// How often one command is tried when other transactions are in its way.
const ATTEMPTS: u32 = 5;

/// The most of its own works that a lane keeps while the database does not answer.
const PUT_OFF: usize = 10_000;

/// Between attempts to read the database anew.
const RELOAD_PAUSE: Duration = Duration::from_millis(500);

/// A lane's side of the door.
pub(super) struct Writer<S: Store> {
    pub(super) store: Arc<S>,
    pub(super) rules: Rules,
    pub(super) clock: Arc<Clock>,
    pub(super) directory: Arc<Directory>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) works: Receiver<Work>,
    pub(super) left: UnboundedReceiver<LeaseKey>,
    pub(super) lane: Lane,
    pub(super) desk: Arc<Desk>,
    pub(super) attending: Arc<Attending>,
    /// Whether the database answers.
    pub(super) healthy: Arc<AtomicBool>,
    pub(super) stop: CancellationToken,
    pub(super) timers: Timers,
    pub(super) actors: Actors,
    /// What a patient lane does later, since other keys come first.
    pub(super) later: VecDeque<Work>,
    /// What the server gave itself to do and could not: it is tried again at the next tick.
    pub(super) put_off: Vec<Work>,
    /// Keys for which somebody waited when this lane last wrote them.
    pub(super) crowded: HashSet<LeaseKey>,
}

/// What a lane does besides its works.
pub(super) enum Lane {
    /// It ends grants that were not delivered, writes what was refused, and shows that the service lives; works on busy keys
    /// it gives away, if there is a lane for them.
    First { lost: UnboundedReceiver<(LeaseKey, LeaseId)>, patient: Option<Sender<Work>> },
    /// Nothing; works on busy keys it gives away.
    Further { patient: Sender<Work> },
    /// It waits for keys that are busy, one after another.
    Patient,
}

impl Lane {
    async fn lost(&mut self) -> Option<(LeaseKey, LeaseId)> {
        match self {
            Self::First { lost, .. } => lost.recv().await,
            Self::Further { .. } | Self::Patient => std::future::pending().await,
        }
    }

    fn try_lost(&mut self) -> Option<(LeaseKey, LeaseId)> {
        match self {
            Self::First { lost, .. } => lost.try_recv().ok(),
            Self::Further { .. } | Self::Patient => None,
        }
    }

    const fn patient(&self) -> Option<&Sender<Work>> {
        match self {
            Self::First { patient, .. } => patient.as_ref(),
            Self::Further { patient } => Some(patient),
            Self::Patient => None,
        }
    }

    const fn is_first(&self) -> bool {
        matches!(self, Self::First { .. })
    }

    const fn is_patient(&self) -> bool {
        matches!(self, Self::Patient)
    }
}

/// The parts of the server that act by themselves.
pub(super) struct Actors {
    clock: Arc<Actor>,
    delivery: Arc<Actor>,
    counter: Arc<Actor>,
}

impl Default for Actors {
    fn default() -> Self {
        let part = |name| Arc::new(Actor::system(name));
        Self { clock: part("clock"), delivery: part("delivery"), counter: part("counter") }
    }
}

/// Why a batch was not committed.
enum Failure {
    /// Nothing of it happened, and nothing else would: the database does not answer.
    Away(StoreError),
    /// Nothing of it happened.
    RolledBack(StoreError),
    /// It may have happened or not.
    Unknown(StoreError),
}

impl Failure {
    fn before_commit(error: StoreError) -> Self {
        if error.is_away() { Self::Away(error) } else { Self::RolledBack(error) }
    }
}

impl<S: Store> Writer<S> {
    /// Works until the door is closed and all that waited behind it is done.
    pub(super) async fn run(mut self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut works: Vec<Work> = Vec::with_capacity(BATCH);
        let mut closing = false;
        loop {
            works.clear();
            if let Some(work) = self.later.pop_front() {
                works.push(work);
            } else {
                let due = self.timers.next().map(|at| self.until(at));
                tokio::select! {
                    biased;
                    () = self.stop.cancelled(), if !closing => {
                        // What waits already is still done; nothing new comes in.
                        self.works.close();
                        closing = true;
                    }
                    Some((key, lease_id)) = self.lane.lost() => works.push(undelivered(&self.actors, &self.metrics, key, lease_id)),
                    work = self.works.recv() => match work {
                        Some(work) => works.push(work),
                        None => break,
                    },
                    Some(key) = self.left.recv() => {
                        self.desk.callers().forget_gone();
                        works.push(self.settle(key));
                    }
                    () = tokio::time::sleep(due.unwrap_or(TICK)), if due.is_some() => {}
                    _ = tick.tick() => {
                        works.append(&mut self.put_off);
                        if self.lane.is_first() {
                            self.tick(&mut works).await;
                        }
                        // And the time is looked at anew, which may have gone on otherwise than was expected.
                    }
                }
            }
            self.gather(&mut works);
            if works.is_empty() {
                continue;
            }
            self.wait_for_company(&mut works).await;
            // The service lives while it waits: without a mark of the clock that would be an outage.
            while tokio::select! {
                () = self.store.caught_up() => false,
                _ = tick.tick() => true,
            } {
                self.mark().await;
            }
            self.carry_out(&mut works).await;
        }
        self.finish(&mut works).await;
    }

    fn until(&self, at: Timestamp) -> Duration {
        let micros = at.since(self.clock.now()).as_micros();
        // Rounded up to the timer's granularity, or it would fire early and often.
        Duration::from_micros(micros.cast_unsigned()) + Duration::from_millis(1)
    }

    fn settle(&self, key: LeaseKey) -> Work {
        Work::system(&self.actors.clock, Task::One(key, Command::Settle))
    }

    /// Takes what else is there: grants that were not delivered and keys whose time has come go first.
    fn gather(&mut self, works: &mut Vec<Work>) {
        let mut first: Vec<Work> = Vec::new();
        while first.len() < BATCH
            && let Some((key, lease_id)) = self.lane.try_lost()
        {
            first.push(undelivered(&self.actors, &self.metrics, key, lease_id));
        }
        while first.len() < BATCH
            && let Ok(key) = self.left.try_recv()
        {
            first.push(self.settle(key));
        }
        let due = self.timers.due(self.clock.now(), BATCH);
        first.extend(due.into_iter().map(|key| self.settle(key)));
        if !first.is_empty() {
            self.desk.callers().forget_gone();
            works.splice(0..0, first);
        }
        let mut weight: usize = works.iter().map(Work::weight).sum();
        while weight < BATCH
            && let Ok(work) = self.works.try_recv()
        {
            weight += work.weight();
            works.push(work);
        }
        if self.lane.is_patient() {
            self.take_turns(works);
        }
    }

    /// While all there is to do is to let callers join queues: the next release of their key, which comes soon where many take
    /// turns, then shares its flush with them.
    async fn wait_for_company(&mut self, works: &mut Vec<Work>) {
        let mut over = std::pin::pin!(tokio::time::sleep(COMPANY));
        while works.iter().all(|work| self.only_joins(work)) {
            tokio::select! {
                biased;
                Some(work) = self.works.recv() => works.push(work),
                () = &mut over => return,
            }
            self.gather(works);
        }
    }

    fn only_joins(&self, work: &Work) -> bool {
        match &work.task {
            Task::One(key, Command::Acquire { wait: Some(_), .. }) => self.crowded.contains(key),
            _ => false,
        }
    }

    /// Leaves what concerns the same single key as the first work, and puts off the rest: for each key its turn.
    fn take_turns(&mut self, works: &mut Vec<Work>) {
        let Some(first) = works.first() else { return };
        let key = match &first.task {
            Task::One(key, _) => Some(key.clone()),
            _ => None,
        };
        let mut now = Vec::with_capacity(works.len());
        for work in works.drain(..) {
            let belongs = match (&work.task, &key) {
                (Task::One(of, _), Some(key)) => of == key,
                _ => false,
            };
            if now.is_empty() || belongs { now.push(work) } else { self.later.push_back(work) }
        }
        if let Some(key) = &key {
            let (same, other): (VecDeque<Work>, VecDeque<Work>) = std::mem::take(&mut self.later)
                .into_iter()
                .partition(|work| matches!(&work.task, Task::One(of, _) if of == key));
            // Those that were put off before came earlier.
            let at = now.len().min(1);
            now.splice(at..at, same);
            self.later = other;
        }
        *works = now;
    }

    async fn mark(&self) {
        if let Err(error) = self.store.mark().await {
            tracing::error!(%error, "the clock's mark could not be written");
        }
    }

    async fn tick(&mut self, works: &mut Vec<Work>) {
        let counter = Arc::clone(&self.actors.counter);
        let refused = self.desk.take_refused();
        works.extend(refused.into_iter().map(|refused| Work::system(&counter, Task::Refusals(refused))));
        let now = self.clock.now();
        let ended = self.desk.callers().take_if(|caller| self.directory.has_ended(&caller.actor, now));
        for caller in ended {
            // Its place in the queue goes when it has gone; until then it is passed over.
            tell(Some(caller.reply), Err(Fault::NotGoodAnyMore));
        }
        // Their time was up a while ago, and nobody has told them: what they would have been told is lost.
        let forgotten = self.desk.callers().take_if(|caller| caller.until + FORGOTTEN < now);
        for caller in forgotten {
            tell(Some(caller.reply), Err(Fault::UNAVAILABLE));
        }
        // Whatever else there is to write: if that fails, the service has lived all the same.
        self.mark().await;
        if works.is_empty() {
            // Nothing to do but to see whether there was an outage, and whether the database answers.
            self.carry_out(works).await;
        }
    }

    /// Carries out a batch; if it fails, its members one by one, so that only the offender fails.
    async fn carry_out(&mut self, works: &mut Vec<Work>) {
        let mut done = self.attempt(works, false).await;
        if let Err(Failure::RolledBack(StoreError::Stale)) = done {
            done = self.attempt(works, true).await;
        }
        match done {
            Ok(()) => {}
            Err(Failure::Away(error)) => self.give_up(works, &error),
            Err(Failure::Unknown(error)) => self.reload(works, &error).await,
            Err(Failure::RolledBack(error)) => {
                tracing::warn!(%error, commands = works.len(), "a batch was rolled back; its commands are tried one by one");
                for work in std::mem::take(works) {
                    self.carry_out_one(work).await;
                }
            }
        }
    }

    async fn carry_out_one(&mut self, work: Work) {
        let mut single = vec![work];
        let mut attempts = 1;
        loop {
            match self.attempt(&mut single, true).await {
                Ok(()) => return,
                Err(Failure::Away(error)) => return self.give_up(&mut single, &error),
                Err(Failure::Unknown(error)) => return self.reload(&mut single, &error).await,
                // Another transaction was in the way, which is over by now.
                Err(Failure::RolledBack(error)) if error.is_passing() && attempts < ATTEMPTS => attempts += 1,
                Err(Failure::RolledBack(error)) => {
                    tracing::error!(%error, "a command failed");
                    return refuse(single, &Fault::UNAVAILABLE);
                }
            }
        }
    }

    /// The database does not answer: so everybody is told. What the server gave itself to do is done later.
    fn give_up(&mut self, works: &mut Vec<Work>, error: &StoreError) {
        if self.healthy.swap(false, Ordering::AcqRel) {
            tracing::error!(%error, "the database does not answer");
        }
        let room = PUT_OFF.saturating_sub(self.put_off.len());
        self.put_off.extend(works.extract_if(.., |work| work.reply.is_none()).take(room));
        refuse(works.drain(..), &Fault::UNAVAILABLE);
    }

    /// One attempt at all of it: until it is committed nothing but the database knows of it.
    /// Unless all is to be read `fresh`, the store may go by what it remembers.
    async fn attempt(&mut self, works: &mut Vec<Work>, fresh: bool) -> Result<(), Failure> {
        let mut tx = self.store.begin().await.map_err(Failure::before_commit)?;
        if let Some(outage) = tx.outage() {
            self.record(outage, tx).await?;
            tx = self.store.begin().await.map_err(Failure::before_commit)?;
        }
        let locked = tx.lock(&needs(works, self.lane.is_patient(), fresh)).await.map_err(Failure::before_commit)?;
        if !locked.busy.is_empty() {
            self.give_away(works, &locked.busy);
        }
        let prepared = Prepared::read(tx, locked, works).await.map_err(Failure::before_commit)?;
        let Decided { tx, now, batch, verdicts, woken, timers } = {
            let mut callers = self.desk.callers();
            let staging = Staging::new(prepared, &self.rules, &callers, &self.directory);
            let decided = staging.decide(works);
            // Before the commit, since after it any lane or node may serve them.
            seat(&mut callers, works, &decided.verdicts, decided.now);
            decided
        };
        let crowds: Vec<(LeaseKey, bool)> =
            batch.rooms.iter().map(|room| (room.key.lease_key.clone(), !room.queue.is_empty())).collect();
        let records = match commit(tx, batch).await {
            Ok(records) => records,
            Err(failure) => {
                let mut callers = self.desk.callers();
                unseat(&mut callers, works, &verdicts);
                // Whoever was seated and has gone since, or was told that the server stops, is granted nothing any more.
                works.retain(|work| work.alive.is_none() || work.reply.is_some());
                if matches!(failure, Failure::Unknown(_)) {
                    // What they would have been told nobody knows.
                    for caller in woken.iter().filter_map(|(woken, _)| callers.remove(woken.waiter)) {
                        tell(Some(caller.reply), Err(Fault::UNAVAILABLE));
                    }
                }
                return Err(failure);
            }
        };

        self.measure(works, &records);
        self.attending.tell(&records);
        for (key, at) in timers {
            self.timers.set(&key, at);
        }
        self.note_crowds(crowds);
        for (work, verdict) in works.drain(..).zip(verdicts) {
            self.answer(work, verdict, now);
        }
        for (woken, is_kept) in woken {
            self.desk.wake(woken, is_kept, now);
        }
        self.desk.count_waiting();
        if !self.healthy.swap(true, Ordering::AcqRel) {
            tracing::warn!("the database answers again");
        }
        Ok(())
    }

    /// Notes for which of these keys somebody waits.
    fn note_crowds(&mut self, crowds: Vec<(LeaseKey, bool)>) {
        for (key, is_crowded) in crowds {
            if is_crowded && self.crowded.len() < CROWDED {
                self.crowded.insert(key);
            } else if !is_crowded {
                self.crowded.remove(&key);
            }
        }
    }

    /// Gives works on busy keys to the lane that waits for them.
    fn give_away(&self, works: &mut Vec<Work>, busy: &[LeaseKey]) {
        let busy: HashSet<&LeaseKey> = busy.iter().collect();
        let is_busy = |work: &mut Work| {
            if let Task::Batch(commands) = &mut work.task
                && commands.iter().all(|(_, command)| *command == Command::Settle)
            {
                // Whoever is at a key settles it.
                commands.retain(|(key, _)| !busy.contains(key));
            }
            work.keys().any(|key| busy.contains(key))
        };
        for work in works.extract_if(.., is_busy) {
            // The engine has such a lane wherever keys can be busy.
            let Some(patient) = self.lane.patient() else { continue };
            match patient.try_send(work) {
                Ok(()) => {}
                Err(TrySendError::Full(work)) => refuse([work], &Fault::OVERLOADED),
                Err(TrySendError::Closed(work)) => refuse([work], &Fault::Stopping),
            }
        }
    }

    /// Records an outage, before anything else is decided.
    async fn record(&self, outage: Outage, tx: S::Tx<'_>) -> Result<(), Failure> {
        let record = other(outage.to, &self.actors.clock, None, Happening::Outage(outage));
        let batch = Batch { records: vec![record], ..Batch::default() };
        tracing::warn!(from = %outage.from, to = %outage.to, "the service was away; leases that were alive are extended");
        self.metrics.outages.inc();
        commit(tx, batch).await.map(|_| ())
    }

    fn answer(&self, work: Work, verdict: Verdict, now: Timestamp) {
        if let (Verdict::Fault(Fault::Refused(refusal)), Task::One(key, Command::Acquire { request, .. })) =
            (&verdict, &work.task)
        {
            self.desk.refused(key, &request.owner, refusal);
        }
        if let (Verdict::Fault(Fault::Refused(refusal)), Task::Many(requests)) = (&verdict, &work.task)
            && let Some((key, request)) = requests.first()
        {
            self.desk.refused(key, &request.owner, refusal);
        }
        if let (Verdict::Done { outcome: Outcome::Batch(results), .. }, Task::Batch(commands)) = (&verdict, &work.task)
        {
            for (result, (key, command)) in results.iter().zip(commands) {
                if let (Err(refusal), Command::Acquire { request, .. }) = (result, command) {
                    self.desk.refused(key, &request.owner, refusal);
                }
            }
        }
        match verdict {
            // Seated already.
            Verdict::Waiting(_) => {}
            Verdict::Fault(fault) => {
                self.desk.count(&fault);
                tell(work.reply, Err(fault));
            }
            Verdict::Done { outcome, replayed, granted } => {
                if replayed {
                    self.metrics.replays.inc();
                }
                let delivery = if granted && !replayed && work.call.idempotency.is_none() && work.reply.is_some() {
                    Delivery::new(granted_leases(&work.task, &outcome), self.desk.lost())
                } else {
                    None
                };
                tell(work.reply, Ok(Done { value: outcome, server_time: now, replayed, delivery }));
            }
        }
    }

    fn measure(&self, works: &[Work], records: &[Arc<Record>]) {
        self.metrics.batch_size.observe(works.len() as f64);
        for (_, command) in works.iter().flat_map(Work::commands) {
            self.metrics.commands.get_or_create(&ByCommand { command: command.name() }).inc();
        }
        for record in records {
            if let Record::Lease(event) = &**record
                && let Change::Renewed(renewed) = &event.change
            {
                self.metrics.margin_seconds.observe(seconds(renewed.margin_us));
            }
        }
    }

    /// Nobody knows whether the last commit happened: its callers are told so, and the database is read anew.
    async fn reload(&mut self, works: &mut Vec<Work>, error: &StoreError) {
        tracing::error!(%error, "a commit failed and may have happened; reading the database anew");
        self.healthy.store(false, Ordering::Release);
        refuse(works.drain(..), &Fault::UNAVAILABLE);
        if !S::QUEUES_ARE_STORED {
            let callers: Vec<Caller> = self.desk.callers().drain().collect();
            for caller in callers {
                tell(Some(caller.reply), Err(Fault::UNAVAILABLE));
            }
            self.timers.clear();
        }
        while let Err(error) = self.store.reload().await {
            tracing::error!(%error, "the database cannot be read");
            tokio::time::sleep(RELOAD_PAUSE).await;
            while let Ok(work) = self.works.try_recv() {
                refuse([work], &Fault::UNAVAILABLE);
            }
        }
        self.healthy.store(true, Ordering::Release);
        tracing::warn!("the database was read anew");
    }

    /// The door is closed and the queue is empty: waiters are told, and what was counted is written.
    async fn finish(&mut self, works: &mut Vec<Work>) {
        let callers: Vec<Caller> = self.desk.callers().drain().collect();
        for caller in callers {
            tell(Some(caller.reply), Err(Fault::Stopping));
        }
        works.clear();
        if !self.lane.is_first() {
            return;
        }
        while let Some((key, lease_id)) = self.lane.try_lost() {
            works.push(undelivered(&self.actors, &self.metrics, key, lease_id));
        }
        let counter = Arc::clone(&self.actors.counter);
        let refused = self.desk.take_refused();
        works.extend(refused.into_iter().map(|refused| Work::system(&counter, Task::Refusals(refused))));
        if !works.is_empty() {
            self.carry_out(works).await;
        }
    }
}

fn undelivered(actors: &Actors, metrics: &Metrics, key: LeaseKey, lease_id: LeaseId) -> Work {
    metrics.undelivered.inc();
    Work::system(&actors.delivery, Task::One(key, Command::Undelivered { lease_id }))
}

/// Seats those who are to wait.
fn seat(callers: &mut Callers, works: &mut [Work], verdicts: &[Verdict], now: Timestamp) {
    for (work, verdict) in works.iter_mut().zip(verdicts) {
        if let Verdict::Waiting(waiter) = verdict
            && let Task::One(key, Command::Acquire { request, wait: Some(wait) }) = &work.task
            && let (Some(alive), Some(reply)) = (work.alive.clone(), work.reply.take())
        {
            let until = now + wait.time;
            let idempotency = work.call.remembered_as().zip(work.call.idempotency.clone());
            let (owner, actor) = (request.owner.clone(), Arc::clone(&work.call.actor));
            callers.insert(
                *waiter,
                Caller { key: key.clone(), owner, actor, since: now, until, alive, reply, idempotency },
            );
        }
    }
}

/// Those who were to wait stand before the door again: nothing was committed.
fn unseat(callers: &mut Callers, works: &mut [Work], verdicts: &[Verdict]) {
    for (work, verdict) in works.iter_mut().zip(verdicts) {
        if let Verdict::Waiting(waiter) = verdict
            && let Some(caller) = callers.remove(*waiter)
        {
            work.reply = Some(caller.reply);
        }
    }
}

async fn commit<T: Tx>(tx: T, batch: Batch) -> Result<Vec<Arc<Record>>, Failure> {
    tx.commit(batch).await.map_err(|error| match error {
        CommitError::RolledBack(error) => Failure::before_commit(error),
        CommitError::Unknown(error) => Failure::Unknown(error),
    })
}

/// The leases that an answer hands to its caller as theirs.
fn granted_leases(task: &Task, outcome: &Outcome) -> Vec<(LeaseKey, LeaseId)> {
    let id = |reply: &Reply| -> Vec<(LeaseKey, LeaseId)> {
        reply.leases().map(|reading| (reading.lease_key.clone(), reading.lease.id())).collect()
    };
    match (task, outcome) {
        (Task::One(_, Command::Acquire { .. }) | Task::Many(_), Outcome::Reply(reply)) => id(reply),
        (Task::Batch(commands), Outcome::Batch(results)) => commands
            .iter()
            .zip(results)
            .filter(|((_, command), _)| matches!(command, Command::Acquire { .. }))
            .filter_map(|(_, result)| result.as_ref().ok())
            .flat_map(id)
            .collect(),
        _ => Vec::new(),
    }
}
