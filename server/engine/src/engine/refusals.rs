//! Duplicates that were refused, counted in memory and written to the timeline each second.

use std::collections::HashMap;

use domain::lease::Refusal;
use domain::{LeaseKey, Owner};

use crate::timeline::Refused;

/// The most bytes of rows in one line of the timeline, which must stay below 64 KiB.
const BYTES: usize = 32 * 1024;

/// The most pairs of key and owner kept until the next line.
const MOST: usize = 4_096;

/// Counts by key and owner since the last line.
#[derive(Default)]
pub(super) struct Refusals {
    counts: HashMap<(LeaseKey, Owner), u64>,
}

impl Refusals {
    /// Notes that `owner` was refused `key`, if it was because somebody else was there first.
    pub(super) fn note(&mut self, key: &LeaseKey, owner: &Owner, refusal: &Refusal) {
        if let Refusal::KeysBusy(keys) = refusal {
            for busy in keys {
                self.note(&busy.lease_key, owner, &busy.refusal);
            }
        } else if refusal.is_collision() {
            self.add(key, owner);
        }
    }

    fn add(&mut self, key: &LeaseKey, owner: &Owner) {
        if let Some(count) = self.counts.get_mut(&(key.clone(), owner.clone())) {
            *count += 1;
        } else if self.counts.len() < MOST {
            self.counts.insert((key.clone(), owner.clone()), 1);
        } else if let Some(count) = self.counts.values_mut().next() {
            // More pairs than can be kept for a second: the sum stays true, the attribution does not.
            *count += 1;
        }
    }

    /// Takes out all of it, in pieces that each make one line.
    pub(super) fn take(&mut self) -> Vec<Vec<Refused>> {
        let mut all: Vec<Refused> =
            self.counts.drain().map(|((lease_key, owner), times)| Refused { lease_key, owner, times }).collect();
        all.sort_by(|a, b| (&a.lease_key, &a.owner).cmp(&(&b.lease_key, &b.owner)));
        let mut pieces: Vec<Vec<Refused>> = Vec::new();
        let mut bytes = BYTES;
        for refused in all {
            // As it will be written: what must be escaped is longer than the name itself.
            let row = serde_json::to_string(&refused).map_or(0, |json| json.len());
            bytes += row;
            if bytes > BYTES {
                pieces.push(Vec::new());
                bytes = row;
            }
            if let Some(piece) = pieces.last_mut() {
                piece.push(refused);
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_makes_a_line_that_can_be_stored_whatever_the_names_are() {
        let mut refusals = Refusals::default();
        let owner = Owner::parse(&"\\".repeat(256)).unwrap();
        for n in 0..300 {
            let key = LeaseKey::parse(&format!("{}{n:04}", "\\".repeat(508))).unwrap();
            refusals.add(&key, &owner);
        }
        let pieces = refusals.take();
        assert!(pieces.iter().all(|piece| serde_json::to_string(piece).unwrap().len() < 60_000));
        assert_eq!(pieces.iter().map(Vec::len).sum::<usize>(), 300);
        assert!(pieces.iter().all(|piece| !piece.is_empty()));
        assert!(refusals.take().is_empty());
    }
}
