//! What can happen next in a world.

use domain::lease::{LeaseId, LeaseStatus};

use crate::bounds::{Bounds, OUTAGES, Units};
use crate::world::{CLIENTS, KEYS, LineEnd, Request, World};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    /// A client's request arrives as it is sent.
    Call { client: usize, request: Request, answer: Fate },
    /// A client's request goes astray: it may arrive later, or never.
    Delay { client: usize, request: Request },
    /// A request arrives that went astray; `again` if it will once more.
    Arrive { flight: usize, answer: Fate, again: bool },
    /// A client crashes: it forgets everything. The server sees of its connections what `ends` says.
    Crash { client: usize, ends: LineEnd },
    /// A waiter hangs up, or its connection fails.
    Cut { line: usize, end: LineEnd },
    /// An operator does something.
    Operate { key: usize, operation: Operation },
    /// The server ends a grant whose answer it could not write.
    TakeBack { unheard: usize },
    /// Somebody looks at a key, or its alarm goes off.
    Look { key: usize },
    /// Time passes.
    Tick,
    /// The server, which last gave a sign of life so long ago, is away for a while; then it reads every key through the
    /// outage before it decides anything.
    Outage { mark_age: Units, length: Units },
    /// The server stops and starts at once: nobody waits any more, nothing is known of unwritten answers.
    Restart,
}

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Heard,
    /// It does not arrive, and the server cannot know.
    Lost,
    /// It does not arrive, and the server knows that it could not write it.
    Unwritten,
}

/// What an operator does to a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operation {
    Break { grace: Units, id: Option<LeaseId> },
    Transfer { id: LeaseId, to: usize },
    Quarantine,
    Lift,
}

/// All that can happen next.
pub(crate) fn actions(bounds: &Bounds, world: &World, out: &mut Vec<Action>) {
    if world.broken.is_some() {
        return;
    }
    if world.left.ticks != Some(0) {
        out.push(Action::Tick);
    }
    for key in 0..bounds.keys {
        looks(world, key, out);
        operations(bounds, world, key, out);
    }
    for client in 0..CLIENTS {
        requests(bounds, world, client, &mut |request| {
            out.push(Action::Call { client, request, answer: Fate::Heard });
            if world.left.faults > 0 {
                out.push(Action::Call { client, request, answer: Fate::Lost });
                if matches!(request, Request::Acquire { .. } | Request::AcquireBoth) {
                    out.push(Action::Call { client, request, answer: Fate::Unwritten });
                }
                out.push(Action::Delay { client, request });
            }
        });
    }
    for (flight, sent) in world.flights.iter().enumerate() {
        out.push(Action::Arrive { flight, answer: Fate::Heard, again: false });
        if world.left.faults > 0 {
            out.push(Action::Arrive { flight, answer: Fate::Heard, again: true });
            out.push(Action::Arrive { flight, answer: Fate::Lost, again: false });
            if matches!(sent.request, Request::Acquire { .. } | Request::AcquireBoth) {
                out.push(Action::Arrive { flight, answer: Fate::Unwritten, again: false });
            }
        }
    }
    out.extend((0..world.unheard.len()).map(|unheard| Action::TakeBack { unheard }));
    if world.left.faults > 0 {
        faults(world, out);
    }
    if world.left.outages > 0 {
        out.extend(OUTAGES.map(|(mark_age, length)| Action::Outage { mark_age, length }));
    }
}

/// Looking at a key changes nothing unless something is due.
fn looks(world: &World, key: usize, out: &mut Vec<Action>) {
    let room = &world.rooms[key];
    let due = room.key.lease.as_ref().is_some_and(|lease| lease.ended.is_none() && world.now >= lease.expires_at);
    if due || !room.queue.is_empty() {
        out.push(Action::Look { key });
    }
}

fn requests(bounds: &Bounds, world: &World, client: usize, out: &mut dyn FnMut(Request)) {
    let waits = |key: usize| {
        let queue = &world.rooms[key].queue;
        let own = |line: &&crate::world::Line| line.client == client && line.end == LineEnd::Listening;
        world.lines.iter().filter(own).any(|line| queue.iter().any(|waiter| waiter.id == line.waiter))
    };
    // Who believes to hold a key does not ask for it again, and nobody asks for a key he waits for.
    let wants = |key: usize| !world.believes(client, key) && !waits(key);
    for key in 0..bounds.keys {
        if wants(key) {
            out(Request::Acquire { key, wait: false });
            // Waiting for a free key is the same as not waiting.
            if bounds.waiting && world.rooms[key].key.lease.as_ref().is_some_and(|lease| lease.ended.is_none()) {
                out(Request::Acquire { key, wait: true });
            }
        }
        if let Some(hold) = &world.clients[client].holds[key] {
            if !hold.stopping {
                out(Request::Renew { key, id: hold.id, shorten: false });
                if bounds.shortening {
                    out(Request::Renew { key, id: hold.id, shorten: true });
                }
            }
            out(Request::Release { key, id: hold.id });
        }
    }
    if bounds.keys == KEYS && wants(0) && wants(1) {
        out(Request::AcquireBoth);
    }
}

fn operations(bounds: &Bounds, world: &World, key: usize, out: &mut Vec<Action>) {
    let room = &world.rooms[key];
    if room.key.quarantine.is_some() {
        out.push(Action::Operate { key, operation: Operation::Lift });
    }
    if world.left.operations == 0 {
        return;
    }
    let mut add = |operation| out.push(Action::Operate { key, operation });
    let alive = room.key.lease.as_ref().filter(|lease| !matches!(lease.status(world.now), LeaseStatus::Ended(_)));
    let former = world.formers[key].last().map(|lease| lease.id());
    for &grace in bounds.graces {
        if alive.is_some() {
            add(Operation::Break { grace, id: None });
        }
        if let Some(id) = former {
            add(Operation::Break { grace, id: Some(id) });
        }
    }
    {
        if let Some(lease) = &room.key.lease {
            for to in (0..CLIENTS).filter(|&to| !world.believes(to, key)) {
                add(Operation::Transfer { id: lease.id(), to });
            }
        }
        if room.key.quarantine.is_none() {
            add(Operation::Quarantine);
        }
    }
}

fn faults(world: &World, out: &mut Vec<Action>) {
    for (line, _) in world.lines.iter().enumerate().filter(|(_, line)| line.end == LineEnd::Listening) {
        out.extend([LineEnd::Closed, LineEnd::Unwritable, LineEnd::Deaf].map(|end| Action::Cut { line, end }));
    }
    for client in 0..CLIENTS {
        let knows_something = world.clients[client].holds.iter().any(Option::is_some);
        let waits = world.lines.iter().any(|line| line.client == client && line.end == LineEnd::Listening);
        if waits {
            out.extend(
                [LineEnd::Closed, LineEnd::Unwritable, LineEnd::Deaf].map(|ends| Action::Crash { client, ends }),
            );
        } else if knows_something {
            out.push(Action::Crash { client, ends: LineEnd::Closed });
        }
    }
    if !world.lines.is_empty() || !world.unheard.is_empty() {
        out.push(Action::Restart);
    }
}
