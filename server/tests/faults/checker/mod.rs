//! Whether a recorded history keeps what the product promises. A pure function, written without the product's own rules.

mod answers;
mod clocks;
mod effects;
mod entry;
mod hands;
mod queues;
mod refusals;
mod replay;
mod requests;
mod streams;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write};

use self::entry::Entry;

use self::replay::Replay;
use crate::history::{History, Operation, Server};

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Promise {
    /// 1: held intervals of a key never overlap, on server time nor on the holders' own clocks.
    OneHolder,
    /// 2
    TokensIncrease,
    /// 3
    NoRenewalAfterExpiry,
    /// 4
    OwnLeaseOnly,
    /// 5
    EndsOnce,
    /// 6
    AcknowledgedSurvives,
    /// 7
    StateIsReplay,
    /// 8
    OneEffect,
    /// 9
    FirstInFirstOut,
    /// 10
    NothingForTheGone,
    /// 11: a free or expired key is had at once; nobody is refused because of a lease that is over.
    FreeIsHad,
    /// 12: lock delay, minimum and maximum hold.
    HoldsAndDelays,
    /// 13, and it runs as real time does.
    TimeRunsOn,
    /// 14
    AllOrNothing,
    /// 15
    NoDeadShownHeld,
    /// 16
    WholeStreams,
    /// 17
    SignedBreaks,
    /// Whoever was away for more than two seconds says so, before anything else.
    OutagesTold,
    /// Positions are dense and chained by hashes.
    Chain,
    /// Only refusals that make sense, and they change nothing.
    TrueStatus,
}

/// A promise that was not kept.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) promise: Promise,
    pub(crate) what: String,
    /// The ids of the requests that show it.
    pub(crate) requests: Vec<String>,
    /// The positions of the lines that show it.
    pub(crate) positions: Vec<i64>,
}

/// What a check found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) violations: Vec<Violation>,
    /// How often there was something to check.
    pub(crate) seen: HashMap<&'static str, usize>,
}

impl Report {
    fn violation(&mut self, promise: Promise, what: impl Into<String>, operations: &[&Operation], positions: &[i64]) {
        let requests = operations.iter().map(|operation| operation.id.clone()).collect();
        self.violations.push(Violation { promise, what: what.into(), requests, positions: positions.to_vec() });
    }

    fn see(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// How often there was something of that kind to check.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.seen.get(what).copied().unwrap_or(0)
    }

    /// All that went wrong, for people: the first few in full.
    pub(crate) fn explain(&self, history: &History) -> String {
        let mut text = format!("{} violations\n", self.violations.len());
        let mut by_promise: HashMap<Promise, usize> = HashMap::new();
        for violation in &self.violations {
            *by_promise.entry(violation.promise).or_default() += 1;
        }
        for (promise, times) in by_promise.into_iter().collect::<BTreeMap<_, _>>() {
            let _ = writeln!(text, "{times:8} {promise:?}");
        }
        for violation in self.violations.iter().take(12) {
            let _ = writeln!(text, "\n{:?}: {}", violation.promise, violation.what);
            for request in &violation.requests {
                for operation in history.operations.iter().filter(|operation| operation.id == *request) {
                    let _ = writeln!(text, "  {}", operation.describe());
                }
            }
            for position in &violation.positions {
                for line in history.lines.iter().filter(|line| line.position == *position) {
                    let _ = writeln!(text, "  line {position}: {}", line.body);
                }
            }
        }
        text
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut seen: Vec<_> = self.seen.iter().collect();
        seen.sort();
        seen.iter().try_for_each(|(what, times)| writeln!(f, "{times:8} {what}"))
    }
}

/// A history with its timeline read.
struct Case<'h> {
    history: &'h History,
    entries: Vec<Entry>,
    replay: Replay,
    /// Operations by the id of their request.
    by_id: HashMap<&'h str, &'h Operation>,
    /// Places in `entries` by the request that brought them about.
    by_request: HashMap<String, Vec<usize>>,
    bounds: clocks::Bounds<'h>,
}

impl Case<'_> {
    /// The events of a request, in order.
    fn events(&self, operation: &Operation) -> impl Iterator<Item = &Entry> {
        let places = self.by_request.get(&operation.id).map_or(&[][..], Vec::as_slice);
        places.iter().map(|&place| &self.entries[place])
    }
}

/// Checks everything.
pub(crate) fn check(history: &History) -> Report {
    let mut report = Report::default();
    let entries = entry::read(history, &mut report);
    let replay = replay::replay(&entries, history, &mut report);
    let mut by_request: HashMap<String, Vec<usize>> = HashMap::new();
    for (place, entry) in entries.iter().enumerate() {
        if let Some(request) = &entry.request_id {
            by_request.entry(request.clone()).or_default().push(place);
        }
    }
    let case = Case {
        history,
        replay,
        by_id: history.operations.iter().map(|operation| (operation.id.as_str(), operation)).collect(),
        by_request,
        bounds: clocks::Bounds::of(history),
        entries,
    };
    effects::check(&case, &mut report);
    answers::check(&case, &mut report);
    refusals::check(&case, &mut report);
    requests::check(&case, &mut report);
    clocks::check(&case, &mut report);
    queues::check(&case, &mut report);
    streams::check(history, &mut report);
    report
}

/// The server's time in an answer.
fn told_time(operation: &Operation) -> Option<Server> {
    let body = operation.ok()?;
    let inner = [&body["server_time"], &body["leases"][0]["server_time"]];
    let of_batch = body["results"].as_array().into_iter().flatten().map(|result| &result["ok"]["server_time"]);
    inner.into_iter().chain(of_batch).find_map(crate::history::server_time)
}
