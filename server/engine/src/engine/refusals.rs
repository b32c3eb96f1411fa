//! Duplicates that were refused, counted in memory and written to the timeline each second.

use std::collections::HashMap;

use domain::lease::Refusal;
use domain::{LeaseKey, Owner};

use crate::timeline::Refused;

/// The most rows in one line of the timeline: with the longest names it stays below 64 KiB.
const ROWS: usize = 64;

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

    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Takes out all of it, in pieces that each make one line.
    pub(super) fn take(&mut self) -> Vec<Vec<Refused>> {
        let mut all: Vec<Refused> =
            self.counts.drain().map(|((lease_key, owner), times)| Refused { lease_key, owner, times }).collect();
        all.sort_by(|a, b| (&a.lease_key, &a.owner).cmp(&(&b.lease_key, &b.owner)));
        all.chunks(ROWS).map(<[Refused]>::to_vec).collect()
    }
}
