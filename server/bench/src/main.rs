//! Measures Job Leases as its users meet it: over HTTP, on a server process of its own, with the callers on the same machine.
//!
//! Every figure of a table comes from one run: the load, the processor time and memory of the server read from outside, and
//! the time of a flush on the same disk. Run by `cargo xtask bench`.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

mod connection;
mod load;
mod peers;
mod process;
mod product;
mod scale;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;

use crate::load::{Outcome, Plan, Work, millis_at};
use crate::peers::{Etcd, Peer, Postgres, Redis, ZooKeeper};
use crate::product::Server;

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
    /// Also measures pages and lists at this size
    #[arg(long)]
    pages: bool,
    /// Also measures memory with 10,000 leases held and 1,000 callers waiting
    #[arg(long)]
    crowd: bool,
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
    let delay = arguments.flush_delay_ms.map(Duration::from_millis);
    let flush = process::flush_time(folder.path())?;
    let server = Server::start(&arguments.program, folder.path(), delay)?;

    let cores = std::thread::available_parallelism()?;
    let events = scale::fill(&server, arguments.keys, arguments.events).await?;
    println!(
        "{cores} cores; a flush takes {:.2} ms{}",
        millis(flush),
        match delay {
            Some(delay) => format!(", and {:.0} ms more that are added here", millis(delay)),
            None => String::new(),
        }
    );
    println!("{} keys, {events} events before the loads\n", arguments.keys);
    if arguments.crowd {
        // Before any load, which would leave memory in use that has nothing to do with this.
        scale::crowd(&server).await?;
    }
    println!(
        "| load | callers | a second | p50 ms | p99 ms | p99.9 ms | server CPU us/op | memory MB | refused | backlog |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let mut ours = Vec::new();
    for &work in &arguments.loads {
        for &clients in &arguments.clients {
            let time = Duration::from_secs(arguments.seconds);
            let plan = Plan { work, clients, time, keys: arguments.keys };
            let rate = measure(&server, &plan).await?;
            ours.push(Row { plan, rate });
        }
    }
    if arguments.pages {
        scale::pages(&server).await?;
    }
    drop(server);
    if arguments.peers {
        println!(
            "\n| instead | load | callers | a second | p50 ms | p99.9 ms | CPU us/op | refusals a pair | Job Leases / it |"
        );
        println!("|---|---|---|---|---|---|---|---|---|");
        let lacks = [
            beside::<Redis>(folder.path(), &ours).await?,
            beside::<ZooKeeper>(folder.path(), &ours).await?,
            beside::<Postgres>(folder.path(), &ours).await?,
            beside::<Etcd>(folder.path(), &ours).await?,
        ];
        println!();
        lacks.iter().for_each(|lacks| println!("- {lacks}"));
    }
    println!("\nA flush took {:.2} ms at the end.", millis(process::flush_time(folder.path())?));
    Ok(())
}

/// One load, and one line of the table. What the read models are behind at its end is worked off within the measure.
async fn measure(server: &Server, plan: &Plan) -> Result<f64> {
    load::run(&plan.warm_up(), || server.open()).await?;
    server.settle().await?;
    let (cpu, own) = (process::cpu(server.id()), process::own_cpu(std::process::id()));
    let outcome = load::run(plan, || server.open()).await?;
    let own = process::own_cpu(std::process::id()) - own;
    let backlog = server.backlog().await?;
    server.settle().await?;
    let cpu = process::cpu(server.id()) - cpu;
    let Outcome { operations, refused, out_of_order, times, .. } = &outcome;
    println!(
        "| {} | {} | {:.0} | {:.2} | {:.2} | {:.2} | {:.1} | {:.0} | {refused} | {backlog} |",
        plan.work.name(),
        plan.clients,
        outcome.rate(),
        millis_at(times, 0.5),
        millis_at(times, 0.99),
        millis_at(times, 0.999),
        cpu.as_secs_f64() * 1e6 / *operations as f64,
        process::memory(server.id()),
    );
    ensure!(*out_of_order == 0, "{out_of_order} grants were out of order");
    // A generator that is busy all the time would measure itself.
    let busy = own.as_secs_f64() / outcome.time.as_secs_f64();
    if busy > 0.9 {
        println!("(the callers used {:.0}% of a core: they may have been what was slow)", busy * 100.0);
    }
    Ok(outcome.rate())
}

/// A load that was measured on Job Leases.
struct Row {
    plan: Plan,
    rate: f64,
}

/// The same loads on something else; what it leaves to its users.
async fn beside<P: Peer>(folder: &Path, ours: &[Row]) -> Result<String> {
    let folder = tempfile::tempdir_in(folder)?;
    let Some(peer) = P::start(folder.path()).await? else {
        return Ok(format!("{}: not measured, since it is not installed (on Debian: {})", P::NAME, P::PACKAGE));
    };
    for Row { plan, rate } in ours {
        if peer.run(&plan.warm_up()).await?.done == 0 {
            continue;
        }
        let cpu = process::cpu(peer.process().id());
        let outcome = peer.run(plan).await?;
        let cpu = process::cpu(peer.process().id()) - cpu;
        println!(
            "| {} | {} | {} | {:.0} | {:.2} | {:.2} | {:.1} | {:.1} | {:.2} |",
            P::NAME,
            plan.work.name(),
            plan.clients,
            outcome.rate(),
            millis_at(&outcome.times, 0.5),
            millis_at(&outcome.times, 0.999),
            cpu.as_secs_f64() * 1e6 / outcome.operations as f64,
            outcome.refused as f64 / outcome.done.max(1) as f64,
            rate / outcome.rate(),
        );
    }
    Ok(format!("{}: {}", P::NAME, P::LACKS))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
