//! Time: it runs on, as real time does; and what holders believe on their own clocks.

use std::collections::{BTreeSet, HashMap};

use super::answers::leases;
use super::entry::Entry;
use super::hands::{ahead_by_starts, is_measured, jumped, lag, may_be_ahead, starts_between, troubles};
use super::{Case, Promise, Report, told_time};
use crate::history::{Call, Database, End, History, Mono, Operation, Server};

/// Server time may be slewed by so many millionths, either way.
const SLEW: i64 = 500;

/// The service was away if it did not show for so long that it lives, in microseconds.
const OUTAGE_AFTER: Server = 2_000_000;
/// A node shows so often that it lives, in microseconds.
const BEAT: Server = 1_000_000;
/// A node that did so much between two signs of life could have given them.
const AT_WORK: usize = 5;

/// What can be known of server time at a moment of the clients' clock: no earlier than what was told before, no later
/// than what was told after.
pub(super) struct Bounds<'h> {
    history: &'h History,
    /// When an answer was received, and the greatest time told until then.
    told: Vec<(Mono, Server)>,
    /// When a request was sent, and the least time told to it or any sent later.
    to_be_told: Vec<(Mono, Server)>,
}

impl<'h> Bounds<'h> {
    pub(super) fn of(history: &'h History) -> Self {
        Self::told_by(history, |_| true)
    }

    /// What can be known by some of the processes.
    fn told_by(history: &'h History, is_of_them: impl Fn(usize) -> bool) -> Self {
        let of_them = || history.operations.iter().filter(|operation| is_of_them(operation.process));
        let timed = || of_them().filter_map(|operation| Some((operation, told_time(operation)?)));
        let mut told: Vec<_> = timed().map(|(operation, time)| (operation.over(), time)).collect();
        told.sort_unstable();
        let mut greatest = Server::MIN;
        for (_, time) in &mut told {
            greatest = greatest.max(*time);
            *time = greatest;
        }
        let mut to_be_told: Vec<_> = timed().map(|(operation, time)| (operation.sent, time)).collect();
        to_be_told.sort_unstable();
        let mut least = Server::MAX;
        for (_, time) in to_be_told.iter_mut().rev() {
            least = least.min(*time);
            *time = least;
        }
        Self { history, told, to_be_told }
    }

    /// The earliest it can have been at a moment.
    pub(super) fn earliest(&self, moment: Mono) -> Server {
        self.told_before(moment).saturating_sub(lag(self.history, moment, moment))
    }

    /// The greatest time that anybody had been told by then.
    fn told_before(&self, moment: Mono) -> Server {
        let place = self.told.partition_point(|(at, _)| *at < moment);
        place.checked_sub(1).map_or(Server::MIN, |place| self.told[place].1)
    }

    /// The latest it can have been at a moment.
    pub(super) fn latest(&self, moment: Mono) -> Server {
        let place = self.to_be_told.partition_point(|(at, _)| *at <= moment);
        let least = self.to_be_told.get(place).map_or(Server::MAX, |(_, time)| *time);
        least.saturating_add(lag(self.history, moment, moment))
    }

    /// Between which times an operation was decided.
    pub(super) fn of_operation(&self, operation: &Operation) -> (Server, Server) {
        (self.earliest(operation.sent), self.latest(operation.over()))
    }
}

pub(super) fn check(case: &Case<'_>, report: &mut Report) {
    runs_on(case, report);
    as_real_time_does(case.history, report);
    outages(case, report);
    nobody_was_there(case, report);
    tokens_as_told(case.history, report);
    beliefs(case, report);
}

/// Who asks after somebody was answered is told no earlier time; by the same process never, whatever the database's clock
/// does.
fn runs_on(case: &Case<'_>, report: &mut Report) {
    let processes: BTreeSet<usize> = case.history.operations.iter().map(|operation| operation.process).collect();
    let by_each: HashMap<usize, Bounds<'_>> =
        processes.into_iter().map(|one| (one, Bounds::told_by(case.history, |process| process == one))).collect();
    for operation in &case.history.operations {
        let Some(time) = told_time(operation) else { continue };
        report.see("times told");
        let by_itself = by_each.get(&operation.process).map_or(Server::MIN, |told| told.told_before(operation.sent));
        if time < case.bounds.earliest(operation.sent).max(by_itself) {
            let told = |other: &&Operation| other.over() < operation.sent && told_time(other) > Some(time);
            let before: Vec<&Operation> = case.history.operations.iter().find(told).into_iter().collect();
            report.violation(Promise::TimeRunsOn, "server time went back", &[&before[..], &[operation]].concat(), &[]);
        }
    }
}

/// Server time elapses as the clients' monotonic clock does, but for slewing, whatever the wall clock shows.
fn as_real_time_does(history: &History, report: &mut Report) {
    let mut timed = history.operations.iter().filter_map(|operation| Some((operation, told_time(operation)?)));
    let Some((first, began)) = timed.next() else { return };
    for (operation, time) in timed {
        let (most, least) = (operation.over() - first.sent, operation.sent - first.over());
        let (from, to) = (first.sent, operation.over());
        let starts = ahead_by_starts(history, from, to) + 2 * starts_between(history, from, to);
        let (ahead, lag) = (jumped(history, from, to), lag(history, operation.sent, to));
        let passed = time - began;
        let most_passed = most + most * SLEW / 1_000_000 + starts + 2;
        if passed > most_passed && passed <= most_passed + ahead {
            report.see("times told after a jump of the database's clock");
        }
        if passed > most_passed + ahead || passed < least - least.max(0) * SLEW / 1_000_000 - 2 - lag {
            let what = format!("server time moved by {passed} us in {least} to {most} us");
            report.violation(Promise::TimeRunsOn, what, &[first, operation], &[]);
        }
    }
}

/// When the server was away for more than two seconds, an outage of at least that length is recorded, before anything
/// else is decided.
fn outages(case: &Case<'_>, report: &mut Report) {
    for (gone, back) in &case.history.away {
        let length = (back - gone) - (back - gone) * SLEW / 1_000_000 - 2;
        if length <= OUTAGE_AFTER || !is_measured(case.history, *gone, *back) {
            continue;
        }
        report.see("long times away");
        let (earliest, latest) = (case.bounds.earliest(*back), case.bounds.latest(*gone));
        let is_it = |from: Server, to: Server| to - from >= length && from <= latest && to >= earliest;
        let told =
            case.entries.iter().position(|entry| entry.outage.is_some_and(|outage| is_it(outage.from, outage.to)));
        let Some(place) = told else {
            let what = format!("away from {gone} to {back} us, and no outage was recorded");
            report.violation(Promise::OutagesTold, what, &[], &[]);
            continue;
        };
        let recorded = &case.entries[place];
        let Some(outage) = recorded.outage else { continue };
        let since = outage.from + OUTAGE_AFTER;
        // Wherever it stands, it bears a time at which nobody was to decide anything.
        let hasty = |(other, entry): &(usize, &Entry)| entry.at > since && (*other < place || entry.at < outage.to);
        if let Some((_, hasty)) = case.entries.iter().enumerate().find(hasty) {
            let what = "something was decided in an outage before it was recorded";
            report.violation(Promise::OutagesTold, what, &[], &[hasty.position, recorded.position]);
        }
    }
}

/// What one node does not do while another lives is no outage: no node may have been at work all the time.
fn nobody_was_there(case: &Case<'_>, report: &mut Report) {
    if case.history.database == Database::Sqlite {
        // Its one process may be kept from writing by nothing but its disk.
        return;
    }
    let (earliest, latest) = (|moment| case.bounds.earliest(moment), |moment| case.bounds.latest(moment));
    let is_hindered = |from: Server, to: Server| {
        troubles(case.history).any(|(began, ended)| earliest(began) < to && from < latest(ended))
    };
    for entry in &case.entries {
        let Some(outage) = entry.outage.filter(|outage| !is_hindered(outage.from - BEAT, outage.to)) else { continue };
        for (process, life) in case.history.lives.iter().enumerate() {
            let was_gone = |&(from, to): &(Mono, Mono)| earliest(from) < outage.to && outage.from < latest(to);
            if latest(life.up).saturating_add(BEAT) > outage.from || life.gone.iter().any(was_gone) {
                continue;
            }
            // Something was committed when it should also have shown that it lives.
            let is_between = |time: Server| outage.from + BEAT < time && time < outage.from + OUTAGE_AFTER;
            let at_work = case.history.operations.iter().filter(|operation| {
                operation.process == process
                    && operation.ok().is_some()
                    && case.events(operation).any(|event| is_between(event.at))
            });
            if at_work.count() >= AT_WORK {
                let what = format!("an outage, although process {process} was at work all the time");
                report.violation(Promise::OutagesTold, what, &[], &[entry.position]);
            }
        }
    }
}

/// Who is granted a key after somebody was told of a grant has a greater token, as the answers alone show.
fn tokens_as_told(history: &History, report: &mut Report) {
    let mut grants: HashMap<&str, Vec<(&Operation, u64)>> = HashMap::new();
    for operation in history.operations.iter().filter(|operation| !operation.is_replayed()) {
        let Some(body) = operation.ok().filter(|_| matches!(operation.call, Call::Acquire | Call::AcquireMany)) else {
            continue;
        };
        for lease in leases(body) {
            let (Some(key), Some(token)) = (lease["lease_key"].as_str(), lease["fencing_token"].as_u64()) else {
                continue;
            };
            grants.entry(key).or_default().push((operation, token));
        }
    }
    for granted in grants.into_values() {
        let mut told = granted.clone();
        told.sort_by_key(|(operation, _)| operation.over());
        let mut asked = granted;
        asked.sort_by_key(|(operation, _)| operation.sent);
        let mut told = told.into_iter().peekable();
        let mut greatest: Option<(&Operation, u64)> = None;
        for (operation, token) in asked {
            while let Some((before, other)) = told.next_if(|(before, _)| before.over() < operation.sent) {
                if greatest.is_none_or(|(_, greatest)| other > greatest) {
                    greatest = Some((before, other));
                }
            }
            if let Some((before, greatest)) = greatest
                && token <= greatest
            {
                report.violation(
                    Promise::TokensIncrease,
                    "a later grant has no greater token",
                    &[before, operation],
                    &[],
                );
            }
        }
    }
}

/// In what a holder believes on its own clock.
struct Belief<'h> {
    token: u64,
    from: Mono,
    until: Mono,
    /// It gave the lease back, or somebody took it away, at this time at the earliest.
    cut: Mono,
    by: &'h Operation,
}

/// No two holders believe at one moment that they hold the key: each counts from when it sent its request.
fn beliefs(case: &Case<'_>, report: &mut Report) {
    let mut beliefs: HashMap<u64, (String, Belief<'_>)> = HashMap::new();
    let mut answered: Vec<&Operation> =
        case.history.operations.iter().filter(|operation| matches!(operation.end, End::Answered { .. })).collect();
    answered.sort_by_key(|operation| operation.over());
    for operation in answered {
        let Some(body) = operation.ok() else { continue };
        if !matches!(operation.call, Call::Acquire | Call::AcquireMany | Call::Batch | Call::Renew | Call::Transfer) {
            continue;
        }
        for lease in leases(body) {
            let is_alive = lease["status"] == "held" || lease["status"] == "breaking";
            let (Some(token), Some(remaining), true) =
                (lease["fencing_token"].as_u64(), lease["ttl_remaining_ms"].as_i64(), is_alive)
            else {
                continue;
            };
            let until = operation.sent + remaining * 1_000;
            let key = lease["lease_key"].as_str().unwrap_or_default();
            let fresh = Belief { token, from: operation.over(), until, cut: Mono::MAX, by: operation };
            let (_, belief) = beliefs.entry(token).or_insert_with(|| (key.to_owned(), fresh));
            // A holder that asked for less, or was told to stop, believes it.
            let is_less = operation.body["shorten"] == true || lease["status"] == "breaking";
            belief.until = if is_less { until } else { belief.until.max(until) };
        }
    }
    for operation in &case.history.operations {
        for (token, at) in taken_away(case, operation) {
            if let Some((_, belief)) = beliefs.get_mut(&token) {
                belief.cut = belief.cut.min(at);
            }
        }
    }
    let mut by_key: HashMap<String, Vec<Belief<'_>>> = HashMap::new();
    for (key, belief) in beliefs.into_values() {
        by_key.entry(key).or_default().push(belief);
    }
    for (key, mut holders) in by_key {
        holders.sort_by_key(|belief| belief.from);
        let mut last: Option<(Mono, &Belief<'_>)> = None;
        for belief in &holders {
            report.see("holders' beliefs");
            let until = surely(case.history, belief).min(belief.cut);
            if until <= belief.from {
                // It was over before it was heard of.
                continue;
            }
            if let Some((until, before)) = last
                && belief.from < until
            {
                let what = format!(
                    "two believe to hold {key}: {} until {until} us, {} from {} us",
                    before.token, belief.token, belief.from
                );
                report.violation(Promise::OneHolder, what, &[before.by, belief.by], &[]);
            }
            if last.is_none_or(|(latest, _)| until > latest) {
                last = Some((until, belief));
            }
        }
    }
}

/// Until when a holder may count on its lease: a thousandth of the time is left for slewing, as the documentation
/// advises, and starts of the server and the database's clock may take what they put its time ahead by.
fn surely(history: &History, belief: &Belief<'_>) -> Mono {
    let began = belief.by.sent;
    belief.until - (belief.until - began) / 1_000 - may_be_ahead(history, began, belief.until)
}

/// The leases whose holders cannot go on believing, and since when: given back, broken, handed over.
fn taken_away(case: &Case<'_>, operation: &Operation) -> Vec<(u64, Mono)> {
    let token = |id: Option<&str>| Some(domain::lease::LeaseId::parse(id?).ok()?.token().get());
    match operation.call {
        Call::Release => token(operation.text("lease_id")).map(|token| (token, operation.sent)).into_iter().collect(),
        // Who asked for less time and heard nothing must reckon with it.
        Call::Renew if operation.body["shorten"] == true && operation.ok().is_none() => {
            let until = operation.sent + operation.body["ttl_ms"].as_i64().unwrap_or(0) * 1_000;
            let until = until - may_be_ahead(case.history, operation.sent, until);
            token(operation.text("lease_id")).map(|token| (token, until)).into_iter().collect()
        }
        Call::Batch => {
            let asked = operation.body["operations"].as_array().into_iter().flatten();
            asked.filter_map(|one| Some((token(one["release"]["lease_id"].as_str())?, operation.sent))).collect()
        }
        Call::Transfer => {
            let events = case.events(operation).filter(|event| event.kind == "lease.transferred");
            events.map(|event| (event.token, operation.sent)).collect()
        }
        Call::Break => {
            let grace = operation.body["grace_ms"].as_i64().unwrap_or(10_000) * 1_000;
            let until = operation.sent + grace;
            let slack = grace / 1_000 + may_be_ahead(case.history, operation.sent, until);
            case.events(operation).map(|event| (event.token, until - slack)).collect()
        }
        _ => Vec::new(),
    }
}
