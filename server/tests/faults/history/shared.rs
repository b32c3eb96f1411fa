//! Two nodes on one PostgreSQL database: each, and both, are killed and paused; one is misled, connections are cut.

use rand::RngExt;
use rand::seq::SliceRandom as _;

use super::faults::Faults;
use crate::postgres::Postgres;

/// What can befall nodes.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// One is killed.
    Kill,
    /// One is killed in its sleep.
    KillAsleep,
    /// One stands still for less than most leases last.
    Nap,
    /// One stands still for longer than most leases last, but not so long that it is taken for dead.
    Sleep,
    /// One stands still for so long that it is taken for dead.
    FeignDeath,
    /// One stands still, and meanwhile the other is killed.
    KillBesideSleeper,
    /// Both stand still for longer than makes an outage.
    SleepAll,
    /// Both are killed.
    KillAll,
    /// Both are killed and are away for longer than makes an outage.
    Outage,
    /// The wall clock of one is moved.
    Mislead,
    /// Connections to the database are cut, again and again.
    Cut,
}

/// All of them, some more than once.
const FAULTS: [Fault; 15] = [
    Fault::Kill,
    Fault::Kill,
    Fault::KillAsleep,
    Fault::Nap,
    Fault::Sleep,
    Fault::FeignDeath,
    Fault::KillBesideSleeper,
    Fault::SleepAll,
    Fault::SleepAll,
    Fault::KillAll,
    Fault::Outage,
    Fault::Mislead,
    Fault::Mislead,
    Fault::Cut,
    Fault::Cut,
];

/// Both nodes.
const BOTH: [usize; 2] = [0, 1];

impl Faults<'_> {
    /// Work and mischief: all of it in some order, until there were so many kills; why a node is missing in the end, if
    /// one is.
    pub(super) async fn befall_two(&mut self, kills: usize, database: &Postgres) -> Result<(), String> {
        for node in BOTH {
            self.start(&[node]).await?;
        }
        while self.kills < kills {
            let mut faults = FAULTS;
            faults.shuffle(&mut self.chance);
            for fault in faults {
                self.wait(400, 1_000).await;
                if matches!(fault, Fault::SleepAll | Fault::Outage) {
                    // Some leases are to be older than the last sign of life.
                    self.wait(600, 900).await;
                }
                self.tell(format!("{fault:?}"));
                self.befall(fault, database).await?;
            }
        }
        self.wait(400, 1_000).await;
        Ok(())
    }

    async fn befall(&mut self, fault: Fault, database: &Postgres) -> Result<(), String> {
        let one = self.chance.random_range(0..2);
        let other = 1 - one;
        match fault {
            Fault::Kill => {
                self.kill_at_work(&[one]).await;
                self.wait(0, 600).await;
                self.start(&[one]).await?;
            }
            Fault::KillAsleep => {
                self.pause(&[one]);
                self.wait(200, 1_200).await;
                self.kill_at_work(&[one]).await;
                self.wait(0, 150).await;
                self.start(&[one]).await?;
            }
            Fault::Nap | Fault::Sleep | Fault::FeignDeath => {
                let (least, most) = match fault {
                    Fault::Nap => (200, 1_200),
                    Fault::Sleep => (2_200, 2_900),
                    _ => (3_300, 4_300),
                };
                self.pause(&[one]);
                self.wait(least, most).await;
                self.go_on(one);
            }
            Fault::KillBesideSleeper => {
                self.pause(&[one]);
                self.wait(100, 800).await;
                self.kill_at_work(&[other]).await;
                self.wait(0, 1_000).await;
                self.start(&[other]).await?;
                self.wait(0, 300).await;
                self.go_on(one);
            }
            Fault::SleepAll => {
                self.pause(&BOTH);
                self.wait(2_200, 2_900).await;
                self.go_on(one);
                self.wait(0, 200).await;
                self.go_on(other);
            }
            Fault::KillAll | Fault::Outage => {
                let (least, most) = if matches!(fault, Fault::Outage) { (2_100, 2_900) } else { (0, 150) };
                self.kill_at_work(&BOTH).await;
                self.wait(least, most).await;
                self.start(&BOTH).await?;
            }
            Fault::Mislead => {
                let round = self.chance.random_range(0..5);
                self.move_wall_clock(one, round);
            }
            Fault::Cut => self.cut(database).await,
        }
        Ok(())
    }

    /// Cuts connections in the middle of transactions, at last all there are.
    async fn cut(&mut self, database: &Postgres) {
        let (began, mut cut) = (self.world.now(), 0);
        for _ in 0..8 {
            self.wait(5, 150).await;
            cut += database.cut(false).await;
        }
        cut += database.cut(true).await;
        self.cuts += cut;
        self.cut_off.push((began, self.world.now()));
        self.tell(format!("{cut} connections cut"));
    }
}
