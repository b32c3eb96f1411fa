//! What callers with keys of their own lose while others fight for one key, at another node if there is one. Only the processors
//! are common to them; so it is told besides what as many callers cost them who have keys of their own, too.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::load::{self, Outcome, Plan, Work, millis_at};
use crate::product::Service;
use crate::table;

/// Callers who are measured.
const CALLERS: usize = 64;
/// Those who are there besides.
const OTHERS: usize = 16;

/// The three are measured by turns: a machine that becomes slower does so for all of them.
const TURNS: u32 = 5;

/// So much longer than those who are measured the others go on, who begin when everybody is connected.
const SLACK: Duration = Duration::from_millis(500);

/// Those who are measured, and those besides.
struct Sums {
    name: String,
    others: Option<Plan>,
    measured: Outcome,
    besides: Outcome,
}

/// Measures each for that long, and tells it in a table.
pub(crate) async fn measure(service: &Service, time: Duration, keys: usize) -> Result<()> {
    let plan = Plan { work: Work::Pairs, clients: CALLERS, time: time / TURNS, keys: 0..keys };
    let first = keys.max(CALLERS);
    let others = |work| Plan {
        work,
        clients: OTHERS,
        time: plan.warm_up().time + plan.time + SLACK,
        keys: first..first + 8 * OTHERS,
    };
    let sums = |name, others| anyhow::Ok(Sums { name, others, measured: Outcome::new()?, besides: Outcome::new()? });
    let mut all = [
        sums("nobody".to_owned(), None)?,
        sums(format!("{OTHERS} who fight for one key"), Some(others(Work::OneKey)))?,
        sums(format!("{OTHERS} with keys of their own"), Some(others(Work::Pairs)))?,
    ];
    for _ in 0..TURNS {
        for sums in &mut all {
            sums.turn(service, &plan).await?;
        }
    }
    println!();
    table::head(&[
        format!("beside {CALLERS} callers with keys of their own").as_str(),
        "their pairs a second",
        "p50 ms",
        "p99 ms",
        "of those beside nobody",
        "pairs a second of the others",
    ]);
    let alone = all[0].measured.rate();
    for Sums { name, others, measured, besides } in &all {
        table::row(&[
            name.clone(),
            format!("{:.0}", measured.rate()),
            format!("{:.2}", millis_at(&measured.times, 0.5)),
            format!("{:.2}", millis_at(&measured.times, 0.99)),
            format!("{:.2}", measured.rate() / alone),
            others.as_ref().map_or_else(String::new, |_| format!("{:.0}", besides.rate())),
        ]);
    }
    Ok(())
}

impl Sums {
    /// One turn more: the callers at the first node, the others at the second.
    async fn turn(&mut self, service: &Service, plan: &Plan) -> Result<()> {
        let measured = async {
            load::run(&plan.warm_up(), |_| service.open(0)).await?;
            load::run(plan, |_| service.open(0)).await
        };
        match &self.others {
            None => self.measured.add(&measured.await?)?,
            Some(others) => {
                let (measured, besides) = tokio::try_join!(measured, load::run(others, |_| service.open(1)))?;
                ensure!(besides.out_of_order == 0, "{} grants were out of order", besides.out_of_order);
                self.measured.add(&measured)?;
                self.besides.add(&besides)?;
            }
        }
        // The next begins without what this one has left to do.
        service.settle().await
    }
}
