//! What is measured at a size: the fill, the pages and lists over it, and a crowd of holders and waiters.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use hdrhistogram::Histogram;
use tokio::time::sleep;

use crate::load::{BATCH, Session as _, key, micros, millis_at};
use crate::product::Service;
use crate::table;

/// Callers that fill at once.
const FILLERS: usize = 4;
/// How often each page is asked for.
const TIMES: usize = 100;

/// Takes each key and gives it back, and goes on until there are that many events; how many there are then.
pub(crate) async fn fill(service: &Service, keys: usize, events: usize) -> Result<usize> {
    let mut done = 0;
    while done == 0 || done < events {
        let fillers = (0..FILLERS).map(|filler| async move {
            let mut connection = service.open(filler).await?;
            let mut from = filler * BATCH;
            while from < keys {
                let names: Vec<String> = (from..keys.min(from + BATCH)).map(key).collect();
                connection.batch(&names).await?;
                from += FILLERS * BATCH;
            }
            anyhow::Ok(())
        });
        try_join_all(fillers).await?;
        done += 2 * keys;
    }
    service.settle().await?;
    Ok(done)
}

/// How long pages and lists take, asked for one after another.
pub(crate) async fn pages(service: &Service) -> Result<()> {
    const PAGES: [(&str, &str); 12] = [
        ("the first screen", "/"),
        ("the first screen, by update", "/?sort=-updated_at"),
        ("the first screen, found by owner", "/?q=owner%3Aworker-1"),
        ("the first screen, found by key", "/?q=key%3Abenchmark%2Fnightly%2F00005*"),
        ("one key", "/core/leases/benchmark/nightly/0000500"),
        ("the timeline", "/core/audit"),
        ("figures", "/api/v1/counters/get"),
        ("list", "/api/v1/leases/list?limit=100"),
        ("list of an owner, the newest first", "/api/v1/leases/list?limit=100&owner=worker-1&sort=-acquired_at"),
        (
            "list below a prefix, by update",
            "/api/v1/leases/list?limit=100&prefix=benchmark/nightly/00&sort=-updated_at",
        ),
        ("list of what is held", "/api/v1/leases/list?limit=100&status=held"),
        ("history", "/api/v1/leases/history?lease_key=benchmark/nightly/0000500"),
    ];
    println!();
    let mut names = vec!["page or list", "p50 ms", "p99 ms", "bytes", "server CPU ms"];
    if service.is_on_postgres() {
        names.push("PostgreSQL CPU ms");
    }
    table::head(&names);
    let mut connection = service.open(0).await?;
    for (name, path) in PAGES {
        let mut times = Histogram::<u64>::new(3)?;
        let before = service.cpu();
        let mut bytes = 0;
        for _ in 0..TIMES {
            let began = Instant::now();
            let answer = connection.get(path).await?;
            ensure!(answer.status == 200, "{path}: {} {}", answer.status, answer.body);
            bytes = answer.body.len();
            times.record(micros(began))?;
        }
        let [half, most] = [0.5, 0.99].map(|part| format!("{:.1}", millis_at(&times, part)));
        let mut cells = vec![name.to_owned(), half, most, bytes.to_string()];
        let cpu = service.cpu().since(before);
        let each = |cpu: Duration| format!("{:.1}", cpu.as_secs_f64() * 1e3 / TIMES as f64);
        cells.push(each(cpu.nodes));
        cells.extend(cpu.postgres.map(each));
        table::row(&cells);
    }
    Ok(())
}

/// The server's memory with 10,000 leases held and 1,000 callers waiting for some of them.
pub(crate) async fn crowd(service: &Service) -> Result<()> {
    const HELD: usize = 10_000;
    const WAITING: usize = 1_000;
    let name = |n: usize| format!("crowd/{n:05}");
    let mut connection = service.open(0).await?;
    for from in (0..HELD).step_by(BATCH) {
        let take = |n| format!(r#"{{"acquire":{{"lease_key":"{}","owner":"worker-{n}","ttl_ms":600000}}}}"#, name(n));
        let ids = connection.operations((from..from + BATCH).map(take)).await?;
        ensure!(ids.len() == BATCH, "{} of {BATCH} keys were granted", ids.len());
    }
    service.settle().await?;
    println!("{:.0} MB of memory with {HELD} leases held.", service.memory());
    let waiters = (0..WAITING).map(|n| async move {
        let mut connection = service.open(n).await?;
        let body = format!(r#"{{"lease_key":"{}","owner":"waiter-{n}","ttl_ms":30000,"wait_ms":60000}}"#, name(n / 2));
        // Ends when the measure is over: nobody gives these leases back.
        connection.post("/api/v1/leases/acquire", &body).await?;
        anyhow::Ok(())
    });
    let measured = async {
        sleep(Duration::from_secs(10)).await;
        println!("{:.0} MB with {WAITING} callers waiting besides.\n", service.memory());
    };
    tokio::select! {
        waited = try_join_all(waiters) => ensure!(waited.is_err(), "nobody was to be granted anything"),
        () = measured => {}
    }
    Ok(())
}
