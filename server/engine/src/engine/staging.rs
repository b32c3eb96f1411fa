//! A batch under way: commands are decided one after another on an overlay of the keys' states, and nothing outside it
//! changes until all of it is committed.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use domain::lease::{
    Acquire, Answer, Change, Command, Context, Decision, Event, FencingToken, Lease, LeaseReading, Outcome as Ending,
    Refusal, Reply, Room, Rules, WaiterId, Woken, decide, decide_many,
};
use domain::{Actor, LeaseKey, RequestId, Timestamp};

use super::idempotency::{IdempotencyId, Remembered, Stored};
use super::waiting::{Callers, MOST_WAITING};
use super::work::{AccessTask, Call, Outcome, Task, Work};
use crate::access::{AccessChange, Directory, SecretHash, SignInLink};
use crate::error::{Fault, StoreError};
use crate::store::{Batch, Elsewhere, Locked, Needs, Recalled, Tx, Waking};
use crate::timeline::{Happening, Other, Record};

/// What one piece of work came to.
pub(super) enum Verdict {
    /// Answered; whether from an earlier answer, and whether the leases in it are the caller's from now on.
    Done { outcome: Outcome, replayed: bool, granted: bool },
    /// Not done.
    Fault(Fault),
    /// It waits under this name.
    Waiting(WaiterId),
}

/// What deciding a batch needs: its keys, locked, and what is remembered of its requests.
pub(super) struct Prepared<T: Tx> {
    tx: T,
    now: Timestamp,
    rooms: HashMap<LeaseKey, Room>,
    waiting_elsewhere: HashMap<WaiterId, Elsewhere>,
    former: HashMap<FencingToken, (LeaseKey, Lease)>,
    recalled: HashMap<IdempotencyId, Remembered>,
    /// Requests that wait at another node, and their fingerprints.
    in_progress: HashMap<IdempotencyId, [u8; 32]>,
}

/// What a batch needs of the database before it can be decided.
pub(super) fn needs(works: &[Work], patient: bool, fresh: bool) -> Needs<'_> {
    let mut seen = HashSet::new();
    let keys: Vec<&LeaseKey> = works.iter().flat_map(Work::keys).filter(|key| seen.insert(*key)).collect();
    let takes = |command: &Command| matches!(command, Command::Acquire { .. } | Command::Transfer { .. });
    let (mut grants, mut commands, mut waits) = (0, 0, false);
    for work in works {
        // A break at once may end what settling has just given to somebody who waited, and give it to the next.
        let breaks = |(_, command): &(&LeaseKey, &Command)| matches!(command, Command::Break { .. });
        commands += work.weight() + work.commands().filter(breaks).count();
        grants += match &work.task {
            Task::Many(requests) => requests.len(),
            _ => work.commands().filter(|(_, command)| takes(command)).count(),
        };
        waits |= work.alive.is_some();
    }
    let access = works.iter().any(|work| matches!(work.task, Task::Access(_)));
    let recalls = works.iter().any(|work| work.call.idempotency.is_some());
    Needs { keys, grants, commands, waits, access, recalls, fresh, patient }
}

impl<T: Tx> Prepared<T> {
    /// Reads what else deciding the work needs. All its keys are among the locked.
    pub(super) async fn read(mut tx: T, locked: Locked, works: &[Work]) -> Result<Self, StoreError> {
        let rooms: HashMap<LeaseKey, Room> =
            locked.rooms.into_iter().map(|room| (room.key.lease_key.clone(), room)).collect();

        let requests: Vec<IdempotencyId> = works.iter().filter_map(|work| work.call.remembered_as()).collect();
        let recalled = if requests.is_empty() { Recalled::default() } else { tx.recall(&requests).await? };

        let is_last = |key: &LeaseKey, token: FencingToken| {
            rooms.get(key).and_then(|room| room.key.lease.as_ref()).is_some_and(|lease| lease.token == token)
        };
        let named = works
            .iter()
            .flat_map(Work::commands)
            .filter_map(|(key, command)| command.lease_id().map(|id| (key.clone(), id.token())));
        let answered = recalled.done.iter().flat_map(|remembered| remembered.answer.grants());
        let answered = answered.map(|reading| (reading.lease_key.clone(), reading.lease.token));
        let wanted: Vec<(LeaseKey, FencingToken)> =
            named.chain(answered).filter(|(key, token)| !is_last(key, *token)).collect();
        let former = if wanted.is_empty() { Vec::new() } else { tx.former(&wanted).await? };
        let key_of: HashMap<FencingToken, LeaseKey> = wanted.into_iter().map(|(key, token)| (token, key)).collect();
        let former = former
            .into_iter()
            .filter_map(|lease| key_of.get(&lease.token).map(|key| (lease.token, (key.clone(), lease))))
            .collect();

        Ok(Self {
            tx,
            now: locked.now,
            rooms,
            waiting_elsewhere: locked.waiting_elsewhere,
            former,
            recalled: recalled.done.into_iter().map(|remembered| (remembered.id.clone(), remembered)).collect(),
            in_progress: recalled.waiting.into_iter().collect(),
        })
    }
}

/// A batch under way.
pub(super) struct Staging<'a, T: Tx> {
    base: Prepared<T>,
    rules: &'a Rules,
    callers: &'a Callers,
    directory: &'a Directory,
    changed: HashSet<LeaseKey>,
    /// Who joined a queue in this batch.
    joined: HashMap<WaiterId, &'a Work>,
    used_links: HashSet<SecretHash>,
    revoked: HashSet<Arc<str>>,
    batch: Batch,
    woken: Vec<Woken>,
}

/// A batch that has been decided, to be committed.
pub(super) struct Decided<T: Tx> {
    pub(super) tx: T,
    pub(super) now: Timestamp,
    pub(super) batch: Batch,
    pub(super) verdicts: Vec<Verdict>,
    /// Who of this node's callers has waited enough, and whether a grant to them is kept for whoever asks again.
    pub(super) woken: Vec<(Woken, bool)>,
    /// When the keys that changed or have waiters must be looked at again.
    pub(super) timers: Vec<(LeaseKey, Option<Timestamp>)>,
}

impl<'a, T: Tx> Staging<'a, T> {
    pub(super) fn new(base: Prepared<T>, rules: &'a Rules, callers: &'a Callers, directory: &'a Directory) -> Self {
        Self {
            base,
            rules,
            callers,
            directory,
            changed: HashSet::new(),
            joined: HashMap::new(),
            used_links: HashSet::new(),
            revoked: HashSet::new(),
            batch: Batch::default(),
            woken: Vec::new(),
        }
    }

    /// Decides all the work, in order.
    pub(super) fn decide(mut self, works: &'a [Work]) -> Decided<T> {
        let verdicts = works.iter().map(|work| self.decide_one(work)).collect();
        let woken = self.sort_woken();
        let Self { base: Prepared { tx, now, mut rooms, .. }, changed, mut batch, joined, .. } = self;
        let timers = rooms
            .values()
            .filter(|room| !room.queue.is_empty() || changed.contains(&room.key.lease_key))
            .map(|room| (room.key.lease_key.clone(), room.wakes_at()))
            .collect();
        batch.rooms = changed.iter().filter_map(|key| rooms.remove(key)).collect();
        batch.joined = joined.into_iter().map(|(waiter, work)| (waiter, work.call.fingerprinted())).collect();
        Decided { tx, now, batch, verdicts, woken, timers }
    }

    fn decide_one(&mut self, work: &'a Work) -> Verdict {
        if self.directory.has_ended(&work.call.actor, self.base.now) {
            // Since the request was let in, perhaps at another node.
            return Verdict::Fault(Fault::NotGoodAnyMore);
        }
        if let Some(verdict) = self.replay(work) {
            return verdict;
        }
        match &work.task {
            Task::One(key, command) => self.one(work, key, command),
            Task::Many(requests) => self.many(work, requests),
            Task::Batch(commands) => self.batch(work, commands),
            Task::Access(task) => match self.access(&work.call, task) {
                Ok(id) => {
                    self.remember(&work.call, || Stored::Access(Arc::clone(&id)));
                    Verdict::Done { outcome: Outcome::Access(id), replayed: false, granted: false }
                }
                Err(fault) => Verdict::Fault(fault),
            },
            Task::Retain(retain) => {
                if let Some(up_to) = retain.lines {
                    self.happen(&work.call, Happening::Retained { up_to });
                }
                self.batch.retention = Some(*retain);
                Verdict::Done { outcome: Outcome::Reply(Reply::Nothing), replayed: false, granted: false }
            }
            Task::Refusals(refused) => {
                self.happen(&work.call, Happening::Collisions { refused: refused.clone() });
                Verdict::Done { outcome: Outcome::Reply(Reply::Nothing), replayed: false, granted: false }
            }
        }
    }

    fn one(&mut self, work: &'a Work, key: &LeaseKey, command: &Command) -> Verdict {
        let waits = match command {
            Command::Acquire { wait: Some(wait), .. } => Some(wait.waiter),
            _ => None,
        };
        if waits.is_some() && self.callers.len() + self.joined.len() >= MOST_WAITING {
            return Verdict::Fault(Fault::OVERLOADED);
        }
        if let Some(waiter) = waits {
            self.joined.insert(waiter, work);
        }
        let answer = self.command(&work.call, key, command);
        if let Some(waiter) = waits {
            if answer == Answer::Waiting {
                return Verdict::Waiting(waiter);
            }
            self.joined.remove(&waiter);
        }
        let granted = matches!(command, Command::Acquire { .. });
        match answer {
            Answer::Done(reply) => {
                self.remember(&work.call, || {
                    if is_counted_on(command) { Stored::Grant(reply.clone()) } else { Stored::Reply(reply.clone()) }
                });
                Verdict::Done { outcome: Outcome::Reply(reply), replayed: false, granted }
            }
            Answer::Refused(refusal) => Verdict::Fault(Fault::Refused(refusal)),
            // Only an acquire that may wait does, and that has returned above.
            Answer::Waiting => Verdict::Fault(Fault::UNAVAILABLE),
        }
    }

    /// Decides one command on its key and notes all that follows.
    fn command(&mut self, call: &Call, key: &LeaseKey, command: &Command) -> Answer {
        let Some(mut room) = self.base.rooms.remove(key) else {
            // Every key of every work was locked.
            return Answer::Refused(Refusal::KeyUnknown);
        };
        let before = room.key.lease.clone();
        let waiting = room.queue.len();
        let former = command.lease_id().and_then(|id| self.base.former.get(&id.token()));
        let former = former.filter(|(of, _)| of == key).map(|(_, lease)| Cow::Owned(lease.clone()));
        let decision = self.with_context(call, former, |context| decide(&mut room, command, context));
        self.note(&room, before, waiting, &decision);
        self.base.rooms.insert(key.clone(), room);
        self.collect(decision)
    }

    fn many(&mut self, work: &Work, requests: &[(LeaseKey, Acquire)]) -> Verdict {
        let mut rooms: Vec<Room> = requests.iter().filter_map(|(key, _)| self.base.rooms.remove(key)).collect();
        let before: Vec<_> = rooms.iter().map(|room| (room.key.lease.clone(), room.queue.len())).collect();
        let terms: Vec<Acquire> = requests.iter().map(|(_, request)| request.clone()).collect();
        let mut borrowed: Vec<&mut Room> = rooms.iter_mut().collect();
        let decision = self.with_context(&work.call, None, |context| decide_many(&mut borrowed, &terms, context));
        for (room, (lease, waiting)) in rooms.into_iter().zip(before) {
            self.note(&room, lease, waiting, &decision);
            self.base.rooms.insert(room.key.lease_key.clone(), room);
        }
        match self.collect(decision) {
            Answer::Done(reply) => {
                self.remember(&work.call, || Stored::Grant(reply.clone()));
                Verdict::Done { outcome: Outcome::Reply(reply), replayed: false, granted: true }
            }
            Answer::Refused(refusal) => Verdict::Fault(Fault::Refused(refusal)),
            Answer::Waiting => Verdict::Fault(Fault::UNAVAILABLE),
        }
    }

    fn batch(&mut self, work: &Work, commands: &[(LeaseKey, Command)]) -> Verdict {
        let mut results = Vec::with_capacity(commands.len());
        for (key, command) in commands {
            results.push(match self.command(&work.call, key, command) {
                Answer::Done(reply) => Ok(reply),
                Answer::Refused(refusal) => Err(refusal),
                // The door lets no waiting command into a batch.
                Answer::Waiting => Err(Refusal::WaitTimeout(None)),
            });
        }
        if results.iter().any(Result::is_ok) {
            self.remember(&work.call, || {
                let with_kind = results.iter().cloned().zip(commands);
                Stored::Batch(with_kind.map(|(result, (_, command))| (result, is_counted_on(command))).collect())
            });
        }
        Verdict::Done { outcome: Outcome::Batch(results), replayed: false, granted: true }
    }

    fn with_context<R>(
        &mut self,
        call: &Call,
        former: Option<Cow<'_, Lease>>,
        decide: impl FnOnce(&mut Context<'_>) -> R,
    ) -> R {
        let (callers, joined, elsewhere) = (self.callers, &self.joined, &self.base.waiting_elsewhere);
        let (directory, revoked, now) = (self.directory, &self.revoked, self.base.now);
        // A caller whose token was revoked while it waited is granted nothing.
        let is_good = |actor: &Actor| !revoked.contains(&actor.id) && !directory.has_ended(actor, now);
        let is_live = |waiter: WaiterId| match callers.get(waiter) {
            Some(caller) => caller.is_there() && is_good(&caller.actor),
            None => match joined.get(&waiter) {
                Some(work) => work.is_there(),
                None => elsewhere.get(&waiter).is_some_and(|elsewhere| is_good(&elsewhere.actor)),
            },
        };
        let tx = &mut self.base.tx;
        decide(&mut Context {
            now,
            rules: self.rules,
            is_live: &is_live,
            next_token: &mut || tx.token(),
            actor: &call.actor,
            request_id: call.request_id.as_ref(),
            former,
        })
    }

    /// Notes whether a room changed, and the lease that is no longer its last.
    fn note(&mut self, room: &Room, before: Option<Lease>, waiting: usize, decision: &Decision) {
        let key = &room.key.lease_key;
        let events = &decision.settled.events;
        let touched = events.iter().any(|event| event.lease_key == *key);
        if touched || room.queue.len() != waiting || !decision.settled.woken.is_empty() {
            self.changed.insert(key.clone());
        }
        let last = room.key.lease.as_ref().map(|lease| lease.token);
        if let Some(mut lease) = before.filter(|lease| Some(lease.token) != last) {
            let token = Some(lease.token);
            events.iter().filter(|event| event.change.token() == token).for_each(|event| lease.apply(event));
            self.supersede(key, lease);
        }
        // A grant that was over again within the same decision (released at once to the next) is also a former lease.
        let passing = events.iter().filter_map(|event| match &event.change {
            Change::Granted(granted) if Some(granted.fencing_token) != last && event.lease_key == *key => {
                Some((granted, event.at))
            }
            _ => None,
        });
        for (granted, at) in passing {
            let mut lease = Lease::granted(granted, at);
            let token = Some(lease.token);
            let later = |event: &&Event| event.change.token() == token && !matches!(event.change, Change::Granted(_));
            events.iter().filter(later).for_each(|event| lease.apply(event));
            self.supersede(key, lease);
        }
    }

    /// A lease that is no longer the last of its key, as it ended.
    fn supersede(&mut self, key: &LeaseKey, lease: Lease) {
        self.base.former.insert(lease.token, (key.clone(), lease.clone()));
        self.batch.superseded.push((key.clone(), lease));
    }

    fn collect(&mut self, decision: Decision) -> Answer {
        self.batch.records.extend(decision.settled.events.into_iter().map(Record::Lease));
        self.woken.extend(decision.settled.woken);
        decision.answer
    }

    /// Remembers what a request with an idempotency key did.
    fn remember(&mut self, call: &Call, answer: impl FnOnce() -> Stored) {
        let (Some(id), Some(idempotency)) = (call.remembered_as(), &call.idempotency) else { return };
        self.remember_as(id, idempotency.fingerprint, answer());
    }

    fn remember_as(&mut self, id: IdempotencyId, fingerprint: [u8; 32], answer: Stored) {
        let remembered = Remembered { id: id.clone(), fingerprint, answer, at: self.base.now };
        self.base.recalled.insert(id, remembered.clone());
        self.batch.remembered.push(remembered);
    }

    /// Remembers the grants of waiters, in the transaction that made them; tells those of this node from others.
    fn sort_woken(&mut self) -> Vec<(Woken, bool)> {
        let mut here = Vec::new();
        for woken in std::mem::take(&mut self.woken) {
            let elsewhere = self.base.waiting_elsewhere.get(&woken.waiter);
            let request = match (self.callers.get(woken.waiter), self.joined.get(&woken.waiter), elsewhere) {
                (Some(caller), ..) => {
                    caller.idempotency.as_ref().map(|(id, idempotency)| (id.clone(), idempotency.fingerprint))
                }
                (None, Some(work), _) => work.call.fingerprinted(),
                (None, None, Some(elsewhere)) => elsewhere.request.clone(),
                (None, None, None) => None,
            };
            let is_kept = request.is_some();
            if let (Ok(reply), Some((id, fingerprint))) = (&woken.result, request) {
                let answer = Stored::Grant(reply.clone());
                let remembered = Remembered { id: id.clone(), fingerprint, answer, at: self.base.now };
                self.base.recalled.insert(id, remembered.clone());
                self.batch.remembered_late.push(remembered);
            }
            let is_elsewhere = elsewhere.is_some();
            // Whoever joined in this batch and was served in it waits no longer.
            self.joined.remove(&woken.waiter);
            if is_elsewhere {
                let Woken { waiter, result } = woken;
                self.batch.wakings.push(Waking { waiter, result, is_kept });
            } else {
                here.push((woken, is_kept));
            }
        }
        here
    }

    /// The answer to a request that was made before, if it was.
    fn replay(&self, work: &Work) -> Option<Verdict> {
        let id = work.call.remembered_as()?;
        let fingerprint = work.call.idempotency.as_ref()?.fingerprint;
        if let Some(remembered) = self.base.recalled.get(&id) {
            if remembered.fingerprint != fingerprint {
                return Some(Verdict::Fault(Fault::IdempotencyMismatch));
            }
            return Some(match self.answer_again(&remembered.answer) {
                Ok(outcome) => Verdict::Done { outcome, replayed: true, granted: false },
                Err(refusal) => Verdict::Fault(Fault::Refused(refusal)),
            });
        }
        let joined = self.joined.values().find(|other| other.call.remembered_as().as_ref() == Some(&id));
        let waiting = match joined {
            Some(other) => other.call.idempotency.as_ref().map(|idempotency| idempotency.fingerprint),
            None => self
                .callers
                .request(&id)
                .and_then(|caller| caller.idempotency.as_ref().map(|(_, idempotency)| idempotency.fingerprint))
                .or_else(|| self.base.in_progress.get(&id).copied()),
        };
        waiting.map(|original| {
            Verdict::Fault(if original == fingerprint {
                Fault::IdempotencyInProgress
            } else {
                Fault::IdempotencyMismatch
            })
        })
    }

    /// A stored answer; grants as the leases are now, so that no replay makes a dead lease look alive.
    fn answer_again(&self, stored: &Stored) -> Result<Outcome, Refusal> {
        match stored {
            Stored::Reply(Reply::Lease(reading)) => Ok(Outcome::Reply(Reply::Lease(LeaseReading {
                lease_key: reading.lease_key.clone(),
                lease: self.known(reading).unwrap_or(&reading.lease).clone(),
            }))),
            Stored::Reply(reply) => Ok(Outcome::Reply(reply.clone())),
            Stored::Access(id) => Ok(Outcome::Access(Arc::clone(id))),
            Stored::Grant(Reply::Leases(readings)) => {
                let now: Result<Vec<LeaseReading>, Refusal> =
                    readings.iter().map(|reading| self.as_now(reading)).collect();
                Ok(Outcome::Reply(Reply::Leases(now?)))
            }
            Stored::Grant(Reply::Lease(reading)) => Ok(Outcome::Reply(Reply::Lease(self.as_now(reading)?))),
            Stored::Grant(reply) => Ok(Outcome::Reply(reply.clone())),
            Stored::Batch(results) => {
                let again = results.iter().map(|(result, granted)| match result {
                    Ok(Reply::Lease(reading)) if *granted => self.as_now(reading).map(Reply::Lease),
                    other => other.clone(),
                });
                Ok(Outcome::Batch(again.collect()))
            }
        }
    }

    fn as_now(&self, reading: &LeaseReading) -> Result<LeaseReading, Refusal> {
        let room = self.base.rooms.get(&reading.lease_key);
        let holder = room.and_then(|room| room.key.held(self.base.now));
        if let Some(lease) = holder.filter(|lease| lease.token == reading.lease.token) {
            return Ok(LeaseReading { lease_key: reading.lease_key.clone(), lease: lease.clone() });
        }
        let lease = self.known(reading);
        Err(match lease.map(|lease| lease.status(self.base.now)) {
            Some(domain::lease::LeaseStatus::Ended(reason)) => {
                Refusal::LeaseLost { reason, holder: holder.map(|lease| (lease.owner.clone(), lease.acquired_at)) }
            }
            _ => Refusal::LeaseLost { reason: Ending::Expired, holder: None },
        })
    }

    /// The lease as it is now, held or over, if it is still known.
    fn known(&self, reading: &LeaseReading) -> Option<&Lease> {
        let last = self.base.rooms.get(&reading.lease_key).and_then(|room| room.key.lease.as_ref());
        let last = last.filter(|lease| lease.token == reading.lease.token);
        last.or_else(|| self.base.former.get(&reading.lease.token).map(|(_, lease)| lease))
    }

    fn happen(&mut self, call: &Call, happening: Happening) {
        self.batch.records.push(other(self.base.now, &call.actor, call.request_id.as_ref(), happening));
    }

    fn access(&mut self, call: &Call, task: &AccessTask) -> Result<Arc<str>, Fault> {
        let (happening, change, id) = match task {
            AccessTask::CreateToken(hash, token) => {
                let mut token = token.clone();
                token.created_at = self.base.now;
                let happening = Happening::TokenCreated {
                    token_id: Arc::clone(&token.token_id),
                    name: Arc::clone(&token.name),
                    role: token.role,
                    prefixes: token.prefixes.to_vec(),
                    expires_at: token.expires_at,
                };
                let id = Arc::clone(&token.token_id);
                (happening, AccessChange::CreateToken(*hash, token), id)
            }
            AccessTask::RevokeToken(id) => {
                if self.directory.live_token(id).is_none() || !self.revoked.insert(Arc::clone(id)) {
                    return Err(Fault::NotFound("token"));
                }
                let happening = Happening::TokenRevoked { token_id: Arc::clone(id) };
                (happening, AccessChange::RevokeToken(Arc::clone(id), self.base.now), Arc::clone(id))
            }
            AccessTask::OpenSession { hash, session, link } => {
                if let Some(link) = link
                    && !(self.directory.link_is_good(link, self.base.now) && self.used_links.insert(*link))
                {
                    return Err(Fault::NotFound("sign-in link"));
                }
                let happening = Happening::SessionOpened {
                    session_id: Arc::clone(&session.session_id),
                    name: Arc::clone(&session.name),
                    role: session.role,
                    means: session.token_id.clone().unwrap_or_else(|| Arc::from("link")),
                    expires_at: session.expires_at,
                };
                let id = Arc::clone(&session.session_id);
                let mut session = session.clone();
                session.created_at = self.base.now.min(session.expires_at);
                (happening, AccessChange::OpenSession { hash: *hash, session, link: *link }, id)
            }
            AccessTask::CloseSession(id) => {
                if !self.directory.has_session(id) || !self.revoked.insert(Arc::clone(id)) {
                    return Err(Fault::NotFound("session"));
                }
                let happening = Happening::SessionClosed { session_id: Arc::clone(id) };
                (happening, AccessChange::CloseSession(Arc::clone(id), self.base.now), Arc::clone(id))
            }
            AccessTask::CreateLink(hash, lasting) => {
                let link = SignInLink { created_at: self.base.now, expires_at: self.base.now + *lasting };
                let happening = Happening::LinkCreated { expires_at: link.expires_at };
                (happening, AccessChange::CreateLink(*hash, link), Arc::from("link"))
            }
        };
        self.happen(call, happening);
        self.batch.access.push(change);
        Ok(id)
    }
}

/// Whether its caller goes by the lease it is answered with, so that a replay must not make a dead one look alive.
const fn is_counted_on(command: &Command) -> bool {
    matches!(command, Command::Acquire { .. } | Command::Renew { .. } | Command::Transfer { .. })
}

/// A line that does not concern one lease key.
pub(super) fn other(at: Timestamp, actor: &Arc<Actor>, request_id: Option<&RequestId>, happening: Happening) -> Record {
    Record::Other(Other { at, happening, actor: Arc::clone(actor), request_id: request_id.cloned() })
}
