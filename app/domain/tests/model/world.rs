//! The world that the model explores: two keys of the server, three clients, and what is on its way between them.

use std::sync::{Arc, LazyLock};

use domain::lease::{Acquire, Lease, LeaseId, LeaseReading, Room, Rules, WaiterId};
use domain::{Actor, LeaseKey, Metadata, Owner, Reason, Span, Timestamp};

use crate::bounds::{Bounds, OUTAGE_GRACE, Terms, Units};
use crate::invariant::Broken;

pub(crate) const KEYS: usize = 2;
pub(crate) const CLIENTS: usize = 3;

/// The whole state. `now` is server time; every client's own clock runs as fast, so it serves as theirs too.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    /// The server's: each key with its waiters. Shared, since most steps touch one of them.
    pub(crate) rooms: [Arc<Room>; KEYS],
    /// Earlier leases of each key that somebody may still name.
    pub(crate) formers: [Vec<Arc<Lease>>; KEYS],
    pub(crate) clients: [Client; CLIENTS],
    /// The connections of those who wait.
    pub(crate) lines: Vec<Line>,
    /// Requests that were sent and may arrive, once or more than once, at any time or never.
    pub(crate) flights: Vec<Flight>,
    /// Grants whose answer the server knows it could not write.
    pub(crate) unheard: Vec<(usize, LeaseId)>,
    /// The last fencing token and the last waiter's name that were given out.
    pub(crate) last_token: u64,
    pub(crate) last_waiter: u64,
    pub(crate) left: Left,
    /// The first invariant that did not hold, if any: nothing happens after it.
    pub(crate) broken: Option<Broken>,
}

/// What a client knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Client {
    /// Of each key, the last lease it was given.
    pub(crate) holds: [Option<Hold>; KEYS],
}

/// A lease as its holder sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hold {
    pub(crate) id: LeaseId,
    /// It believes to hold the lease until this: counted from when it sent the request, with the time that the answer
    /// said was left. It works only from hearing the answer on.
    pub(crate) until: Timestamp,
    /// It asked for the lease to be shortened: it may end that soon whether or not an answer comes, so the client neither
    /// renews it afterwards nor trusts an answer to an earlier renewal.
    pub(crate) stopping: bool,
}

/// The connection of a waiter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) waiter: WaiterId,
    pub(crate) client: usize,
    pub(crate) sent: Timestamp,
    pub(crate) end: LineEnd,
}

/// What is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LineEnd {
    /// The client, listening.
    Listening,
    /// Nobody, and the server knows.
    Closed,
    /// Nobody; the server will notice when it writes.
    Unwritable,
    /// Nobody, and the server will never notice: what it writes to the socket counts as delivered.
    Deaf,
}

/// A request under way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Flight {
    pub(crate) client: usize,
    pub(crate) sent: Timestamp,
    pub(crate) request: Request,
}

/// What a client asks of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Request {
    Acquire { key: usize, wait: bool },
    AcquireBoth,
    Renew { key: usize, id: LeaseId, shorten: bool },
    Release { key: usize, id: LeaseId },
}

/// What may still happen in this world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) faults: u8,
    pub(crate) operations: u8,
    pub(crate) outages: u8,
    pub(crate) ticks: Option<u8>,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let actor = |index: usize| Arc::new(Actor::system(["client-0", "client-1", "client-2"][index]));
    Names {
        keys: [0, 1].map(|index| LeaseKey::parse(["key-0", "key-1"][index]).unwrap()),
        owners: [0, 1, 2].map(|index| Owner::parse(["client-0", "client-1", "client-2"][index]).unwrap()),
        actors: [0, 1, 2].map(actor),
        operator: Arc::new(Actor::system("operator")),
        reason: Reason::parse("because").unwrap(),
        rules: Rules { outage_grace: span(OUTAGE_GRACE), waiters_per_key: CLIENTS, ..Rules::default() },
    }
});

/// The names of things, made once.
pub(crate) struct Names {
    pub(crate) keys: [LeaseKey; KEYS],
    pub(crate) owners: [Owner; CLIENTS],
    pub(crate) actors: [Arc<Actor>; CLIENTS],
    pub(crate) operator: Arc<Actor>,
    pub(crate) reason: Reason,
    pub(crate) rules: Rules,
}

pub(crate) fn names() -> &'static Names {
    &NAMES
}

pub(crate) fn span(units: Units) -> Span {
    Span::millis(u32::from(units) * 1_000)
}

/// The whole units from `from` to `to`, negative if `to` is earlier.
pub(crate) fn units_between(from: Timestamp, to: Timestamp) -> i64 {
    (to.as_micros() - from.as_micros()) / 1_000_000
}

impl World {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        Self {
            now: Timestamp::EPOCH + Span::millis(1_000_000),
            rooms: [0, 1].map(|key| Arc::new(Room::new(names().keys[key].clone()))),
            formers: Default::default(),
            clients: Default::default(),
            lines: Vec::new(),
            flights: Vec::new(),
            unheard: Vec::new(),
            last_token: 0,
            last_waiter: 0,
            left: Left {
                faults: bounds.faults,
                operations: bounds.operations,
                outages: bounds.outages,
                ticks: bounds.ticks,
            },
            broken: None,
        }
    }

    /// The earlier lease of that id.
    pub(crate) fn former(&self, key: usize, id: LeaseId) -> Option<&Lease> {
        self.formers[key].iter().find(|lease| lease.id() == id).map(|lease| &**lease)
    }

    /// Whether the client believes, on its own clock, that it holds the key.
    pub(crate) fn believes(&self, client: usize, key: usize) -> bool {
        self.clients[client].holds[key].as_ref().is_some_and(|hold| self.now < hold.until)
    }

    /// The client hears that it was granted a lease, or renewed it.
    pub(crate) fn hear_of_lease(&mut self, client: usize, sent: Timestamp, reading: &LeaseReading) {
        let key = key_index(&reading.lease_key);
        let until = sent + reading.lease.expires_at.since(self.now);
        let id = reading.lease.id();
        match &mut self.clients[client].holds[key] {
            Some(hold) if hold.id == id && hold.stopping => {}
            // Told that it is to stop: this is sooner than what it was told before.
            Some(hold) if hold.id == id && reading.lease.breaking.is_some() => hold.until = until,
            Some(hold) if hold.id == id => hold.until = hold.until.max(until),
            // An answer that comes late to a renewal of a lease it has forgotten says nothing new.
            Some(hold) if hold.id > id => {}
            hold => *hold = Some(Hold { id, until, stopping: false }),
        }
    }

    /// Lets go of what nobody can name any more.
    pub(crate) fn tidy(&mut self) {
        let rooms = &self.rooms;
        self.lines.retain(|line| rooms.iter().any(|room| room.queue.iter().any(|waiter| waiter.id == line.waiter)));
        for key in 0..KEYS {
            let mut formers = std::mem::take(&mut self.formers[key]);
            formers.retain(|lease| self.is_named(key, lease.id()));
            formers.sort_by_key(|lease| lease.token);
            self.formers[key] = formers;
        }
    }

    /// Whether a client, a request under way or the server's own list names the lease.
    pub(crate) fn is_named(&self, key: usize, id: LeaseId) -> bool {
        self.clients.iter().any(|client| client.holds[key].as_ref().is_some_and(|hold| hold.id == id))
            || self.unheard.contains(&(key, id))
            || self.flights.iter().any(|flight| match flight.request {
                Request::Renew { key: of, id: named, .. } | Request::Release { key: of, id: named } => {
                    of == key && named == id
                }
                Request::Acquire { .. } | Request::AcquireBoth => false,
            })
    }
}

pub(crate) fn key_index(key: &LeaseKey) -> usize {
    usize::from(*key == names().keys[1])
}

pub(crate) fn owner_index(owner: &Owner) -> usize {
    names().owners.iter().position(|known| known == owner).unwrap()
}

/// What every client of this world asks for.
pub(crate) fn acquire(terms: &Terms, client: usize) -> Acquire {
    Acquire {
        owner: names().owners[client].clone(),
        job_key: None,
        ttl: span(terms.ttl),
        min_hold: span(terms.min_hold),
        max_hold: terms.max_hold.map(span),
        lock_delay: span(terms.lock_delay),
        subjects: Arc::from([]),
        metadata: Metadata::EMPTY,
    }
}
