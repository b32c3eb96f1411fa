//! Microseconds an operation at the engine's door, without HTTP: acquire and release of random keys in a closed loop.
//!
//! `cargo bench -p engine --bench door -- [--keys 1000,1000000] [--callers 1,8,64,256] [--seconds 5] [--folder PATH]`
//!
//! For each number of keys and callers it prints operations a second; the wall and processor time of one operation while
//! the load runs; the processor time of one operation with the read models caught up at the end (nothing is left over for
//! later); the backlog at the end of the load; and the time of a flush in the same run.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time and wants real chance")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use domain::lease::{Acquire, Command, Reply};
use domain::{Actor, LeaseKey, Metadata, Owner, Span};
use engine::{Call, Engine, Options};
use rand::RngExt as _;

struct Plan {
    keys: Vec<usize>,
    callers: Vec<usize>,
    seconds: u64,
    folder: PathBuf,
}

fn plan() -> Plan {
    let mut plan =
        Plan { keys: vec![1_000, 1_000_000], callers: vec![1, 8, 64, 256], seconds: 5, folder: std::env::temp_dir() };
    let numbers = |text: &str| text.split(',').map(|n| n.parse().expect("a number")).collect();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("a value");
        match argument.as_str() {
            "--keys" => plan.keys = numbers(&value()),
            "--callers" => plan.callers = numbers(&value()),
            "--seconds" => plan.seconds = value().parse().expect("a number"),
            "--folder" => plan.folder = value().into(),
            // What cargo passes to every benchmark.
            "--bench" => {}
            other => panic!("{other}?"),
        }
    }
    plan
}

fn call() -> Call {
    Call { actor: Arc::new(Actor::system("benchmark")), request_id: None, idempotency: None }
}

fn terms() -> Acquire {
    Acquire {
        owner: Owner::parse("worker-1").expect("a name"),
        job_key: None,
        ttl: Span::millis(30_000),
        min_hold: Span::ZERO,
        max_hold: None,
        lock_delay: Span::ZERO,
        subjects: Arc::from([]),
        metadata: Metadata::EMPTY,
    }
}

fn key(n: usize) -> LeaseKey {
    LeaseKey::parse(&format!("benchmark/{n:07}")).expect("a name")
}

/// Processor time of this process so far.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// The median time of a small write and its flush in `folder`.
fn flush_time(folder: &std::path::Path) -> Duration {
    use std::io::Write as _;
    let path = folder.join("flush");
    let mut file = std::fs::File::create(&path).expect("a file");
    let mut times: Vec<Duration> = (0..200)
        .map(|_| {
            let began = Instant::now();
            file.write_all(&[0; 4096]).and_then(|()| file.sync_data()).expect("a flush");
            began.elapsed()
        })
        .collect();
    times.sort();
    times[100]
}

async fn fill(engine: &Engine, keys: usize) {
    for from in (0..keys).step_by(500) {
        let take = |n| (key(n), Command::Acquire { request: terms(), wait: None });
        let done = engine.batch(call(), (from..keys.min(from + 500)).map(take).collect()).await.expect("grants");
        let give = |result: &Result<Reply, _>| match result {
            Ok(Reply::Lease(lease)) => (lease.lease_key.clone(), Command::Release { lease_id: lease.lease.id() }),
            other => panic!("{other:?}"),
        };
        let release = done.value.iter().map(give).collect();
        done.delivery.expect("a guard").delivered();
        engine.batch(call(), release).await.expect("releases");
    }
}

async fn measure(engine: &Engine, keys: usize, callers: usize, seconds: u64) {
    let stop = Arc::new(AtomicBool::new(false));
    let operations = Arc::new(AtomicU64::new(0));
    let (began, cpu_before) = (Instant::now(), cpu());
    let head_before = engine.timeline().head();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (engine, stop, operations) = (engine.clone(), Arc::clone(&stop), Arc::clone(&operations));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let key = key(rand::rng().random_range(0..keys));
                    let take = Command::Acquire { request: terms(), wait: None };
                    operations.fetch_add(1, Ordering::Relaxed);
                    let Ok(done) = engine.run(call(), key.clone(), take).await else { continue };
                    let Reply::Lease(lease) = &done.value else { continue };
                    let lease_id = lease.lease.id();
                    done.delivery.expect("a guard").delivered();
                    engine.run(call(), key, Command::Release { lease_id }).await.expect("a release");
                    operations.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("a caller");
    }
    let (wall, busy) = (began.elapsed(), cpu() - cpu_before);
    let backlog = engine.timeline().head().0 - engine.timeline().applied().0;
    while engine.timeline().applied() < engine.timeline().head() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let busy_after = cpu() - cpu_before;
    let count = operations.load(Ordering::Relaxed);
    let lines = engine.timeline().head().0 - head_before.0;
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
    println!(
        "{keys:>9} {callers:>7} {:>9.0} {:>10.1} {:>10.1} {:>12.1} {:>9} {backlog:>8}",
        count as f64 / wall.as_secs_f64(),
        micros(wall),
        micros(busy),
        micros(busy_after),
        lines,
    );
}

#[tokio::main]
async fn main() {
    let plan = plan();
    println!("cores {}", std::thread::available_parallelism().map_or(0, usize::from));
    println!("     keys callers     ops/s    wall us     cpu us  cpu us+views     lines  backlog");
    for keys in plan.keys {
        let folder = tempfile::tempdir_in(&plan.folder).expect("a folder");
        let engine = Engine::open(Options::sqlite(folder.path().join("leases.db"))).await.expect("an engine");
        fill(&engine, keys).await;
        for &callers in &plan.callers {
            measure(&engine, keys, callers, plan.seconds).await;
        }
        println!("flush {:.0} us", flush_time(folder.path()).as_secs_f64() * 1e6);
        engine.close().await;
    }
}
