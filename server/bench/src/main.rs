//! Measures Job Leases as its users meet it: over HTTP, on a server process of its own, with the callers on the same machine.
//!
//! Every figure of a table comes from one run: the load, the processor time and memory of the server read from outside, and
//! the time of a flush on the same disk. Run by `cargo xtask bench`.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod connection;
mod hot;
mod load;
mod peers;
mod postgres;
mod process;
mod product;
mod scale;
mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;

use crate::load::{Outcome, Plan, Work, millis_at};
use crate::peers::{Etcd, Peer, Redis, ShedLock, ZooKeeper};
use crate::process::Manner;
use crate::product::Service;

/// Loads on a Job Leases server, measured.
#[derive(Debug, Parser)]
struct Arguments {
    /// The server's program
    #[arg(long, value_name = "PATH")]
    program: PathBuf,
    /// Which loads
    #[arg(long, value_delimiter = ',', default_value = "pairs,one-key,renew,batch")]
    loads: Vec<Work>,
    /// How many callers at once
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,256", value_name = "N")]
    clients: Vec<usize>,
    /// How long each load runs, in seconds
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// From how many keys callers choose; that many are there before the loads begin
    #[arg(long, default_value_t = 1_000)]
    keys: usize,
    /// How many events there are before the loads begin, at the least
    #[arg(long, default_value_t = 0)]
    events: usize,
    /// Makes each flush take so many milliseconds longer (with strace)
    #[arg(long, value_name = "MS")]
    flush_delay_ms: Option<u64>,
    /// Gives database servers the last core for themselves, as if they were on another machine; everything else has the others
    #[arg(long)]
    apart: bool,
    /// Also measures pages and lists at this size
    #[arg(long)]
    pages: bool,
    /// Also measures memory with 10,000 leases held and 1,000 callers waiting
    #[arg(long)]
    crowd: bool,
    /// Also measures what callers with keys of their own lose while others fight for one key
    #[arg(long)]
    hot: bool,
    /// Also runs the same on PostgreSQL, where it is installed: on one node, then the loads on two nodes of one database; and
    /// those that it can take on ShedLock's statements, on a server with the same settings
    #[arg(long)]
    postgres: bool,
    /// Only runs on one node on PostgreSQL: for a long load
    #[arg(long, conflicts_with_all = ["postgres", "peers"])]
    postgres_alone: bool,
    /// Also runs the same loads on what people use instead, where it is installed
    #[arg(long)]
    peers: bool,
    /// Where databases are made; flushes go to its disk
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.program.is_file(), "{} is not there", arguments.program.display());
    let folder = tempfile::tempdir_in(arguments.folder.clone().unwrap_or_else(std::env::temp_dir))?;
    let cores = std::thread::available_parallelism()?;
    arguments.manner().settle()?;
    println!(
        "{cores} cores{}; a flush takes {:.2} ms{}",
        if arguments.apart { ", of which the last is the database's" } else { "" },
        millis(process::flush_time(folder.path())?),
        match arguments.manner().flush_delay {
            Some(delay) => format!(", and {:.0} ms more that are added here", millis(delay)),
            None => String::new(),
        }
    );
    if arguments.postgres_alone {
        on_postgres(&arguments, folder.path(), &[]).await?;
    } else {
        let service = Service::on_sqlite(&arguments.program, folder.path(), arguments.manner())?;
        let ours = all(&arguments, &service, &[]).await?;
        drop(service);
        if arguments.peers || arguments.postgres {
            let shedlock = instead(&arguments, folder.path(), &ours).await?;
            if arguments.postgres {
                on_postgres(&arguments, folder.path(), &shedlock).await?;
            }
        }
    }
    println!("\nA flush took {:.2} ms at the end.", millis(process::flush_time(folder.path())?));
    Ok(())
}

impl Arguments {
    fn manner(&self) -> Manner {
        Manner { flush_delay: self.flush_delay_ms.map(Duration::from_millis), apart: self.apart }
    }

    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// The same on PostgreSQL, with one node and, unless it is to be alone, with two.
async fn on_postgres(arguments: &Arguments, folder: &Path, shedlock: &[Row]) -> Result<()> {
    let folder = tempfile::tempdir_in(folder)?;
    let started = Service::on_postgres(&arguments.program, folder.path(), arguments.manner()).await?;
    let Some(mut service) = started else {
        println!("\n{}", missing(postgres::NAME, postgres::PACKAGE));
        return Ok(());
    };
    all(arguments, &service, shedlock).await?;
    if arguments.postgres_alone {
        return Ok(());
    }
    service.add_node(&arguments.program, folder.path())?;
    println!("\n{}; server CPU and memory are those of both\n", service.name());
    loads(arguments, &service, shedlock).await?;
    Ok(())
}

/// All that was asked for, on a service that was just started; how its loads went.
async fn all(arguments: &Arguments, service: &Service, shedlock: &[Row]) -> Result<Vec<Row>> {
    let events = scale::fill(service, arguments.keys, arguments.events).await?;
    println!("\n{}; {} keys, {events} events before the loads\n", service.name(), arguments.keys);
    if arguments.crowd {
        // Before any load, which would leave memory in use that has nothing to do with this.
        scale::crowd(service).await?;
    }
    let rows = loads(arguments, service, shedlock).await?;
    if arguments.pages {
        scale::pages(service).await?;
    }
    Ok(rows)
}

async fn loads(arguments: &Arguments, service: &Service, shedlock: &[Row]) -> Result<Vec<Row>> {
    let mut names = vec!["load", "callers", "a second", "p50 ms", "p99 ms", "p99.9 ms"];
    // From the release by one caller to the grant to the next, where they want the same key.
    names.extend(["hand-off p50 ms", "hand-off p99 ms", "server CPU us/op", "memory MB", "refused", "backlog"]);
    if service.is_on_postgres() {
        names.extend(["PostgreSQL CPU us/op", "Job Leases / ShedLock"]);
    }
    table::head(&names);
    let mut rows = Vec::new();
    for &work in &arguments.loads {
        for &clients in &arguments.clients {
            let plan = Plan { work, clients, time: arguments.time(), keys: 0..arguments.keys };
            let instead = shedlock.iter().find(|row| row.plan.work == work && row.plan.clients == clients);
            let rate = measure(service, &plan, instead).await?;
            rows.push(Row { plan, rate });
        }
    }
    if arguments.hot {
        hot::measure(service, arguments.time(), arguments.keys).await?;
    }
    Ok(rows)
}

/// One load, and one line of the table. What the read models are behind at its end is worked off within the measure.
async fn measure(service: &Service, plan: &Plan, instead: Option<&Row>) -> Result<f64> {
    load::run(&plan.warm_up(), |caller| service.open(caller)).await?;
    service.settle().await?;
    let (cpu, own) = (service.cpu(), process::own_cpu(std::process::id()));
    let outcome = load::run(plan, |caller| service.open(caller)).await?;
    let own = process::own_cpu(std::process::id()) - own;
    let backlog = service.backlog().await?;
    service.settle().await?;
    let cpu = service.cpu().since(cpu);
    let Outcome { operations, refused, out_of_order, times, hand_offs, .. } = &outcome;
    let each = |cpu: Duration| format!("{:.1}", cpu.as_secs_f64() * 1e6 / *operations as f64);
    let mut cells = vec![plan.work.name().to_owned(), plan.clients.to_string(), format!("{:.0}", outcome.rate())];
    cells.extend([0.5, 0.99, 0.999].map(|part| format!("{:.2}", millis_at(times, part))));
    let hand_off =
        |part| if hand_offs.is_empty() { String::new() } else { format!("{:.2}", millis_at(hand_offs, part)) };
    cells.extend([0.5, 0.99].map(hand_off));
    cells.extend([each(cpu.nodes), format!("{:.0}", service.memory()), refused.to_string(), backlog.to_string()]);
    if let Some(postgres) = cpu.postgres {
        cells.push(each(postgres));
        cells.push(instead.map_or_else(String::new, |row| format!("{:.2}", outcome.rate() / row.rate)));
    }
    table::row(&cells);
    ensure!(*out_of_order == 0, "{out_of_order} grants were out of order");
    // A generator that is busy all the time would measure itself.
    let busy = own.as_secs_f64() / outcome.time.as_secs_f64();
    if busy > 0.9 {
        println!("(the callers used {:.0}% of a core: they may have been what was slow)", busy * 100.0);
    }
    Ok(outcome.rate())
}

/// A load that was measured.
struct Row {
    plan: Plan,
    rate: f64,
}

/// The same loads on what people use instead; what ShedLock came to.
async fn instead(arguments: &Arguments, folder: &Path, ours: &[Row]) -> Result<Vec<Row>> {
    println!();
    table::head(&[
        "instead",
        "load",
        "callers",
        "a second",
        "p50 ms",
        "p99.9 ms",
        "CPU us/op",
        "refusals a pair",
        "Job Leases on SQLite / it",
    ]);
    let manner = arguments.manner();
    let mut lacks = Vec::new();
    if arguments.peers {
        lacks.push(beside::<Redis>(folder, manner, ours).await?.0);
        lacks.push(beside::<ZooKeeper>(folder, manner, ours).await?.0);
    }
    let (lack, shedlock) = beside::<ShedLock>(folder, manner, ours).await?;
    lacks.push(lack);
    if arguments.peers {
        lacks.push(beside::<Etcd>(folder, manner, ours).await?.0);
    }
    println!();
    lacks.iter().for_each(|lack| println!("- {lack}"));
    Ok(shedlock)
}

/// The same loads on something else: what it leaves to its users, and how those loads went that it can take.
async fn beside<P: Peer>(folder: &Path, manner: Manner, ours: &[Row]) -> Result<(String, Vec<Row>)> {
    let folder = tempfile::tempdir_in(folder)?;
    let Some(peer) = P::start(folder.path(), manner).await? else {
        return Ok((missing(P::NAME, P::PACKAGE), Vec::new()));
    };
    let mut rows = Vec::new();
    for Row { plan, rate } in ours {
        if peer.run(&plan.warm_up()).await?.done == 0 {
            continue;
        }
        let cpu = process::cpu(peer.process().id());
        let outcome = peer.run(plan).await?;
        let cpu = process::cpu(peer.process().id()) - cpu;
        table::row(&[
            P::NAME.to_owned(),
            plan.work.name().to_owned(),
            plan.clients.to_string(),
            format!("{:.0}", outcome.rate()),
            format!("{:.2}", millis_at(&outcome.times, 0.5)),
            format!("{:.2}", millis_at(&outcome.times, 0.999)),
            format!("{:.1}", cpu.as_secs_f64() * 1e6 / outcome.operations as f64),
            format!("{:.1}", outcome.refused as f64 / outcome.done.max(1) as f64),
            format!("{:.2}", rate / outcome.rate()),
        ]);
        rows.push(Row { plan: plan.clone(), rate: outcome.rate() });
    }
    Ok((format!("{}: {}", P::NAME, P::LACKS), rows))
}

fn missing(name: &str, package: &str) -> String {
    format!("{name}: not measured, since it is not installed (on Debian: {package})")
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
