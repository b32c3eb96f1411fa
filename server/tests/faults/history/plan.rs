//! What is done to servers while their clients work: all of it chosen beforehand, by chance alone, so that a seed brings the
//! same faults in the same order at the same times. What they meet when they come is never the same: clients, servers and
//! the database run at once.

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{RngExt as _, SeedableRng as _};

use super::Database;

/// Milliseconds.
type Millis = u64;

/// An hour, in seconds.
const HOUR: i64 = 3_600;

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// These nodes are killed in the middle of their work, and start again after a while; meanwhile their wall clocks may
    /// have been moved by so many seconds.
    Kill { nodes: Vec<usize>, away: Millis, wall_clock: Option<i64> },
    /// One is killed in its sleep.
    KillAsleep { node: usize, asleep: Millis, away: Millis },
    /// One stands still, and meanwhile another is killed.
    KillBesideSleeper { sleeper: usize, killed: usize, asleep: Millis, away: Millis, still: Millis },
    /// One is killed again and again just while it starts, so long after each beginning.
    RestartLoop { node: usize, deaths: Vec<Millis> },
    /// These nodes stand still, and go on one after another.
    Pause { nodes: Vec<usize>, time: Millis, apart: Millis },
    /// A node's wall clock is moved.
    Mislead { node: usize, seconds: i64 },
    /// So many callers hang up, each at another step.
    HangUps { callers: usize },
    /// Connections to the database are cut after each of these pauses, at last all there are.
    Cut { pauses: Vec<Millis> },
    /// The pooler on the way to the database is killed.
    KillPooler { away: Millis },
    /// The disk has no room any more, for so long after that was felt.
    FillDisk { time: Millis },
    /// Every flush takes so long.
    FlushSlowly { delay: Millis, time: Millis },
    /// All processes of the database stand still.
    Freeze { time: Millis },
    /// The database's clock jumps ahead, for good.
    ClockForth { by: Millis },
    /// The database's clock jumps back and is set right later; meanwhile a node may be killed, and start by that clock.
    ClockBack { by: Millis, time: Millis, killed: Option<usize> },
}

/// A fault, so long after the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) after: Millis,
    pub(super) fault: Fault,
}

impl Fault {
    /// What must have been counted if it was felt.
    pub(super) const fn evidence(&self) -> &'static str {
        match self {
            Self::Kill { .. } | Self::KillAsleep { .. } | Self::KillBesideSleeper { .. } => "processes killed at work",
            Self::RestartLoop { .. } => "processes killed while they started",
            Self::Pause { .. } => "processes paused",
            Self::Mislead { .. } => "wall clocks moved",
            Self::HangUps { .. } => "callers who hung up at some step",
            Self::Cut { .. } => "connections cut",
            Self::KillPooler { .. } => "poolers killed",
            Self::FillDisk { .. } => "answers that there is no room",
            Self::FlushSlowly { .. } => "slow flushes",
            Self::Freeze { .. } => "processes of the database frozen",
            Self::ClockForth { .. } => "jumps ahead of the database's clock",
            Self::ClockBack { .. } => "jumps back of the database's clock",
        }
    }

    /// Whether some leases are to be older than the last sign of life when it comes.
    const fn needs_old_leases(&self) -> bool {
        match self {
            Self::Kill { away, .. } => *away > 2_000,
            Self::Pause { time, .. } => *time > 2_000,
            _ => false,
        }
    }
}

/// All that befalls servers on such a database, in some order. The first steps start them: on a database that is empty, and
/// by and by.
pub(super) fn plan(seed: u64, database: Database) -> Vec<Step> {
    let mut chance = Chance(StdRng::seed_from_u64(seed));
    let mut faults = match database {
        // One server is soon back: it can stand all that twice.
        Database::Sqlite => [chance.for_one(), chance.for_one()].concat(),
        Database::Postgres => chance.for_two(),
    };
    faults.shuffle(&mut chance.0);
    let nodes = if database == Database::Sqlite { 0..1 } else { 0..2 };
    let mut steps: Vec<Step> =
        nodes.map(|node| Step { after: 0, fault: chance.restart_loop(node, if node == 0 { 5 } else { 2 }) }).collect();
    for fault in faults {
        let rest = if fault.needs_old_leases() { 600 } else { 0 };
        steps.push(Step { after: rest + chance.millis(300, 900), fault });
    }
    steps
}

/// Chooses.
struct Chance(StdRng);

impl Chance {
    fn millis(&mut self, least: Millis, most: Millis) -> Millis {
        self.0.random_range(least..most)
    }

    fn hour(&mut self) -> i64 {
        *[-HOUR, 0, HOUR].choose(&mut self.0).unwrap_or(&0)
    }

    fn node(&mut self) -> usize {
        self.0.random_range(0..2)
    }

    fn restart_loop(&mut self, node: usize, deaths: usize) -> Fault {
        Fault::RestartLoop { node, deaths: (0..deaths).map(|_| self.millis(2, 90)).collect() }
    }

    /// What servers on either database meet.
    fn for_all(&mut self, node: usize) -> Vec<Fault> {
        vec![
            Fault::Kill { nodes: vec![node], away: self.millis(0, 150), wall_clock: None },
            Fault::Kill { nodes: vec![node], away: self.millis(0, 600), wall_clock: Some(self.hour()) },
            Fault::KillAsleep { node, asleep: self.millis(200, 1_200), away: self.millis(0, 150) },
            Fault::Mislead { node, seconds: self.hour() },
            Fault::Mislead { node, seconds: -HOUR },
            Fault::HangUps { callers: 150 },
            Fault::FillDisk { time: self.millis(300, 1_500) },
            // For longer than makes an outage, and than a time may be told that is not persisted.
            Fault::FillDisk { time: self.millis(2_500, 3_600) },
            Fault::FlushSlowly { delay: self.millis(30, 300), time: self.millis(700, 1_500) },
            self.restart_loop(node, 4),
            // Shorter than most leases last.
            Fault::Pause { nodes: vec![node], time: self.millis(200, 1_200), apart: 0 },
        ]
    }

    fn for_one(&mut self) -> Vec<Fault> {
        let mut faults = self.for_all(0);
        for _ in 0..3 {
            faults.push(Fault::Kill { nodes: vec![0], away: self.millis(0, 150), wall_clock: None });
        }
        faults.extend([
            // Longer than makes an outage.
            Fault::Kill { nodes: vec![0], away: self.millis(2_100, 2_900), wall_clock: Some(self.hour()) },
            Fault::Pause { nodes: vec![0], time: self.millis(2_300, 3_200), apart: 0 },
            Fault::KillAsleep { node: 0, asleep: self.millis(2_300, 3_200), away: self.millis(0, 150) },
            Fault::FlushSlowly { delay: self.millis(600, 1_200), time: self.millis(1_500, 2_500) },
            self.restart_loop(0, 4),
        ]);
        faults
    }

    fn for_two(&mut self) -> Vec<Fault> {
        let node = self.node();
        let mut faults = self.for_all(node);
        let one = self.node();
        let sleeper = self.node();
        let (asleep, away, still) = (self.millis(100, 800), self.millis(0, 1_000), self.millis(0, 300));
        faults.extend([
            Fault::Kill { nodes: vec![1 - node], away: self.millis(0, 600), wall_clock: None },
            Fault::KillBesideSleeper { sleeper, killed: 1 - sleeper, asleep, away, still },
            // Longer than most leases last, but not so long that it is taken for dead.
            Fault::Pause { nodes: vec![one], time: self.millis(2_200, 2_900), apart: 0 },
            // So long that it is taken for dead.
            Fault::Pause { nodes: vec![1 - one], time: self.millis(3_300, 4_300), apart: 0 },
            // Just so long that it makes an outage, which one records while the other wakes.
            self.sleep_of_all(),
            self.sleep_of_all(),
            Fault::Kill { nodes: vec![0, 1], away: self.millis(0, 150), wall_clock: None },
            Fault::Kill { nodes: vec![0, 1], away: self.millis(2_100, 2_900), wall_clock: None },
            Fault::Cut { pauses: (0..8).map(|_| self.millis(5, 150)).collect() },
            Fault::KillPooler { away: self.millis(0, 200) },
            Fault::KillPooler { away: self.millis(500, 2_600) },
            Fault::Freeze { time: self.millis(300, 1_900) },
            // Longer than a step may take.
            Fault::Freeze { time: self.millis(5_100, 5_600) },
            // Less and more than makes an outage.
            Fault::ClockForth { by: self.millis(100, 1_900) },
            Fault::ClockForth { by: self.millis(2_100, 6_000) },
            Fault::ClockBack { by: self.millis(200, 5_000), time: self.millis(500, 1_500), killed: None },
            Fault::ClockBack { by: 3_600_000, time: self.millis(1_500, 2_500), killed: Some(self.node()) },
        ]);
        if self.0.random_bool(0.3) {
            faults.push(Fault::ClockForth { by: 3_600_000 });
        }
        faults
    }

    fn sleep_of_all(&mut self) -> Fault {
        let mut nodes = vec![0, 1];
        nodes.shuffle(&mut self.0);
        Fault::Pause { nodes, time: self.millis(2_100, 2_500), apart: self.millis(0, 400) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_brings_the_same_faults_at_the_same_times_and_another_brings_others() {
        for database in [Database::Sqlite, Database::Postgres] {
            for seed in 0..50 {
                assert_eq!(plan(seed, database), plan(seed, database));
                assert_ne!(plan(seed, database), plan(seed + 1, database));
            }
        }
    }

    #[test]
    fn every_kind_of_fault_comes_in_every_plan() {
        for (database, kinds) in [(Database::Sqlite, 7), (Database::Postgres, 12)] {
            for seed in 0..50 {
                let steps = plan(seed, database);
                let found: BTreeSet<&str> = steps.iter().map(|step| step.fault.evidence()).collect();
                assert_eq!(found.len(), kinds, "{seed} {found:?}");
            }
        }
    }
}
