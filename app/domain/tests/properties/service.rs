//! A service around the rules, as small as can be: it keeps rooms, earlier leases and the log, and gives out tokens.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use domain::lease::{
    Acquire, Answer, Change, Command, Context, Decision, Event, FencingToken, Lease, LeaseId, Outage, Room, Rules,
    Wait, WaiterId, decide, decide_many,
};
use domain::{Actor, RequestId, Timestamp};

use crate::script::{KEYS, Pick, Step, key, rules};

/// A step with everything named.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    One(usize, Command),
    Many(Vec<(usize, Acquire)>),
    HangUp(WaiterId),
    Outage(Outage),
    Restart,
    Forget(FencingToken),
    Nothing,
}

/// A line of the log.
#[derive(Clone, Debug)]
pub(crate) enum Line {
    Event(Event),
    Outage(Outage),
}

pub(crate) struct Service {
    pub(crate) now: Timestamp,
    pub(crate) rules: Rules,
    pub(crate) rooms: Vec<Room>,
    pub(crate) log: Vec<Line>,
    /// Every grant so far: its key and token.
    pub(crate) grants: Vec<(usize, FencingToken)>,
    /// Leases that were followed by others and are still known.
    pub(crate) formers: HashMap<LeaseId, (usize, Lease)>,
    pub(crate) gone: BTreeSet<WaiterId>,
    actor: Arc<Actor>,
    last_token: u64,
    last_waiter: u64,
}

/// The token before the first.
pub(crate) const LAST_TOKEN: u64 = 1_783_111_299_469_980;

impl Service {
    pub(crate) fn new() -> Self {
        Self {
            now: Timestamp::parse("2026-07-03T20:41:39Z").unwrap(),
            rules: rules(),
            rooms: (0..KEYS).map(|index| Room::new(key(index))).collect(),
            log: Vec::new(),
            grants: Vec::new(),
            formers: HashMap::new(),
            gone: BTreeSet::new(),
            actor: Arc::new(Actor::system("tester")),
            last_token: LAST_TOKEN,
            last_waiter: 0,
        }
    }

    /// Names what a step means here and now. Time passes in it, if it says so.
    pub(crate) fn task(&mut self, step: &Step) -> Task {
        let named = |service: &Self, pick: Pick| {
            let (of, token) = service.grant(pick.back);
            (if pick.astray { (of + 1) % KEYS } else { of }, LeaseId::from(token))
        };
        match step.clone() {
            Step::Pass(span) => {
                self.now = self.now + span;
                Task::Nothing
            }
            Step::Acquire { key, request, wait } => {
                let wait = wait.map(|time| {
                    self.last_waiter += 1;
                    Wait { waiter: WaiterId(self.last_waiter), time }
                });
                Task::One(key, Command::Acquire { request, wait })
            }
            Step::AcquireMany { keys, request } => {
                Task::Many(keys.into_iter().map(|key| (key, request.clone())).collect())
            }
            Step::Renew { pick, ttl, shorten } => {
                let (key, lease_id) = named(self, pick);
                Task::One(key, Command::Renew { lease_id, ttl, shorten })
            }
            Step::Release { pick } => {
                let (key, lease_id) = named(self, pick);
                Task::One(key, Command::Release { lease_id })
            }
            Step::Transfer { pick, to } => {
                let (key, lease_id) = named(self, pick);
                Task::One(key, Command::Transfer { lease_id, to_owner: to })
            }
            Step::Break { key, grace, named: pick, reason } => {
                let (key, lease_id) = pick.map_or((key, None), |pick| {
                    let (key, id) = named(self, pick);
                    (key, Some(id))
                });
                Task::One(key, Command::Break { reason, grace, lease_id })
            }
            Step::Quarantine { key, reason } => Task::One(key, Command::Quarantine { reason }),
            Step::Lift { key, reason } => Task::One(key, Command::Lift { reason }),
            Step::Undelivered { pick } => {
                let (key, lease_id) = named(self, pick);
                Task::One(key, Command::Undelivered { lease_id })
            }
            Step::Get { key } => Task::One(key, Command::Get),
            Step::Validate { key, pick, off } => {
                let token = self.grant(pick.back).1.get().saturating_add_signed(off.into());
                Task::One(key, Command::Validate { token: FencingToken::new(token).unwrap() })
            }
            Step::Settle { key } => Task::One(key, Command::Settle),
            Step::HangUp { pick } => {
                let mut waiters = self.rooms.iter().flat_map(|room| room.queue.iter());
                waiters.nth(pick).map_or(Task::Nothing, |waiter| Task::HangUp(waiter.id))
            }
            Step::Outage { mark_age, length } => {
                let from = Timestamp::from_micros(self.now.as_micros() - mark_age.as_micros());
                self.now = self.now + length;
                Task::Outage(Outage { from, to: self.now, grace_us: self.rules.outage_grace })
            }
            Step::Restart => Task::Restart,
            Step::Forget { pick } => Task::Forget(self.grant(pick.back).1),
        }
    }

    /// A grant, counted from the newest; a token nobody has if there are not so many.
    fn grant(&self, back: usize) -> (usize, FencingToken) {
        let nobody = (0, FencingToken::new(LAST_TOKEN - 1).unwrap());
        self.grants.iter().rev().nth(back).copied().unwrap_or(nobody)
    }

    /// Does it; what the rules decided, if they were asked.
    pub(crate) fn perform(&mut self, task: &Task) -> Option<Decision> {
        match task {
            Task::One(key, command) => Some(self.decide(*key, command)),
            Task::Many(requests) => Some(self.decide_many(requests)),
            Task::HangUp(waiter) => {
                self.gone.insert(*waiter);
                None
            }
            Task::Outage(outage) => {
                self.rooms.iter_mut().for_each(|room| room.key.through(outage));
                self.log.push(Line::Outage(*outage));
                None
            }
            Task::Restart => {
                self.rooms.iter_mut().for_each(|room| room.queue = Default::default());
                None
            }
            Task::Forget(token) => {
                self.formers.remove(&LeaseId::from(*token));
                None
            }
            Task::Nothing => None,
        }
    }

    fn decide(&mut self, key: usize, command: &Command) -> Decision {
        let mut room = self.rooms[key].clone();
        let former = command.lease_id().and_then(|id| self.formers.get(&id)).filter(|(of, _)| *of == key);
        let former = former.map(|(_, lease)| lease.clone());
        let decision = self.in_context(former.as_ref(), |context| decide(&mut room, command, context));
        self.rooms[key] = room;
        self.note(&decision);
        decision
    }

    fn decide_many(&mut self, requests: &[(usize, Acquire)]) -> Decision {
        let mut rooms: Vec<Room> = requests.iter().map(|(key, _)| self.rooms[*key].clone()).collect();
        let wanted: Vec<Acquire> = requests.iter().map(|(_, request)| request.clone()).collect();
        let decision =
            self.in_context(None, |context| decide_many(&mut rooms.iter_mut().collect::<Vec<_>>(), &wanted, context));
        for ((key, _), room) in requests.iter().zip(rooms) {
            self.rooms[*key] = room;
        }
        self.note(&decision);
        decision
    }

    fn in_context(&mut self, former: Option<&Lease>, ask: impl FnOnce(&mut Context<'_>) -> Decision) -> Decision {
        let last_token = &mut self.last_token;
        let mut next_token = || {
            *last_token += 1;
            FencingToken::new(*last_token).unwrap()
        };
        let gone = &self.gone;
        ask(&mut Context {
            now: self.now,
            rules: &self.rules,
            is_live: &|waiter| !gone.contains(&waiter),
            next_token: &mut next_token,
            actor: &self.actor,
            request_id: Some(&RequestId(Arc::from("r-1"))),
            former: former.map(Cow::Borrowed),
        })
    }

    /// Keeps the log, and every lease that was followed by another, as the log tells it.
    fn note(&mut self, decision: &Decision) {
        for event in &decision.settled.events {
            let key = (0..KEYS).find(|&index| key(index) == event.lease_key).unwrap();
            if let Change::Granted(granted) = &event.change {
                if let Some(previous) = granted.previous_token {
                    let lease = self.replayed(key).lease.unwrap();
                    assert_eq!(lease.token, previous);
                    self.formers.insert(lease.id(), (key, lease));
                }
                self.grants.push((key, granted.fencing_token));
            }
            self.log.push(Line::Event(event.clone()));
        }
    }

    /// The state of a key as the log so far tells it.
    pub(crate) fn replayed(&self, index: usize) -> domain::lease::KeyState {
        let mut state = domain::lease::KeyState::new(key(index));
        for line in &self.log {
            match line {
                Line::Event(event) if event.lease_key == state.lease_key => state.apply(event),
                Line::Event(_) => {}
                Line::Outage(outage) => state.through(outage),
            }
        }
        state
    }

    /// Whether the answer was no.
    pub(crate) fn is_refused(decision: &Decision) -> bool {
        matches!(decision.answer, Answer::Refused(_))
    }
}
