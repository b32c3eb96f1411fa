//! The run: sixteen clients, and a server that is killed, paused and lied to under them.

use std::env;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use sqlx::{Connection, Row, SqliteConnection};
use tokio::sync::watch;
use tokio::time::sleep;

use super::clients::{Client, World};
use super::faults::Faults;
use super::streams::{LAST, follow};
use super::{Call, History, Line, server_time};
use crate::checker::check;
use crate::process::Place;

const CLIENTS: usize = 16;

/// A number that the environment may set.
fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// Sixteen clients work while the server is killed twenty times and more, paused for less and for more than a lease lasts,
/// and its wall clock is moved an hour each way. `JOB_LEASES_HISTORY_SEED` repeats a run's choices, and
/// `JOB_LEASES_HISTORY_KILLS` makes it longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_clients_find_every_promise_kept_by_a_server_that_is_killed_paused_and_misled() {
    let seed = number("JOB_LEASES_HISTORY_SEED", rand::rng().random_range(0..1_000_000));
    let kills = usize::try_from(number("JOB_LEASES_HISTORY_KILLS", 22)).unwrap();
    println!("seed {seed}: to choose so again set JOB_LEASES_HISTORY_SEED={seed}");
    the_wall_clock_can_be_moved().await;

    let place = Place::with_movable_wall_clock();
    let (address, told) = watch::channel(None);
    let world = Arc::new(World::new(told));
    let mut faults = Faults {
        place: &place,
        world: &world,
        chance: StdRng::seed_from_u64(seed),
        address,
        starts: Vec::new(),
        away: Vec::new(),
        told: Vec::new(),
        kills: 0,
    };
    let clients: Vec<_> = (0..CLIENTS).map(|n| tokio::spawn(Client::new(n, seed, Arc::clone(&world)).run())).collect();
    let streams = [(None, 0), (None, 97), (Some("hot/"), 0)]
        .map(|(prefix, patience)| tokio::spawn(follow(Arc::clone(&world), prefix, patience)));

    let server = match faults.rounds(kills).await {
        Ok(server) => server,
        Err(problem) => {
            // Whoever asked last notices that nobody answers. What was done until then may tell why.
            sleep(Duration::from_secs(1)).await;
            let history = History {
                operations: world.take_record(),
                lines: read_timeline(&place.database()).await,
                ..History::default()
            };
            panic!("seed {seed}: {problem}\nuntil then: {}", check(&history).explain(&history));
        }
    };
    world.end();
    for client in clients {
        client.await.expect("a client failed");
    }
    let is_settled = settle(&world, seed).await;
    let mut followed = Vec::new();
    for stream in streams {
        followed.push(stream.await.expect("a follower failed"));
    }
    faults.kill(server).await;

    let history = History {
        operations: world.take_record(),
        lines: read_timeline(&place.database()).await,
        streams: followed,
        starts: faults.starts.clone(),
        away: faults.away.clone(),
        is_settled,
    };
    let report = check(&history);
    println!("{}\n{} operations, {report}", faults.told.join("\n"), history.operations.len());
    if !report.violations.is_empty() {
        let log = place.log();
        panic!("seed {seed}: {}\nfiles: {}\n{log}", report.explain(&history), place.keep().display());
    }
    // That all was quiet proves something only if something went on.
    assert!(faults.kills >= 20, "only {} kills", faults.kills);
    for what in [
        "answers replayed",
        "answers compared with the first",
        "breaks with grace",
        "callers who hung up",
        "effects of requests without an answer",
        "events received",
        "holders' beliefs",
        "leases called lost",
        "leases listed",
        "leases read through an outage",
        "long times away",
        "refusals because somebody is in the way",
        "renewals",
        "waiters known to have been first",
    ] {
        assert!(report.count(what) > 0, "the run had no {what}");
    }
}

/// Without this, the test would prove nothing about the wall clock: a new database starts with what the clock shows.
async fn the_wall_clock_can_be_moved() {
    let mut times = Vec::new();
    for seconds in [0, 3_600] {
        let place = Place::with_movable_wall_clock();
        place.move_wall_clock(seconds);
        let server = place.start().await;
        let (_address, told) = watch::channel(Some(server.address));
        let request = json!({"lease_key": "k", "owner": "o", "ttl_ms": 1_000});
        let answer = Client::new(0, 0, Arc::new(World::new(told))).ask(Call::Acquire, request, None).await.unwrap();
        times.push(server_time(&answer.body["server_time"]).unwrap());
        server.kill().await;
    }
    let moved = times[1] - times[0];
    assert!(moved > 3_000_000_000, "libfaketime does not move the server's wall clock: by {moved} us");
}

/// Waits until every lease has ended, so that the timeline must say how; then does the last thing of the run.
async fn settle(world: &Arc<World>, seed: u64) -> bool {
    let mut client = Client::new(CLIENTS, seed, Arc::clone(world));
    for key in world.keys() {
        loop {
            let Some(answer) = client.ask(Call::Get, json!({"lease_key": key}), None).await else { continue };
            match answer.body["status"].as_str() {
                Some("quarantined") => client.lift(&key).await,
                Some("held" | "breaking" | "cooling") => sleep(Duration::from_millis(50)).await,
                _ => break,
            }
        }
    }
    let request = json!({"lease_key": LAST, "owner": "last", "ttl_ms": 100});
    client.ask(Call::Acquire, request, None).await.expect("the last thing of all");
    loop {
        let answer =
            client.ask(Call::Get, json!({"lease_key": LAST}), None).await.expect("a server that is left alone");
        if answer.body["status"] == "free" {
            return true;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// The timeline as it stands in the database of a server that was killed.
async fn read_timeline(database: &Path) -> Vec<Line> {
    let mut database = SqliteConnection::connect(&format!("sqlite:{}", database.display())).await.unwrap();
    let rows =
        sqlx::query("SELECT position, hash, body FROM timeline ORDER BY position").fetch_all(&mut database).await;
    let line = |row: &sqlx::sqlite::SqliteRow| Line { position: row.get(0), hash: row.get(1), body: row.get(2) };
    rows.unwrap().iter().map(line).collect()
}
