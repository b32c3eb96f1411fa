//! What the database's clock was seen to do beside running: jumps ahead, and times in which it was behind. What is known of
//! server time is less by that.

use crate::history::{Database, History, Mono};

/// While the database's clock is behind what it had told, nodes go by their own, which differ by what their last news of it,
/// or of each other's signs of life, took to reach them: no more than this, in microseconds.
pub(super) const LAG: i64 = 250_000;

/// By how much servers may be ahead of what a holder counts from one moment to another: by their starts, and by all that the
/// database's clock was moved.
pub(super) fn may_be_ahead(history: &History, from: Mono, to: Mono) -> i64 {
    2 * ahead_by_starts(history, from, to) + jumped(history, from, to) + lag(history, from, to)
}

/// How many processes were started between two moments.
pub(super) fn starts_between(history: &History, from: Mono, to: Mono) -> i64 {
    let starts = history.lives.iter().filter(|life| from <= life.started && life.started <= to);
    i64::try_from(starts.count()).unwrap_or(i64::MAX)
}

/// By how much starts between two moments may have put server time ahead.
pub(super) fn ahead_by_starts(history: &History, from: Mono, to: Mono) -> i64 {
    starts_between(history, from, to) * history.database.ahead_at_a_start()
}

/// By how much the database's clock may have jumped ahead between two moments.
pub(super) fn jumped(history: &History, from: Mono, to: Mono) -> i64 {
    history.jumps.iter().filter(|jump| jump.from <= to && from <= jump.to).map(|jump| jump.by).sum()
}

/// How far nodes may be apart at some time between two moments.
pub(super) fn lag(history: &History, from: Mono, to: Mono) -> i64 {
    let is_behind = history.behind.iter().any(|(began, ended)| *began - LAG <= to && from <= *ended + LAG);
    if is_behind { LAG } else { 0 }
}

/// Whether something stood between nodes and their database at some time between two moments, so that they may not have
/// done what they were to do, or the database's clock was moved.
pub(super) fn troubles(history: &History) -> impl Iterator<Item = (Mono, Mono)> {
    let jumps = history.jumps.iter().map(|jump| (jump.from, jump.to));
    history.hindered.iter().chain(&history.behind).copied().chain(jumps)
}

/// Whether the clients' clock tells how long the service was away: not if the database's clock was moved meanwhile.
pub(super) fn is_measured(history: &History, from: Mono, to: Mono) -> bool {
    history.database == Database::Sqlite || (jumped(history, from, to) == 0 && lag(history, from, to) == 0)
}
