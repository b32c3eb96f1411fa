//! What the process keeps of the keys: everything that the read models have not caught up with, every key with waiters,
//! and as many others as fit.

use std::collections::{HashMap, VecDeque};

use domain::lease::{FencingToken, Lease, Outage, Room};
use domain::{LeaseKey, Timestamp};

use crate::timeline::{Hash, Position};

/// How many keys are kept although they could be read again.
pub(super) const CAPACITY: usize = 65_536;

/// How many outages are kept although the read models have come to them: a key may be on its way here as it was before.
const OUTAGES_KEPT: usize = 64;

struct Entry {
    room: Room,
    /// The last line about this key, if it was written since the start.
    changed: Position,
}

/// The newest state of keys.
///
/// Two generations instead of a queue of uses: what is touched moves to the young one; when that is half of what may be
/// kept, the old one is let go, but for what cannot be read again.
pub(super) struct Memory {
    young: HashMap<LeaseKey, Entry>,
    old: HashMap<LeaseKey, Entry>,
    capacity: usize,
    /// When the young generation has so many, the old one is let go.
    swap_at: usize,
    /// Leases that are not the last of their key any more, until the read models have them.
    superseded: HashMap<FencingToken, (LeaseKey, Lease)>,
    superseded_at: VecDeque<(Position, FencingToken)>,
    /// Outages that the read models have not come to yet, and the last ones before.
    outages: VecDeque<(Position, Outage)>,
    /// The last line that the read models have.
    applied: Position,
    /// The last line, and its hash.
    pub(super) head: Position,
    pub(super) hash: Hash,
    /// The last token given out.
    pub(super) token: u64,
    /// When a mark of the clock was last committed.
    pub(super) lived_at: Timestamp,
    #[cfg(test)]
    swaps: usize,
}

impl Memory {
    pub(super) fn new(capacity: usize, head: Position, hash: Hash, token: u64, lived_at: Timestamp) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            capacity,
            swap_at: capacity / 2,
            superseded: HashMap::new(),
            superseded_at: VecDeque::new(),
            outages: VecDeque::new(),
            applied: head,
            head,
            hash,
            token,
            lived_at,
            #[cfg(test)]
            swaps: 0,
        }
    }

    /// The room of a key, if it is here.
    pub(super) fn get(&mut self, key: &LeaseKey) -> Option<&Room> {
        if !self.young.contains_key(key) {
            let entry = self.old.remove(key)?;
            self.insert(key.clone(), entry);
        }
        self.young.get(key).map(|entry| &entry.room)
    }

    /// Keeps a room that was read; nothing has been written about it that was not applied.
    pub(super) fn keep(&mut self, room: Room) {
        self.insert(room.key.lease_key.clone(), Entry { room, changed: Position(0) });
    }

    /// Keeps a room as it is after a commit whose last line is `head`.
    pub(super) fn publish(&mut self, room: Room) {
        let key = room.key.lease_key.clone();
        self.old.remove(&key);
        self.insert(key, Entry { room, changed: self.head });
    }

    /// Keeps a lease that is no longer the last of its key.
    pub(super) fn supersede(&mut self, key: LeaseKey, lease: Lease) {
        self.superseded_at.push_back((self.head, lease.token));
        self.superseded.insert(lease.token, (key, lease));
    }

    /// Such a lease.
    pub(super) fn former(&self, key: &LeaseKey, token: FencingToken) -> Option<&Lease> {
        self.superseded.get(&token).filter(|(of, _)| of == key).map(|(_, lease)| lease)
    }

    /// Reads every key through an outage, now and when it is read from models that have not come to it.
    pub(super) fn outage(&mut self, outage: Outage) {
        for entry in self.young.values_mut().chain(self.old.values_mut()) {
            entry.room.key.through(&outage);
        }
        self.outages.push_back((self.head, outage));
    }

    /// Reads a room that was loaded as of `applied` through what came after it.
    pub(super) fn bring_up(&self, room: &mut Room, applied: Position) {
        for (position, outage) in &self.outages {
            if *position > applied {
                room.key.through(outage);
            }
        }
    }

    /// The read models have come to this line: what only they lacked can be let go.
    pub(super) fn set_applied(&mut self, applied: Position) {
        self.applied = applied;
        while let Some((_, token)) = self.superseded_at.pop_front_if(|(position, _)| *position <= applied) {
            self.superseded.remove(&token);
        }
        // Not those that have just been applied: a room that was read a moment before that has yet to be brought up.
        while self.outages.len() > OUTAGES_KEPT
            && self.outages.pop_front_if(|(position, _)| *position <= applied).is_some()
        {}
    }

    fn insert(&mut self, key: LeaseKey, entry: Entry) {
        if self.young.len() >= self.swap_at {
            let old = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            let applied = self.applied;
            self.young
                .extend(old.into_iter().filter(|(_, entry)| entry.changed > applied || !entry.room.queue.is_empty()));
            // What cannot be let go now cannot be at the next insertion either: looked through at each, it would cost a little
            // for every key there is.
            self.swap_at = (self.capacity / 2).max(self.young.len() * 2);
            #[cfg(test)]
            {
                self.swaps += 1;
            }
        }
        self.young.insert(key, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(name: &str) -> Room {
        Room::new(LeaseKey::parse(name).unwrap())
    }

    fn memory(capacity: usize) -> Memory {
        Memory::new(capacity, Position(0), [0; 32], 0, Timestamp::EPOCH)
    }

    #[test]
    fn what_the_read_models_lack_is_never_let_go() {
        let mut memory = memory(8);
        memory.head = Position(1);
        memory.publish(room("unapplied"));
        for n in 0..100 {
            memory.keep(room(&format!("k{n}")));
        }
        assert!(memory.get(&LeaseKey::parse("unapplied").unwrap()).is_some());
        assert!(memory.get(&LeaseKey::parse("k0").unwrap()).is_none());
        assert!(memory.young.len() + memory.old.len() <= 10);
        memory.set_applied(Position(1));
        for n in 100..200 {
            memory.keep(room(&format!("k{n}")));
        }
        assert!(memory.get(&LeaseKey::parse("unapplied").unwrap()).is_none());
    }

    #[test]
    fn many_keys_that_cannot_be_let_go_are_not_looked_through_at_every_insertion() {
        let mut memory = memory(64);
        memory.head = Position(1);
        for n in 0..1_000 {
            memory.publish(room(&format!("k{n}")));
        }
        assert!(memory.swaps < 10, "{} times", memory.swaps);
        // Once they can be let go, memory is what it was.
        memory.set_applied(Position(1));
        for n in 1_000..4_000 {
            memory.keep(room(&format!("k{n}")));
        }
        assert!(memory.young.len() + memory.old.len() <= 70 && memory.swap_at == 32);
    }

    #[test]
    fn a_key_that_was_read_just_before_the_models_came_to_an_outage_is_brought_up_all_the_same() {
        let mut memory = memory(8);
        let micros = |n| Timestamp::from_micros(n);
        memory.head = Position(7);
        memory.outage(Outage { from: micros(1), to: micros(9_000_000), grace_us: domain::Span::millis(5_000) });
        let before = room("k");
        memory.set_applied(Position(7));
        let brought_up = |applied| memory.outages.iter().filter(|(position, _)| *position > applied).count();
        assert_eq!((brought_up(Position(6)), brought_up(Position(7))), (1, 0));
        let mut room = before.clone();
        memory.bring_up(&mut room, Position(7));
        assert_eq!(room, before);
    }

    #[test]
    fn what_is_used_is_kept() {
        let mut memory = memory(8);
        memory.keep(room("used"));
        for n in 0..100 {
            memory.keep(room(&format!("k{n}")));
            assert!(memory.get(&LeaseKey::parse("used").unwrap()).is_some());
        }
    }
}
