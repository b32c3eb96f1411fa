//! What a timeline comes to: the state of every key, made anew from what retention has kept and the lines, and from nothing else.
//! It takes about a KiB of memory for each key.

use std::collections::{BTreeMap, btree_map};

use domain::LeaseKey;
use domain::lease::{Change, Event, KeyState};

use super::{Happening, Line, Record, VerifyError};

/// The states of all keys.
#[derive(Default)]
pub(crate) struct Replay {
    keys: BTreeMap<LeaseKey, KeyState>,
}

impl Replay {
    /// Begins with a key as retention has kept it.
    pub(crate) fn keep(&mut self, state: KeyState) {
        self.keys.insert(state.lease_key.clone(), state);
    }

    /// Takes in the next line.
    ///
    /// # Errors
    /// If it cannot have happened to its key as it was.
    pub(crate) fn take(&mut self, line: &Line) -> Result<(), VerifyError> {
        match &*line.record {
            Record::Lease(event) => {
                let key = &event.lease_key;
                let state = self.keys.entry(key.clone()).or_insert_with(|| KeyState::new(key.clone()));
                if !fits(state, event) {
                    return Err(VerifyError::Unfit { position: line.position, key: key.clone() });
                }
                state.apply(event);
            }
            Record::Other(other) => {
                if let Happening::Outage(outage) = &other.happening {
                    self.keys.values_mut().for_each(|state| state.through(outage));
                }
            }
        }
        Ok(())
    }

    /// Compares stored states with what the lines come to.
    pub(crate) fn comparison(&self) -> Comparison<'_> {
        Comparison(self.keys.values())
    }

    /// All states, in the order of their keys' names.
    pub(crate) fn states(&self) -> impl Iterator<Item = &KeyState> {
        self.keys.values()
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }
}

/// Stored states are shown to it one by one, in the order of their keys' names, and then the end.
pub(crate) struct Comparison<'r>(btree_map::Values<'r, LeaseKey, KeyState>);

impl Comparison<'_> {
    /// Takes the next stored state.
    ///
    /// # Errors
    /// If it is another than the lines come to, or one before it is missing.
    pub(crate) fn next(&mut self, stored: &KeyState) -> Result<(), VerifyError> {
        if !stored.is_known() {
            // Of a key to which nothing happened there may be a row all the same.
            return Ok(());
        }
        match self.0.next() {
            Some(state) if state == stored => Ok(()),
            Some(state) if state.lease_key < stored.lease_key => Err(VerifyError::OtherState(state.lease_key.clone())),
            _ => Err(VerifyError::OtherState(stored.lease_key.clone())),
        }
    }

    /// There are no more.
    ///
    /// # Errors
    /// If one is missing.
    pub(crate) fn end(mut self) -> Result<(), VerifyError> {
        self.0.next().map_or(Ok(()), |state| Err(VerifyError::OtherState(state.lease_key.clone())))
    }
}

/// Whether this can have happened to a key: a lease follows one that has ended, with a greater token, and what happens to a lease
/// happens to the last one, until it ends.
fn fits(state: &KeyState, event: &Event) -> bool {
    let last = state.lease.as_ref();
    match &event.change {
        Change::Granted(granted) => {
            let previous = last.map(|lease| lease.token);
            granted.previous_token == previous
                && previous < Some(granted.fencing_token)
                && last.is_none_or(|lease| lease.ended.is_some())
        }
        Change::Quarantined { .. } | Change::Lifted { .. } => true,
        change => last.is_some_and(|lease| lease.ended.is_none() && change.token() == Some(lease.token)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::lease::{Ended, FencingToken, Granted, LeaseId, Origin, Renewed};
    use domain::{Actor, Metadata, Owner, Span, Timestamp};

    use super::*;
    use crate::timeline::Position;

    fn line(position: i64, change: Change) -> Line {
        let event = Event {
            at: Timestamp::from_micros(position),
            change,
            lease_key: LeaseKey::parse("k").unwrap(),
            actor: Arc::new(Actor::system("test")),
            request_id: None,
        };
        Line {
            position: Position(position),
            hash: [0; 32],
            body: Arc::from(""),
            record: Arc::new(Record::Lease(event)),
        }
    }

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    fn granted(number: u64, previous: Option<u64>) -> Change {
        Change::Granted(Granted {
            lease_id: LeaseId::from(token(number)),
            fencing_token: token(number),
            previous_token: previous.map(token),
            owner: Owner::parse("o").unwrap(),
            job_key: None,
            origin: Origin::Acquired,
            expires_at: Timestamp::from_micros(1_000),
            ttl_us: Span::millis(1),
            max_hold_until: None,
            min_hold_until: None,
            lock_delay_us: Span::ZERO,
            subjects: Arc::from([]),
            metadata: Metadata::EMPTY,
        })
    }

    fn renewed(number: u64) -> Change {
        Change::Renewed(Renewed {
            lease_id: LeaseId::from(token(number)),
            fencing_token: token(number),
            expires_at: Timestamp::from_micros(2_000),
            ttl_us: Span::millis(1),
            margin_us: Span::ZERO,
        })
    }

    fn released(number: u64) -> Change {
        Change::Released(Ended {
            lease_id: LeaseId::from(token(number)),
            fencing_token: token(number),
            owner: Owner::parse("o").unwrap(),
            ended_at: Timestamp::from_micros(3),
            cooling_until: None,
            reason: None,
        })
    }

    /// The place of the first line that does not fit.
    fn unfit(changes: impl IntoIterator<Item = Change>) -> Option<i64> {
        let mut replay = Replay::default();
        (1..).zip(changes).find_map(|(position, change)| match replay.take(&line(position, change)) {
            Ok(()) => None,
            Err(VerifyError::Unfit { position: at, .. }) => Some(at.0),
            Err(error) => panic!("{error}"),
        })
    }

    #[test]
    fn what_cannot_have_happened_to_a_key_does_not_fit() {
        let good = [granted(5, None), renewed(5), released(5), granted(6, Some(5)), released(6)];
        assert_eq!(unfit(good), None);
        assert_eq!(unfit([granted(5, None), granted(6, Some(5))]), Some(2), "while one is held");
        assert_eq!(unfit([granted(5, None), released(5), released(5)]), Some(3), "ended twice");
        assert_eq!(unfit([granted(5, None), released(5), renewed(5)]), Some(3), "revived");
        assert_eq!(unfit([granted(5, None), renewed(4)]), Some(2), "another lease");
        assert_eq!(unfit([granted(5, None), released(5), granted(5, Some(5))]), Some(3), "no greater token");
        assert_eq!(unfit([granted(5, None), released(5), granted(7, Some(6))]), Some(3), "one is missing");
        assert_eq!(unfit([granted(5, Some(4))]), Some(1), "what was kept is missing");
        assert_eq!(unfit([renewed(5)]), Some(1));
    }

    #[test]
    fn a_stored_state_is_compared_with_what_the_lines_come_to() {
        let mut replay = Replay::default();
        replay.take(&line(1, granted(5, None))).unwrap();
        let good = replay.states().next().unwrap().clone();
        let compare = |stored: &[&KeyState]| {
            let mut comparison = replay.comparison();
            stored.iter().try_for_each(|state| comparison.next(state))?;
            comparison.end()
        };
        let key = |name: &str| LeaseKey::parse(name).unwrap();
        let unknown = KeyState::new(key("a"));
        compare(&[&unknown, &good]).unwrap();
        let mut renewed = good.clone();
        renewed.lease.as_mut().unwrap().renewals = 1;
        let mut other = good.clone();
        other.lease_key = key("other");
        let mut early = good.clone();
        early.lease_key = key("early");
        for (stored, wrong) in [
            (&[&renewed][..], "k"),
            (&[], "k"),
            (&[&unknown], "k"),
            (&[&other], "k"),
            (&[&early, &good], "early"),
            (&[&good, &other], "other"),
        ] {
            let Err(VerifyError::OtherState(key)) = compare(stored) else { panic!("{wrong}") };
            assert_eq!(key.as_str(), wrong);
        }
    }
}
