//! What the timeline says happened to each lease, and whether that could happen at all.

use std::collections::{BTreeMap, HashMap};

use super::entry::{Entry, Outage};
use super::{Promise, Report};
use crate::history::{History, Server};

/// Everything that happened.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// Every lease by its token.
    pub(super) stories: BTreeMap<u64, Story>,
    /// The tokens of each key, in order.
    pub(super) by_key: HashMap<String, Vec<u64>>,
    /// When the quarantine of each key changed, and to what, in order.
    pub(super) quarantines: HashMap<String, Vec<(Server, bool)>>,
}

/// One lease from its grant on.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) key: String,
    pub(super) token: u64,
    pub(super) owner: String,
    pub(super) acquired_at: Server,
    pub(super) max_hold_until: Option<Server>,
    pub(super) min_hold_until: Option<Server>,
    pub(super) lock_delay: i64,
    /// What it was, in order; the last as it still is.
    pub(super) states: Vec<State>,
}

/// A lease from one line to the next.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) position: i64,
    pub(super) at: Server,
    pub(super) expires_at: Server,
    pub(super) ttl: i64,
    pub(super) renewals: u64,
    pub(super) breaking_until: Option<Server>,
    /// How and when it ended.
    pub(super) end: Option<(String, Server)>,
}

impl State {
    /// The status that a reader at `now` is to be told.
    pub(super) fn status(&self, now: Server) -> &str {
        match &self.end {
            Some((outcome, _)) => outcome,
            None if now < self.expires_at && self.breaking_until.is_some() => "breaking",
            None if now < self.expires_at => "held",
            None if self.breaking_until == Some(self.expires_at) => "broken",
            None => "expired",
        }
    }

    pub(super) fn is_alive(&self, now: Server) -> bool {
        self.end.is_none() && now < self.expires_at
    }
}

impl Story {
    pub(super) fn last(&self) -> &State {
        &self.states[self.states.len() - 1]
    }

    /// When it ends, or ended.
    pub(super) fn over(&self) -> Server {
        self.last().end.as_ref().map_or(self.last().expires_at, |(_, at)| *at)
    }

    fn ceiling(&self) -> Server {
        self.max_hold_until.unwrap_or(Server::MAX).min(self.last().breaking_until.unwrap_or(Server::MAX))
    }

    /// What it was at some position.
    pub(super) fn at_position(&self, position: i64) -> Option<&State> {
        self.states.iter().rev().find(|state| state.position <= position)
    }

    /// All that it may be said to have been at an instant by a node whose time may be off by so much: several lines may bear
    /// the same time.
    pub(super) fn during(&self, now: Server, lag: i64) -> impl Iterator<Item = &State> {
        self.states.iter().enumerate().filter_map(move |(index, state)| {
            let until = self.states.get(index + 1).map_or(Server::MAX, |next| next.at.saturating_add(lag));
            (state.at - lag <= now && now <= until).then_some(state)
        })
    }

    fn change(&mut self, entry: &Entry, change: impl FnOnce(&mut State)) {
        let mut state = State { position: entry.position, at: entry.at, ..self.last().clone() };
        change(&mut state);
        self.states.push(state);
    }
}

/// Replays the timeline.
pub(super) fn replay(entries: &[Entry], history: &History, report: &mut Report) -> Replay {
    let mut replay = Replay::default();
    for entry in entries {
        match entry.kind.as_str() {
            "lease.granted" => replay.grant(entry, report),
            "lease.renewed" => replay.renew(entry, report),
            "lease.breaking" => replay.breaking(entry, report),
            "key.quarantined" | "key.lifted" => {
                let is_on = entry.kind == "key.quarantined";
                let changes = replay.quarantines.entry(entry.key.clone()).or_default();
                if changes.last().is_some_and(|(_, on)| *on) == is_on {
                    report.violation(
                        Promise::StateIsReplay,
                        "a quarantine that changes nothing",
                        &[],
                        &[entry.position],
                    );
                }
                changes.push((entry.at, is_on));
            }
            _ if entry.ends().is_some() => replay.end(entry, report),
            _ => {
                if let Some(outage) = entry.outage {
                    replay.outage(entry, outage, report);
                }
            }
        }
    }
    if history.is_settled {
        for story in replay.stories.values().filter(|story| story.last().end.is_none()) {
            let what = format!("lease {} on {} never ended", story.token, story.key);
            report.violation(Promise::EndsOnce, what, &[], &[story.last().position]);
        }
    }
    replay
}

impl Replay {
    pub(super) fn last_of(&self, key: &str) -> Option<&Story> {
        self.by_key.get(key)?.last().and_then(|token| self.stories.get(token))
    }

    fn grant(&mut self, entry: &Entry, report: &mut Report) {
        report.see("grants");
        let (here, at) = (entry.position, entry.at);
        let mut wrong = |promise, what: &str, before: i64| report.violation(promise, what, &[], &[before, here]);
        if self.stories.contains_key(&entry.token) {
            wrong(Promise::TokensIncrease, "a token was given out twice", here);
            return;
        }
        if let Some(before) = self.last_of(&entry.key) {
            let place = before.last().position;
            if before.token >= entry.token {
                wrong(Promise::TokensIncrease, "a token is not greater than the one before it", place);
            }
            match &before.last().end {
                None if at < before.last().expires_at => wrong(Promise::OneHolder, "granted while it is held", place),
                None => wrong(Promise::EndsOnce, "granted although nothing says how the lease before ended", place),
                Some((_, over)) if at < *over => {
                    wrong(Promise::OneHolder, "granted before the lease before ended", place)
                }
                Some((outcome, over)) => {
                    let open = match outcome.as_str() {
                        "released" => before.min_hold_until.unwrap_or(0),
                        "expired" | "broken" => over + before.lock_delay,
                        _ => 0,
                    };
                    if at < open {
                        wrong(Promise::HoldsAndDelays, "granted while the key cools", place);
                    }
                    if (outcome == "transferred") != (entry.origin == "transferred") {
                        wrong(Promise::StateIsReplay, "a transfer without its other half", place);
                    }
                }
            }
        }
        let quarantine = self.quarantines.get(&entry.key).and_then(|changes| changes.last());
        if quarantine.is_some_and(|(_, on)| *on) {
            wrong(Promise::FreeIsHad, "granted while quarantined", here);
        }
        let (Some(expires_at), Some(ttl)) = (entry.expires_at, entry.ttl) else {
            wrong(Promise::StateIsReplay, "a grant without its terms", here);
            return;
        };
        let full = (at + ttl).min(entry.max_hold_until.unwrap_or(Server::MAX));
        let inherited = self.last_of(&entry.key).filter(|_| entry.origin == "transferred");
        if expires_at
            != inherited.map_or(full, |before| before.states[before.states.len().saturating_sub(2)].expires_at)
        {
            wrong(
                Promise::HoldsAndDelays,
                "a grant does not expire after its ttl, or not when what it inherits does",
                here,
            );
        }
        let state = State { position: here, at, expires_at, ttl, renewals: 0, breaking_until: None, end: None };
        let story = Story {
            key: entry.key.clone(),
            token: entry.token,
            owner: entry.owner.clone(),
            acquired_at: at,
            max_hold_until: entry.max_hold_until,
            min_hold_until: entry.min_hold_until,
            lock_delay: entry.lock_delay,
            states: vec![state],
        };
        self.stories.insert(entry.token, story);
        self.by_key.entry(entry.key.clone()).or_default().push(entry.token);
    }

    /// The lease an event is about; it must be the last of its key.
    fn story(&mut self, entry: &Entry, report: &mut Report) -> Option<&mut Story> {
        let is_last = self.by_key.get(&entry.key).and_then(|tokens| tokens.last()) == Some(&entry.token);
        if !is_last {
            let what = format!("{} of a lease that is not the last of its key", entry.kind);
            report.violation(Promise::OwnLeaseOnly, what, &[], &[entry.position]);
            return None;
        }
        self.stories.get_mut(&entry.token)
    }

    fn renew(&mut self, entry: &Entry, report: &mut Report) {
        report.see("renewals");
        let Some(story) = self.story(entry, report) else { return };
        let (Some(expires_at), Some(ttl)) = (entry.expires_at, entry.ttl) else { return };
        let before = story.last();
        let places = [before.position, entry.position];
        if !before.is_alive(entry.at) {
            report.violation(Promise::NoRenewalAfterExpiry, "a lease that was over was renewed", &[], &places);
        }
        if story.max_hold_until.is_some_and(|until| expires_at > until) {
            report.violation(Promise::HoldsAndDelays, "a renewal goes past the maximum hold", &[], &places);
        }
        let (asked, ceiling) = (entry.at + ttl, story.ceiling());
        if expires_at != asked.max(before.expires_at).min(ceiling) && expires_at != asked.min(ceiling) {
            report.violation(Promise::StateIsReplay, "a renewal to another time than its ttl gives", &[], &places);
        }
        story.change(entry, |state| {
            state.expires_at = expires_at;
            state.ttl = ttl;
            state.renewals += 1;
        });
    }

    fn breaking(&mut self, entry: &Entry, report: &mut Report) {
        report.see("breaks with grace");
        signed(entry, report);
        let Some(story) = self.story(entry, report) else { return };
        let Some(ends_at) = entry.ends_at else { return };
        let before = story.last();
        let places = [before.position, entry.position];
        if !before.is_alive(entry.at) || before.breaking_until.is_some_and(|until| ends_at > until) {
            report.violation(
                Promise::StateIsReplay,
                "a break of a lease that is over, or one that puts it off",
                &[],
                &places,
            );
        }
        story.change(entry, |state| {
            state.breaking_until = Some(ends_at);
            state.expires_at = state.expires_at.min(ends_at);
        });
    }

    fn end(&mut self, entry: &Entry, report: &mut Report) {
        report.see("ends of leases");
        let outcome = entry.ends().unwrap_or_default().to_owned();
        if outcome == "broken" {
            signed(entry, report);
        }
        let Some(story) = self.story(entry, report) else { return };
        let before = story.last();
        let places = [before.position, entry.position];
        if before.end.is_some() {
            report.violation(Promise::EndsOnce, "a lease ended twice", &[], &places);
        }
        let Some(ended_at) = entry.ended_at else { return };
        let is_due = ended_at == before.expires_at && entry.at >= ended_at;
        let is_by_break = before.breaking_until == Some(before.expires_at);
        let is_now = ended_at == entry.at && before.is_alive(entry.at);
        let fits = match outcome.as_str() {
            "expired" => is_due && !is_by_break,
            "broken" => (is_due && is_by_break) || is_now,
            _ => is_now,
        };
        if !fits || entry.owner != story.owner {
            let what = format!("{outcome} at a time, or of an owner, that does not fit the lease");
            report.violation(Promise::StateIsReplay, what, &[], &places);
        }
        story.change(entry, |state| {
            state.expires_at = ended_at;
            state.end = Some((outcome, ended_at));
        });
    }

    fn outage(&mut self, entry: &Entry, outage: Outage, report: &mut Report) {
        report.see("outages");
        let length = outage.to - outage.from;
        if length <= 2_000_000 || entry.at != outage.to {
            report.violation(Promise::StateIsReplay, "an outage that was none", &[], &[entry.position]);
        }
        for tokens in self.by_key.values() {
            let Some(story) = tokens.last().and_then(|token| self.stories.get_mut(token)) else { continue };
            let before = story.last();
            if before.end.is_some() || story.acquired_at > outage.from || outage.from >= before.expires_at {
                continue;
            }
            let given = outage.to + before.ttl.min(outage.grace).min(length);
            let expires_at = before.expires_at.max(given.min(story.ceiling()));
            report.see("leases read through an outage");
            story.change(entry, |state| state.expires_at = expires_at);
        }
    }
}

/// A break names who, why and when.
fn signed(entry: &Entry, report: &mut Report) {
    let named = |member: &str| entry.actor[member].as_str().is_some_and(|text| !text.is_empty());
    let by_somebody = named("kind") && named("id") && named("name") && entry.actor["kind"] != "system";
    if !by_somebody || entry.reason.as_deref().is_none_or(str::is_empty) {
        report.violation(Promise::SignedBreaks, "a break without actor or reason", &[], &[entry.position]);
    }
}
