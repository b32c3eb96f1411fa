//! How each step changes the world. What the server does in it is decided by the rules and judged at once.

use std::sync::Arc;

use domain::lease::{
    Answer, Change, Command, Context, Decision, Event, FencingToken, Outage, Outcome, Refusal, Reply, Room, Wait,
    WaiterId, Woken,
};
use domain::{Actor, Timestamp};

use crate::action::{Action, Fate, Operation, actions};
use crate::bounds::{Bounds, SHORT_TTL, Units};
use crate::coverage::Coverage;
use crate::invariant::Invariant::BelieverHolds;
use crate::invariant::{Broken, check, properties};
use crate::judge::{self, Asked, Step, What, plain};
use crate::rulebook::Rulebook;
use crate::world::{CLIENTS, Flight, KEYS, Line, LineEnd, Request, World, acquire, key_index, names, span};

/// The model: a world within bounds, under the rules of a book.
pub(crate) struct Leases {
    pub(crate) bounds: Bounds,
    pub(crate) rules: Arc<dyn Rulebook>,
    pub(crate) coverage: Arc<Coverage>,
    /// Judge no step of the server, only what the holders see: shows what that alone would catch.
    pub(crate) holders_only: bool,
}

impl stateright::Model for Leases {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.bounds)]
    }

    fn actions(&self, world: &World, out: &mut Vec<Action>) {
        actions(&self.bounds, world, out);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        if let Err(broken) = self.step(&mut next, action).and_then(|()| self.look_around(&next)) {
            next.broken = Some(broken);
        }
        next.tidy();
        Some(next)
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        properties()
    }
}

impl Leases {
    fn step(&self, world: &mut World, action: Action) -> Result<(), Broken> {
        match action {
            Action::Call { client, request, answer } => {
                world.left.faults -= u8::from(answer != Fate::Heard);
                send(world, client, request);
                self.serve(world, &Flight { client, sent: world.now, request }, answer)
            }
            Action::Delay { client, request } => {
                world.left.faults -= 1;
                send(world, client, request);
                world.flights.push(Flight { client, sent: world.now, request });
                Ok(())
            }
            Action::Arrive { flight, answer, again } => {
                world.left.faults -= u8::from(again || answer != Fate::Heard);
                let sent = if again { world.flights[flight].clone() } else { world.flights.remove(flight) };
                self.serve(world, &sent, answer)
            }
            Action::Crash { client, ends } => {
                world.left.faults -= 1;
                world.clients[client] = Default::default();
                for line in world.lines.iter_mut().filter(|line| line.client == client) {
                    line.end = if line.end == LineEnd::Listening { ends } else { line.end };
                }
                Ok(())
            }
            Action::Cut { line, end } => {
                world.left.faults -= 1;
                world.lines[line].end = end;
                Ok(())
            }
            Action::Operate { key, operation } => self.operate(world, key, operation),
            Action::TakeBack { unheard } => {
                let (key, lease_id) = world.unheard.remove(unheard);
                self.run(world, key, &Command::Undelivered { lease_id }, &names().operator).map(|_| ())
            }
            Action::Look { key } => self.run(world, key, &Command::Get, &names().operator).map(|_| ()),
            Action::Tick => {
                world.left.ticks = world.left.ticks.map(|ticks| ticks - 1);
                world.now = world.now + span(1);
                Ok(())
            }
            Action::Outage { mark_age, length } => {
                world.left.outages -= 1;
                self.outage(world, mark_age, length)
            }
            Action::Restart => {
                world.left.faults -= 1;
                for room in &mut world.rooms {
                    Arc::make_mut(room).queue = Default::default();
                }
                world.unheard.clear();
                Ok(())
            }
        }
    }

    /// What must be so at every moment: whoever believes to hold a key holds it, and nothing is shown that is not so.
    fn look_around(&self, world: &World) -> Result<(), Broken> {
        for key in 0..KEYS {
            let state = &world.rooms[key].key;
            if !self.holders_only {
                judge::judge_status(state, self.rules.status(state, world.now), world.now)?;
            }
            let held = plain::held(state, world.now);
            for client in (0..CLIENTS).filter(|&client| world.believes(client, key)) {
                let believed = world.clients[client].holds[key].as_ref().map(|hold| hold.id);
                let holds = held.map(domain::lease::Lease::id) == believed;
                // See `excuse`: the break's end has come, and nobody has recorded it yet.
                let broken = state.lease.as_ref().filter(|lease| Some(lease.id()) == believed).is_some_and(|lease| {
                    plain::ending(lease, world.now).is_some_and(|ending| ending.outcome == Outcome::Broken)
                });
                check(holds || broken, BelieverHolds, || {
                    format!("client {client} believes {believed:?}, not {held:?}")
                })?;
            }
        }
        Ok(())
    }

    /// A request arrives and is answered.
    fn serve(&self, world: &mut World, sent: &Flight, fate: Fate) -> Result<(), Broken> {
        let actor = &names().actors[sent.client];
        let terms = acquire(&self.bounds.terms, sent.client);
        let answer = match sent.request {
            Request::Acquire { key, wait } => {
                let wait = wait.then(|| {
                    world.last_waiter += 1;
                    Wait { waiter: WaiterId(world.last_waiter), time: span(self.bounds.terms.wait) }
                });
                let answer = self.run(world, key, &Command::Acquire { request: terms, wait }, actor)?;
                if let (Answer::Waiting, Some(wait)) = (&answer, wait) {
                    let end = match fate {
                        Fate::Heard => LineEnd::Listening,
                        Fate::Lost => LineEnd::Deaf,
                        Fate::Unwritten => LineEnd::Unwritable,
                    };
                    world.lines.push(Line { waiter: wait.waiter, client: sent.client, sent: sent.sent, end });
                }
                answer
            }
            Request::AcquireBoth => self.run_both(world, &terms, actor)?,
            Request::Renew { key, id, shorten } => {
                let ttl = shorten.then(|| span(SHORT_TTL));
                self.run(world, key, &Command::Renew { lease_id: id, ttl, shorten }, actor)?
            }
            Request::Release { key, id } => self.run(world, key, &Command::Release { lease_id: id }, actor)?,
        };
        match fate {
            Fate::Heard => hear(world, sent, &answer),
            Fate::Lost => {}
            Fate::Unwritten => {
                if let (Request::Acquire { .. } | Request::AcquireBoth, Answer::Done(reply)) = (sent.request, &answer) {
                    let given = reply.leases().map(|reading| (key_index(&reading.lease_key), reading.lease.id()));
                    world.unheard.extend(given);
                }
            }
        }
        Ok(())
    }

    fn operate(&self, world: &mut World, key: usize, operation: Operation) -> Result<(), Broken> {
        let reason = names().reason.clone();
        let command = match operation {
            Operation::Break { grace, id } => Command::Break { reason, grace: span(grace), lease_id: id },
            Operation::Transfer { id, to } => Command::Transfer { lease_id: id, to_owner: names().owners[to].clone() },
            Operation::Quarantine => Command::Quarantine { reason },
            Operation::Lift => Command::Lift { reason },
        };
        world.left.operations -= u8::from(operation != Operation::Lift);
        let answer = self.run(world, key, &command, &names().operator)?;
        // The new holder is told by whoever handed the lease over.
        if let (Operation::Transfer { to, .. }, Answer::Done(Reply::Lease(reading))) = (operation, &answer) {
            world.hear_of_lease(to, world.now, reading);
        }
        Ok(())
    }

    fn outage(&self, world: &mut World, mark_age: Units, length: Units) -> Result<(), Broken> {
        let mark = Timestamp::from_micros(world.now.as_micros() - span(mark_age).as_micros());
        let outage = Outage { from: mark, to: world.now + span(length), grace_us: names().rules.outage_grace };
        world.now = outage.to;
        for room in &mut world.rooms {
            let before = room.key.clone();
            self.rules.through(&mut Arc::make_mut(room).key, &outage);
            judge::judge_outage(&outage, &before, &room.key)?;
            self.coverage.outage(&before, &room.key);
        }
        Ok(())
    }

    /// The server decides a command on one key.
    fn run(&self, world: &mut World, key: usize, command: &Command, actor: &Arc<Actor>) -> Result<Answer, Broken> {
        let before = Arc::clone(&world.rooms[key]);
        let mut room = Room::clone(&before);
        let former = command.lease_id().and_then(|id| world.former(key, id));
        let first = world.last_token;
        let mut last = first;
        let decision = {
            let is_live = |id| is_live(&world.lines, id);
            let mut next_token = || token_after(&mut last);
            let mut context = Context {
                now: world.now,
                rules: &names().rules,
                is_live: &is_live,
                next_token: &mut next_token,
                actor,
                request_id: None,
                former: former.map(std::borrow::Cow::Borrowed),
            };
            self.rules.decide(&mut room, command, &mut context)
        };
        let asked = Asked {
            now: world.now,
            what: What::One(command),
            actor,
            is_live: &|id| is_live(&world.lines, id),
            former,
            tokens: (first, last),
            waiters_per_key: names().rules.waiters_per_key,
        };
        let formers = if self.holders_only {
            Vec::new()
        } else {
            judge::judge_one(&asked, &Step::new(&before, &room, &decision), &decision)?
        };
        self.coverage.decision(&decision);
        world.last_token = last;
        world.formers[key].extend(formers.into_iter().map(Arc::new));
        world.rooms[key] = Arc::new(room);
        Ok(aftermath(world, decision))
    }

    /// The server decides an acquire of both keys.
    fn run_both(
        &self,
        world: &mut World,
        terms: &domain::lease::Acquire,
        actor: &Arc<Actor>,
    ) -> Result<Answer, Broken> {
        let before = world.rooms.clone();
        let mut rooms = before.clone().map(|room| Room::clone(&room));
        let first = world.last_token;
        let mut last = first;
        let decision = {
            let is_live = |id| is_live(&world.lines, id);
            let mut next_token = || token_after(&mut last);
            let mut context = Context {
                now: world.now,
                rules: &names().rules,
                is_live: &is_live,
                next_token: &mut next_token,
                actor,
                request_id: None,
                former: None,
            };
            let [one, two] = &mut rooms;
            self.rules.decide_many(&mut [one, two], &[terms.clone(), terms.clone()], &mut context)
        };
        let asked = Asked {
            now: world.now,
            what: What::Both(terms),
            actor,
            is_live: &|id| is_live(&world.lines, id),
            former: None,
            tokens: (first, last),
            waiters_per_key: names().rules.waiters_per_key,
        };
        let steps = [0, 1].map(|key| Step::new(&before[key], &rooms[key], &decision));
        let formers = judge::judge_both(&asked, &steps, &decision)?;
        self.coverage.decision(&decision);
        world.last_token = last;
        for (known, formers) in world.formers.iter_mut().zip(formers) {
            known.extend(formers.into_iter().map(Arc::new));
        }
        world.rooms = rooms.map(Arc::new);
        Ok(aftermath(world, decision))
    }
}

fn token_after(last: &mut u64) -> FencingToken {
    *last += 1;
    FencingToken::new(*last).unwrap()
}

/// The server takes a waiter for alive unless it knows better.
fn is_live(lines: &[Line], id: WaiterId) -> bool {
    lines.iter().any(|line| line.waiter == id && line.end != LineEnd::Closed)
}

/// What a client gives up by the mere sending of a request, since it cannot know when the server acts on it.
fn send(world: &mut World, client: usize, request: Request) {
    let now = world.now;
    match request {
        Request::Release { key, .. } => {
            if let Some(hold) = &mut world.clients[client].holds[key] {
                hold.until = now;
                hold.stopping = true;
            }
        }
        Request::Renew { key, shorten: true, .. } => {
            if let Some(hold) = &mut world.clients[client].holds[key] {
                hold.until = hold.until.min(now + span(SHORT_TTL));
                hold.stopping = true;
            }
        }
        _ => {}
    }
}

/// The client hears an answer other than "wait".
fn hear(world: &mut World, sent: &Flight, answer: &Answer) {
    match (sent.request, answer) {
        (Request::Acquire { .. } | Request::AcquireBoth, Answer::Done(reply)) => {
            for reading in reply.leases() {
                world.hear_of_lease(sent.client, sent.sent, reading);
            }
        }
        // Unless it crashed meanwhile and knows of no lease.
        (Request::Renew { key, id, .. }, Answer::Done(Reply::Lease(reading)))
            if world.clients[sent.client].holds[key].as_ref().is_some_and(|hold| hold.id == id) =>
        {
            world.hear_of_lease(sent.client, sent.sent, reading);
        }
        (Request::Renew { key, id, .. }, Answer::Refused(Refusal::LeaseLost { .. } | Refusal::LeaseUnknown))
        | (Request::Release { key, id }, Answer::Done(_) | Answer::Refused(_)) => {
            world.clients[sent.client].holds[key].take_if(|hold| hold.id == id);
        }
        _ => {}
    }
}

/// What the rest of the world learns of a decision; the caller's answer.
fn aftermath(world: &mut World, decision: Decision) -> Answer {
    for event in &decision.settled.events {
        excuse(world, event);
    }
    for Woken { waiter, result } in decision.settled.woken {
        let Some(line) = world.lines.iter().find(|line| line.waiter == waiter).cloned() else { continue };
        let Ok(Reply::Lease(reading)) = result else { continue };
        match line.end {
            LineEnd::Listening => world.hear_of_lease(line.client, line.sent, &reading),
            LineEnd::Unwritable => world.unheard.push((key_index(&reading.lease_key), reading.lease.id())),
            LineEnd::Closed | LineEnd::Deaf => {}
        }
    }
    decision.answer
}

/// An operator who breaks or transfers a lease ends it before its holder can know: what the holder then believes is the
/// operator's doing, and is what fencing tokens are for.
fn excuse(world: &mut World, event: &Event) {
    let Some((Outcome::Broken | Outcome::Transferred, ended)) = event.change.ended() else { return };
    let (key, now) = (key_index(&event.lease_key), world.now);
    for client in &mut world.clients {
        if let Some(hold) = client.holds[key].as_mut().filter(|hold| hold.id == ended.lease_id) {
            hold.until = hold.until.min(now);
        }
    }
    debug_assert!(matches!(event.change, Change::Broken(_) | Change::Transferred(_)));
}
