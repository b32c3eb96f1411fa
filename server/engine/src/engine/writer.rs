//! The one task that writes: it takes all that waits as one batch, decides it, commits it, and only then answers.
//!
//! Nothing is delayed on purpose: an idle writer commits one command at once, a busy one shares each flush among all that
//! came meanwhile. Callers that hang up cannot cancel anything half way: they only stop listening.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::lease::{Change, Command, LeaseId, Outage, Reply, Rules, Woken};
use domain::{Actor, LeaseKey, Timestamp};
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, UnboundedSender};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::attending::Attending;
use super::delivery::Delivery;
use super::refusals::Refusals;
use super::staging::{Decided, Staging, Verdict, other};
use super::waiting::{Caller, Callers, Timers};
use super::work::{Answered, Done, Outcome, Task, Work};
use crate::access::Directory;
use crate::clock::Clock;
use crate::error::{Fault, StoreError};
use crate::metrics::{ByCode, ByCommand, Metrics, seconds};
use crate::store::{Batch, CommitError, Store, Tx};
use crate::timeline::{Happening, Line, Record};

/// A batch with so many commands takes in no more: what comes later would share its flush, but wait for all of it.
const BATCH: usize = 512;

/// How often refusals are written and the clock's mark is renewed.
const TICK: Duration = Duration::from_secs(1);

/// Between attempts to read the database anew.
const RELOAD_PAUSE: Duration = Duration::from_millis(500);

/// The writer's side of the door.
pub(super) struct Writer<S: Store> {
    pub(super) store: Arc<S>,
    pub(super) rules: Rules,
    pub(super) clock: Arc<Clock>,
    pub(super) directory: Arc<Directory>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) works: Receiver<Work>,
    pub(super) lost: UnboundedReceiver<(LeaseKey, LeaseId)>,
    pub(super) lost_sender: UnboundedSender<(LeaseKey, LeaseId)>,
    pub(super) left: UnboundedReceiver<LeaseKey>,
    pub(super) attending: Arc<Attending>,
    /// Whether the database answers.
    pub(super) healthy: Arc<AtomicBool>,
    pub(super) stop: CancellationToken,
    pub(super) callers: Callers,
    pub(super) timers: Timers,
    pub(super) refusals: Refusals,
    pub(super) actors: Actors,
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
    /// Nothing of it happened.
    RolledBack(StoreError),
    /// It may have happened or not.
    Unknown(StoreError),
}

impl<S: Store> Writer<S> {
    /// Works until the door is closed and all that waited behind it is done.
    pub(super) async fn run(mut self, mark: impl AsyncFn() -> Result<(), StoreError>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut works: Vec<Work> = Vec::with_capacity(BATCH);
        let mut closing = false;
        loop {
            works.clear();
            let due = self.timers.next().map(|at| self.until(at));
            tokio::select! {
                biased;
                () = self.stop.cancelled(), if !closing => {
                    // What waits already is still done; nothing new comes in.
                    self.works.close();
                    closing = true;
                }
                Some((key, lease_id)) = self.lost.recv() => works.push(self.undelivered(key, lease_id)),
                work = self.works.recv() => match work {
                    Some(work) => works.push(work),
                    None => break,
                },
                Some(key) = self.left.recv() => {
                    self.callers.forget_gone();
                    works.push(self.settle(key));
                }
                () = tokio::time::sleep(due.unwrap_or(TICK)), if due.is_some() => {}
                _ = tick.tick() => {
                    self.tick(&mut works, &mark).await;
                    if works.is_empty() { continue }
                }
            }
            self.gather(&mut works);
            if works.is_empty() {
                continue;
            }
            // The service lives while it waits: without a mark of the clock that would be an outage.
            while tokio::select! {
                () = self.store.caught_up() => false,
                _ = tick.tick() => true,
            } {
                self.mark(&mark).await;
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

    fn undelivered(&self, key: LeaseKey, lease_id: LeaseId) -> Work {
        self.metrics.undelivered.inc();
        Work::system(&self.actors.delivery, Task::One(key, Command::Undelivered { lease_id }))
    }

    fn settle(&self, key: LeaseKey) -> Work {
        Work::system(&self.actors.clock, Task::One(key, Command::Settle))
    }

    /// Takes what else is there: grants that were not delivered and keys whose time has come go first.
    fn gather(&mut self, works: &mut Vec<Work>) {
        let mut first: Vec<Work> = Vec::new();
        while first.len() < BATCH
            && let Ok((key, lease_id)) = self.lost.try_recv()
        {
            first.push(self.undelivered(key, lease_id));
        }
        while first.len() < BATCH
            && let Ok(key) = self.left.try_recv()
        {
            first.push(self.settle(key));
        }
        let due = self.timers.due(self.clock.now(), BATCH);
        first.extend(due.into_iter().map(|key| self.settle(key)));
        if !first.is_empty() {
            self.callers.forget_gone();
            works.splice(0..0, first);
        }
        let mut weight: usize = works.iter().map(Work::weight).sum();
        while weight < BATCH
            && let Ok(work) = self.works.try_recv()
        {
            weight += work.weight();
            works.push(work);
        }
    }

    async fn mark(&self, mark: &impl AsyncFn() -> Result<(), StoreError>) {
        if let Err(error) = mark().await {
            tracing::error!(%error, "the clock's mark could not be written");
        }
    }

    async fn tick(&mut self, works: &mut Vec<Work>, mark: &impl AsyncFn() -> Result<(), StoreError>) {
        let counter = Arc::clone(&self.actors.counter);
        works.extend(self.refusals.take().into_iter().map(|refused| Work::system(&counter, Task::Refusals(refused))));
        let now = self.clock.now();
        for caller in self.callers.take_if(|caller| self.directory.has_ended(&caller.actor, now)) {
            // Its place in the queue goes when it has gone; until then it is passed over.
            tell(Some(caller.reply), Err(Fault::NotGoodAnyMore));
        }
        // Whatever else there is to write: if that fails, the service has lived all the same.
        self.mark(mark).await;
        if works.is_empty() {
            // Nothing to do but to see whether there was an outage.
            self.carry_out(works).await;
        }
    }

    /// Carries out a batch; if it fails, its members one by one, so that only the offender fails.
    async fn carry_out(&mut self, works: &mut Vec<Work>) {
        match self.attempt(works).await {
            Ok(()) => {}
            Err(Failure::Unknown(error)) => self.reload(works, &error).await,
            Err(Failure::RolledBack(error)) => {
                tracing::warn!(%error, commands = works.len(), "a batch was rolled back; its commands are tried one by one");
                for work in std::mem::take(works) {
                    let mut single = vec![work];
                    match self.attempt(&mut single).await {
                        Ok(()) => {}
                        Err(Failure::RolledBack(error)) => {
                            tracing::error!(%error, "a command failed");
                            refuse(single, &Fault::UNAVAILABLE);
                        }
                        Err(Failure::Unknown(error)) => self.reload(&mut single, &error).await,
                    }
                }
            }
        }
    }

    /// One attempt at all of it: until it is committed nothing but the database knows of it.
    async fn attempt(&mut self, works: &mut Vec<Work>) -> Result<(), Failure> {
        let mut tx = self.store.begin().await.map_err(Failure::RolledBack)?;
        if let Some(outage) = tx.outage() {
            self.record(outage, tx).await?;
            tx = self.store.begin().await.map_err(Failure::RolledBack)?;
        }
        let staging = Staging::prepare(tx, works, &self.rules, &self.callers, &self.directory)
            .await
            .map_err(Failure::RolledBack)?;
        let Decided { tx, now, batch, verdicts, woken } = staging.decide(works);
        let timers: Vec<(LeaseKey, Option<Timestamp>)> =
            batch.rooms.iter().map(|room| (room.key.lease_key.clone(), room.wakes_at())).collect();
        let lines = commit(tx, batch).await?;

        self.measure(works, &lines);
        self.attending.tell(&lines);
        for (key, at) in timers {
            self.timers.set(&key, at);
        }
        for (work, verdict) in works.drain(..).zip(verdicts) {
            self.answer(work, verdict, now);
        }
        for woken in woken {
            self.wake(woken, now);
        }
        self.metrics.waiting.set(i64::try_from(self.callers.len()).unwrap_or(i64::MAX));
        self.healthy.store(true, Ordering::Release);
        Ok(())
    }

    /// Records an outage, before anything else is decided.
    async fn record(&self, outage: Outage, tx: S::Tx<'_>) -> Result<(), Failure> {
        let record = other(outage.to, &self.actors.clock, None, Happening::Outage(outage));
        let batch = Batch { records: vec![record], ..Batch::default() };
        tracing::warn!(from = %outage.from, to = %outage.to, "the service was away; leases that were alive are extended");
        self.metrics.outages.inc();
        commit(tx, batch).await.map(|_| ())
    }

    fn answer(&mut self, work: Work, verdict: Verdict, now: Timestamp) {
        if let (Verdict::Fault(Fault::Refused(refusal)), Task::One(key, Command::Acquire { request, .. })) =
            (&verdict, &work.task)
        {
            self.refusals.note(key, &request.owner, refusal);
        }
        if let (Verdict::Fault(Fault::Refused(refusal)), Task::Many(requests)) = (&verdict, &work.task)
            && let Some((key, request)) = requests.first()
        {
            self.refusals.note(key, &request.owner, refusal);
        }
        if let (Verdict::Done { outcome: Outcome::Batch(results), .. }, Task::Batch(commands)) = (&verdict, &work.task)
        {
            for (result, (key, command)) in results.iter().zip(commands) {
                if let (Err(refusal), Command::Acquire { request, .. }) = (result, command) {
                    self.refusals.note(key, &request.owner, refusal);
                }
            }
        }
        match verdict {
            Verdict::Waiting(waiter) => {
                let idempotency = work.call.remembered_as().zip(work.call.idempotency);
                if let (Task::One(key, Command::Acquire { request, .. }), Some(alive), Some(reply)) =
                    (work.task, work.alive, work.reply)
                {
                    let (owner, actor) = (request.owner, work.call.actor);
                    let caller = Caller { key, owner, actor, since: now, alive, reply, idempotency };
                    self.callers.insert(waiter, caller);
                }
            }
            Verdict::Fault(fault) => {
                self.count_fault(&fault);
                tell(work.reply, Err(fault));
            }
            Verdict::Done { outcome, replayed, granted } => {
                if replayed {
                    self.metrics.replays.inc();
                }
                let delivery = if granted && !replayed && work.call.idempotency.is_none() && work.reply.is_some() {
                    Delivery::new(granted_leases(&work.task, &outcome), &self.lost_sender)
                } else {
                    None
                };
                tell(work.reply, Ok(Done { value: outcome, server_time: now, replayed, delivery }));
            }
        }
    }

    fn wake(&mut self, woken: Woken, now: Timestamp) {
        let Some(caller) = self.callers.remove(woken.waiter) else { return };
        match woken.result {
            Ok(reply) => {
                self.metrics.wait_seconds.observe(seconds(now.since(caller.since)));
                let leases = reply.leases().map(|reading| (reading.lease_key.clone(), reading.lease.id())).collect();
                let delivery =
                    if caller.idempotency.is_none() { Delivery::new(leases, &self.lost_sender) } else { None };
                let done = Done { value: Outcome::Reply(reply), server_time: now, replayed: false, delivery };
                tell(Some(caller.reply), Ok(done));
            }
            Err(refusal) => {
                self.refusals.note(&caller.key, &caller.owner, &refusal);
                let fault = Fault::Refused(refusal);
                self.count_fault(&fault);
                tell(Some(caller.reply), Err(fault));
            }
        }
    }

    fn count_fault(&self, fault: &Fault) {
        let code = match fault {
            Fault::Refused(refusal) => refusal.code(),
            Fault::IdempotencyMismatch => "idempotency_mismatch",
            Fault::IdempotencyInProgress => "idempotency_in_progress",
            Fault::NotFound(_) => "not_found",
            Fault::NotGoodAnyMore => "unauthenticated",
            Fault::Overloaded { .. } => "overloaded",
            Fault::Unavailable { .. } => "unavailable",
            Fault::Stopping => "stopping",
        };
        self.metrics.refusals.get_or_create(&ByCode { code }).inc();
    }

    fn measure(&self, works: &[Work], lines: &[Line]) {
        self.metrics.batch_size.observe(works.len() as f64);
        for (_, command) in works.iter().flat_map(Work::commands) {
            self.metrics.commands.get_or_create(&ByCommand { command: command.name() }).inc();
        }
        for line in lines {
            if let Record::Lease(event) = &*line.record
                && let Change::Renewed(renewed) = &event.change
            {
                self.metrics.margin_seconds.observe(seconds(renewed.margin_us));
            }
        }
    }

    /// Nobody knows whether the last commit happened: everybody is told so, and the database is read anew.
    async fn reload(&mut self, works: &mut Vec<Work>, error: &StoreError) {
        tracing::error!(%error, "a commit failed and may have happened; reading the database anew");
        self.healthy.store(false, Ordering::Release);
        refuse(works.drain(..), &Fault::UNAVAILABLE);
        for caller in self.callers.drain() {
            tell(Some(caller.reply), Err(Fault::UNAVAILABLE));
        }
        self.timers.clear();
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
        for caller in self.callers.drain() {
            tell(Some(caller.reply), Err(Fault::Stopping));
        }
        works.clear();
        while let Ok((key, lease_id)) = self.lost.try_recv() {
            works.push(self.undelivered(key, lease_id));
        }
        if !self.refusals.is_empty() {
            let counter = Arc::clone(&self.actors.counter);
            let pieces = self.refusals.take();
            works.extend(pieces.into_iter().map(|refused| Work::system(&counter, Task::Refusals(refused))));
        }
        if !works.is_empty() {
            self.carry_out(works).await;
        }
    }
}

async fn commit<T: Tx>(tx: T, batch: Batch) -> Result<Vec<Line>, Failure> {
    tx.commit(batch).await.map_err(|error| match error {
        CommitError::RolledBack(error) => Failure::RolledBack(error),
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

fn tell(reply: Option<tokio::sync::oneshot::Sender<Answered>>, answer: Answered) {
    if let Some(reply) = reply {
        // A caller who is gone drops the answer; a grant in it then ends as undelivered.
        drop(reply.send(answer));
    }
}

fn refuse(works: impl IntoIterator<Item = Work>, fault: &Fault) {
    for work in works {
        tell(work.reply, Err(fault.clone()));
    }
}
