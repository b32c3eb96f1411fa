//! When two states are the same for all that can still happen.
//!
//! The rules know no absolute time, no absolute token and no client or key by name. So two worlds are the same if they
//! agree in: how far every instant still ahead is from now; which lease is which by the order of tokens; and both up to
//! renaming clients and keys. What only the past would tell (since when, how often, by whom) decides nothing and is left
//! out. The checker compares states by this shape alone, which makes the worlds finite without any bound on time.

use std::hash::{Hash, Hasher};

use domain::Timestamp;
use domain::lease::{Ending, Lease, LeaseId, Outcome};

use crate::judge::plain;
use crate::world::{CLIENTS, KEYS, Line, Request, World, owner_index, units_between};

/// Further back than this an instant makes no difference: longer than every ttl, lock delay and wait in the worlds.
const PAST: i64 = -2;

/// Every way to rename three clients.
const RENAMINGS: [[u8; CLIENTS]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut least: Vec<u8> = Vec::new();
        let mut shape = Vec::with_capacity(160);
        for &keys in self.key_orders() {
            for clients in &RENAMINGS {
                shape.clear();
                Writer { world: self, clients, keys, out: &mut shape }.write();
                if least.is_empty() || shape < least {
                    std::mem::swap(&mut least, &mut shape);
                }
            }
        }
        least.hash(state);
    }
}

impl World {
    /// The orders of keys to choose the least from; a key on which nothing ever happened comes last.
    fn key_orders(&self) -> &'static [[usize; KEYS]] {
        let fresh = [0, 1].map(|key| self.rooms[key].key.lease.is_none() && !self.rooms[key].key.is_known());
        match fresh {
            [_, true] => &[[0, 1]],
            [true, false] => &[[1, 0]],
            [false, false] => &[[0, 1], [1, 0]],
        }
    }
}

struct Writer<'a> {
    world: &'a World,
    /// The new name of each client.
    clients: &'a [u8; CLIENTS],
    /// The new name of each key, which is also the key of each new name.
    keys: [usize; KEYS],
    out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    fn write(&mut self) {
        let world = self.world;
        let left = world.left;
        let ticks = left.ticks.unwrap_or(0);
        self.out.extend([left.faults, left.operations, left.outages, ticks, u8::from(world.broken.is_some())]);
        for key in self.keys {
            self.key(key);
        }
        for name in 0..CLIENTS {
            // Its old index is where its new name stands.
            let client = self.clients.iter().position(|&new| usize::from(new) == name).unwrap_or(name);
            for key in self.keys {
                match &world.clients[client].holds[key] {
                    None => self.out.push(255),
                    Some(hold) => {
                        let entry = [self.lease(key, hold.id), self.ahead(hold.until), u8::from(hold.stopping)];
                        self.out.extend(entry);
                    }
                }
            }
        }
        self.flights();
        let mut unheard: Vec<_> =
            world.unheard.iter().map(|&(key, id)| [self.keys[key] as u8, self.lease(key, id)]).collect();
        unheard.sort_unstable();
        self.out.extend(unheard.into_iter().flatten());
    }

    fn key(&mut self, key: usize) {
        let world = self.world;
        let room = &world.rooms[key];
        self.out.push(u8::from(room.key.quarantine.is_some()));
        match &room.key.lease {
            None => self.out.push(255),
            Some(lease) => self.current(key, lease),
        }
        self.out.push(room.key.cooling_until.map_or(0, |until| self.ahead(until)));
        for former in &world.formers[key] {
            let outcome = former.ended.map_or(9, |ending| ending.outcome as u8);
            self.out.extend([254, outcome]);
        }
        for waiter in room.queue.iter() {
            let line = world.lines.iter().find(|line| line.waiter == waiter.id);
            let end = line.map_or(9, |line| line.end as u8);
            // Nobody at the other end counts any more.
            let sent =
                line.filter(|line| line.end == crate::world::LineEnd::Listening).map_or(0, |line| self.sent(line));
            let client = self.clients[owner_index(&waiter.request.owner)];
            let entry = [253, client, self.ahead(waiter.deadline), end, sent];
            self.out.extend(entry);
        }
        self.out.push(252);
    }

    fn current(&mut self, key: usize, lease: &Lease) {
        let world = self.world;
        let ended = plain::ending(lease, world.now);
        let owner = self.clients[owner_index(&lease.owner)];
        match ended {
            // Its end is recorded: only those who can name it, and a key that cools, can tell it from another.
            Some(Ending { outcome, .. }) if lease.ended.is_some() => {
                let named = world.is_named(key, lease.id());
                let cooling = room_cools(world, key);
                let outcome = if named { outcome as u8 } else { Outcome::Released as u8 };
                self.out.extend([10, u8::from(named), outcome, if cooling { owner } else { 9 }]);
            }
            ended => {
                let due = ended.map_or(9, |ending| ending.outcome as u8);
                let breaking = lease.breaking.as_ref().map_or(0, |breaking| 1 + self.ahead(breaking.ends_at));
                // Whether an outage would find it alive at a sign of life that is one unit old.
                let is_new = world.left.outages > 0 && lease.acquired_at == world.now;
                let entry = [
                    11,
                    owner,
                    due,
                    self.around(lease.expires_at),
                    breaking,
                    lease.max_hold_until.map_or(0, |until| 1 + self.ahead(until)),
                    lease.min_hold_until.map_or(0, |until| self.ahead(until)),
                    (lease.ttl.as_millis() / 1_000) as u8,
                    u8::from(is_new),
                ];
                self.out.extend(entry);
            }
        }
    }

    fn flights(&mut self) {
        let mut flights: Vec<[u8; 6]> = self
            .world
            .flights
            .iter()
            .map(|flight| {
                let (kind, key, lease, flag) = match flight.request {
                    Request::Acquire { key, wait } => (0, self.keys[key], 0, wait),
                    Request::AcquireBoth => (1, 0, 0, false),
                    Request::Renew { key, id, shorten } => (2, self.keys[key], self.lease(key, id), shorten),
                    Request::Release { key, id } => (3, self.keys[key], self.lease(key, id), false),
                };
                let client = self.clients[flight.client];
                [client, kind, key as u8, lease, u8::from(flag), self.around(flight.sent)]
            })
            .collect();
        flights.sort_unstable();
        self.out.push(flights.len() as u8);
        self.out.extend(flights.into_iter().flatten());
    }

    /// The lease's place in the order of its key's known leases; they are kept sorted.
    fn lease(&self, key: usize, id: LeaseId) -> u8 {
        let formers = &self.world.formers[key];
        formers.iter().position(|former| former.id() == id).unwrap_or(formers.len()) as u8
    }

    fn sent(&self, line: &Line) -> u8 {
        self.around(line.sent)
    }

    /// An instant of which only matters how far ahead it is.
    fn ahead(&self, at: Timestamp) -> u8 {
        units_between(self.world.now, at).clamp(0, 200) as u8
    }

    /// An instant of which also matters how long ago it was.
    fn around(&self, at: Timestamp) -> u8 {
        (units_between(self.world.now, at).clamp(PAST, 200) - PAST) as u8
    }
}

fn room_cools(world: &World, key: usize) -> bool {
    world.rooms[key].key.cooling_until.is_some_and(|until| world.now < until)
}
