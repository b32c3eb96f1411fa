//! What many lines come to: each key, grant and owner once. The read models of any database are written from this, so that
//! a key that changed a thousand times costs them one row.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::lease::{Change, Event, FencingToken, KeyState, Lease, Outage, Outcome};
use domain::{LeaseKey, Span, Timestamp};

use super::{Happening, Hash, Line, Position, Record};

/// What lines that follow each other came to, until it is written.
#[derive(Default)]
pub(crate) struct Folded {
    /// An outage reads what is there: what came before it must be written first. So each begins a stretch of its own.
    pub(crate) stretches: Vec<(Option<Outage>, Changes)>,
    /// The last line.
    pub(crate) last: Option<(Position, Hash)>,
    /// How many lines it was, and how many bytes.
    pub(crate) lines: usize,
    pub(crate) bytes: usize,
}

impl Folded {
    /// Takes in lines that follow those before.
    pub(crate) fn take(&mut self, lines: &[Line]) {
        for line in lines {
            if let Record::Other(other) = &*line.record
                && let Happening::Outage(outage) = &other.happening
            {
                self.stretches.push((Some(*outage), Changes::default()));
            } else {
                if self.stretches.is_empty() {
                    self.stretches.push((None, Changes::default()));
                }
                if let Some((_, changes)) = self.stretches.last_mut() {
                    changes.take(line);
                }
            }
            self.last = Some((line.position, line.hash));
        }
        self.lines += lines.len();
        self.bytes += lines.iter().map(|line| line.body.len()).sum::<usize>();
    }
}

/// What many lines come to, without an outage among them.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) made: BTreeMap<FencingToken, Made>,
    pub(crate) changed: BTreeMap<FencingToken, GrantDelta>,
    pub(crate) keys: BTreeMap<LeaseKey, KeyDelta>,
    pub(crate) owners: BTreeMap<Arc<str>, Seen>,
    pub(crate) jobs: BTreeMap<Arc<str>, Seen>,
    pub(crate) collisions: BTreeMap<(LeaseKey, Box<str>), (u64, Timestamp)>,
    pub(crate) collision_days: BTreeMap<(i64, LeaseKey), u64>,
    pub(crate) interventions: Vec<(LeaseKey, Position, Arc<str>)>,
    pub(crate) minutes: BTreeMap<i64, MinuteDelta>,
    pub(crate) live: i64,
    pub(crate) refused: i64,
}

/// A grant that was made among these lines.
pub(crate) struct Made {
    pub(crate) lease_key: LeaseKey,
    pub(crate) previous: Option<FencingToken>,
    pub(crate) lease: Lease,
    pub(crate) renewals: RecentRenewals,
}

/// The latest renewals, as the column of that name holds them.
#[derive(Default)]
pub(crate) struct RecentRenewals(pub(crate) String);

impl RecentRenewals {
    /// How long each is.
    pub(crate) const DIGITS: usize = 24;
    /// How many are kept.
    pub(crate) const KEPT: usize = 32;

    fn note(&mut self, at: Timestamp, margin: Span) {
        use std::fmt::Write as _;
        let most = Self::KEPT * Self::DIGITS;
        if self.0.len() >= most {
            self.0.drain(..self.0.len() - most + Self::DIGITS);
        }
        let millis = u32::try_from(margin.as_millis().max(0)).unwrap_or(u32::MAX);
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{:016x}{millis:08x}", at.as_micros());
    }

    /// Reads the column; the newest first.
    pub(crate) fn read(column: &str) -> Vec<(Timestamp, Span)> {
        let one = |digits: &str| {
            let at = i64::from_str_radix(digits.get(..16)?, 16).ok()?;
            let millis = u32::from_str_radix(digits.get(16..)?, 16).ok()?;
            Some((Timestamp::from_micros(at), Span::millis(millis)))
        };
        let digits = (0..column.len()).step_by(Self::DIGITS).rev();
        digits.filter_map(|from| one(column.get(from..from + Self::DIGITS)?)).collect()
    }
}

/// What happened in one minute.
#[derive(Clone, Copy, Default)]
pub(crate) struct MinuteDelta {
    pub(crate) granted: i64,
    pub(crate) renewed: i64,
    pub(crate) released: i64,
    pub(crate) cut_short: i64,
    pub(crate) refused: i64,
    /// How many more leases there were at its end than at its beginning.
    pub(crate) live: i64,
}

/// What changes of a grant that was made earlier.
#[derive(Default)]
pub(crate) struct GrantDelta {
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) updated_at: Timestamp,
    pub(crate) ttl: Option<i64>,
    pub(crate) renewals: i64,
    pub(crate) recent: RecentRenewals,
    pub(crate) breaking: Option<(Timestamp, String)>,
    pub(crate) ended: Option<(Outcome, Timestamp)>,
}

#[derive(Default)]
pub(crate) struct KeyDelta {
    /// Whether the models may not have the key yet.
    pub(crate) is_new: bool,
    pub(crate) token: Option<FencingToken>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) updated_at: Option<Timestamp>,
    pub(crate) live: Option<bool>,
    pub(crate) cooling_until: Option<i64>,
    pub(crate) quarantine: Option<String>,
    pub(crate) changed_at: Timestamp,
}

pub(crate) struct Seen {
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
    pub(crate) grants: i64,
}

impl Seen {
    fn note(map: &mut BTreeMap<Arc<str>, Self>, name: &str, at: Timestamp, grants: i64) {
        match map.get_mut(name) {
            Some(seen) => {
                seen.first = seen.first.min(at);
                seen.last = seen.last.max(at);
                seen.grants += grants;
            }
            None => {
                map.insert(Arc::from(name), Self { first: at, last: at, grants });
            }
        }
    }
}

impl Changes {
    fn take(&mut self, line: &Line) {
        match &*line.record {
            Record::Lease(event) => self.lease(line, event),
            Record::Other(other) => {
                if let Happening::Collisions { refused } = &other.happening {
                    for refused in refused {
                        self.collisions(&refused.lease_key, refused.owner.as_str(), refused.times, other.at);
                    }
                }
            }
        }
    }

    fn lease(&mut self, line: &Line, event: &Event) {
        self.minute(event.at).note(&event.change);
        if is_intervention(&event.change) {
            self.interventions.push((event.lease_key.clone(), line.position, Arc::clone(&line.body)));
        }
        let key = self.keys.entry(event.lease_key.clone()).or_default();
        key.changed_at = event.at;
        match &event.change {
            Change::Granted(granted) => {
                let lease = Lease::granted(granted, event.at);
                key.is_new |= granted.previous_token.is_none();
                key.token = Some(lease.token);
                key.expires_at = Some(lease.expires_at);
                key.updated_at = Some(event.at);
                key.live = Some(true);
                key.cooling_until = Some(0);
                self.live += 1;
                Seen::note(&mut self.owners, lease.owner.as_str(), event.at, 1);
                if let Some(job_key) = &lease.job_key {
                    Seen::note(&mut self.jobs, job_key.as_str(), event.at, 1);
                }
                let made = Made {
                    lease_key: event.lease_key.clone(),
                    previous: granted.previous_token,
                    lease,
                    renewals: RecentRenewals::default(),
                };
                self.made.insert(made.lease.token, made);
                return;
            }
            Change::Quarantined { reason } => {
                // The shape that `key_state` reads back.
                let quarantine =
                    domain::lease::Quarantine { since: event.at, reason: reason.clone(), by: Arc::clone(&event.actor) };
                key.quarantine = serde_json::to_string(&quarantine).ok();
                // A key may be quarantined that was never leased.
                key.is_new = true;
                return;
            }
            Change::Lifted { .. } => {
                key.quarantine = Some(String::new());
                return;
            }
            Change::Renewed(renewed) => key.expires_at = Some(renewed.expires_at),
            Change::Breaking(breaking) => key.expires_at = Some(breaking.expires_at),
            change => {
                if let Some((_, ended)) = change.ended() {
                    key.expires_at = Some(ended.ended_at);
                    key.live = Some(false);
                    key.cooling_until = Some(ended.cooling_until.map_or(0, Timestamp::as_micros));
                    self.live -= 1;
                    Seen::note(&mut self.owners, ended.owner.as_str(), event.at, 0);
                }
            }
        }
        key.updated_at = Some(event.at);
        let Some(token) = event.change.token() else { return };
        if let Some(made) = self.made.get_mut(&token) {
            made.lease.apply(event);
            if let Change::Renewed(renewed) = &event.change {
                made.renewals.note(event.at, renewed.margin_us);
            }
        } else {
            self.changed.entry(token).or_default().note(event);
        }
    }

    /// A key as retention kept it: of its grants only the last is known.
    pub(crate) fn kept(&mut self, state: &KeyState) {
        let key = self.keys.entry(state.lease_key.clone()).or_default();
        key.is_new = true;
        key.changed_at = state.changed_at;
        key.cooling_until = Some(state.cooling_until.map_or(0, Timestamp::as_micros));
        key.quarantine = state.quarantine.as_ref().and_then(|quarantine| serde_json::to_string(quarantine).ok());
        let Some(lease) = &state.lease else { return };
        key.token = Some(lease.token);
        key.expires_at = Some(lease.expires_at);
        key.updated_at = Some(lease.updated_at);
        key.live = Some(lease.ended.is_none());
        self.live += i64::from(lease.ended.is_none());
        Seen::note(&mut self.owners, lease.owner.as_str(), lease.acquired_at, 1);
        Seen::note(&mut self.owners, lease.owner.as_str(), lease.updated_at, 0);
        if let Some(job_key) = &lease.job_key {
            Seen::note(&mut self.jobs, job_key.as_str(), lease.acquired_at, 1);
        }
        let lease_key = state.lease_key.clone();
        let made = Made { lease_key, previous: None, lease: lease.clone(), renewals: RecentRenewals::default() };
        self.made.insert(lease.token, made);
    }

    fn minute(&mut self, at: Timestamp) -> &mut MinuteDelta {
        self.minutes.entry(at.minute()).or_default()
    }

    fn collisions(&mut self, key: &LeaseKey, owner: &str, times: u64, at: Timestamp) {
        let entry = self.collisions.entry((key.clone(), Box::from(owner))).or_insert((0, at));
        entry.0 += times;
        entry.1 = at;
        *self.collision_days.entry((at.day(), key.clone())).or_default() += times;
        let times = i64::try_from(times).unwrap_or(i64::MAX);
        self.refused += times;
        self.minute(at).refused += times;
    }
}

impl GrantDelta {
    fn note(&mut self, event: &Event) {
        self.updated_at = event.at;
        match &event.change {
            Change::Renewed(renewed) => {
                self.expires_at = Some(renewed.expires_at);
                self.ttl = Some(renewed.ttl_us.as_micros());
                self.renewals += 1;
                self.recent.note(event.at, renewed.margin_us);
            }
            Change::Breaking(requested) => {
                self.expires_at = Some(requested.expires_at);
                let breaking = domain::lease::Breaking {
                    ends_at: requested.ends_at,
                    asked_at: event.at,
                    reason: requested.reason.clone(),
                    by: Arc::clone(&event.actor),
                };
                self.breaking = serde_json::to_string(&breaking).ok().map(|text| (requested.ends_at, text));
            }
            change => {
                if let Some((outcome, ended)) = change.ended() {
                    self.expires_at = Some(ended.ended_at);
                    self.ended = Some((outcome, ended.ended_at));
                }
            }
        }
    }
}

impl MinuteDelta {
    const fn note(&mut self, change: &Change) {
        match change {
            Change::Granted(_) => {
                self.granted += 1;
                self.live += 1;
            }
            Change::Renewed(_) => self.renewed += 1,
            Change::Released(_) => {
                self.released += 1;
                self.live -= 1;
            }
            Change::Expired(_) | Change::Broken(_) | Change::Transferred(_) | Change::Undelivered(_) => {
                self.cut_short += 1;
                self.live -= 1;
            }
            Change::Breaking(_) | Change::Quarantined { .. } | Change::Lifted { .. } => {}
        }
    }
}

/// Whether an operator did it.
const fn is_intervention(change: &Change) -> bool {
    matches!(
        change,
        Change::Breaking(_)
            | Change::Broken(_)
            | Change::Transferred(_)
            | Change::Quarantined { .. }
            | Change::Lifted { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_renewals_are_kept_and_read_back_newest_first() {
        let mut recent = RecentRenewals::default();
        assert_eq!(RecentRenewals::read(&recent.0), []);
        let renewal = |n: u32| (Timestamp::from_micros(1_783_111_299_000_000 + i64::from(n)), Span::millis(n));
        for n in 0..40 {
            let (at, margin) = renewal(n);
            recent.note(at, margin);
        }
        let expected: Vec<_> = (8..40).rev().map(renewal).collect();
        assert_eq!(RecentRenewals::read(&recent.0), expected);
        assert_eq!(RecentRenewals::read("nonsense"), []);
    }
}
