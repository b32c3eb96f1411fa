//! The run: sixteen clients, and all that can befall servers and their database under them.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;

use super::clients::Client;
use super::failover::TAKEN_OVER;
use super::faults::Faults;
use super::ground::Ground;
use super::plan::{Step, plan};
use super::streams::{LAST, follow};
use super::world::{Here, World};
use super::{Call, Database, server_time};
use crate::checker::check;
use crate::process::{IN_TURN, Place};

const CLIENTS: usize = 16;

/// What a run must have had: that all was quiet proves something only if something went on.
const SEEN: [&str; 13] = [
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
    "refusals because somebody is in the way",
    "renewals",
    "waiters known to have been first",
];

/// What the environment chooses, so that a run is repeated; else chance does.
const SEED: &str = "JOB_LEASES_HISTORY_SEED";

/// Sixteen clients work while the server is killed, at work and while it starts, paused for less and for more than a lease
/// lasts, its wall clock moved an hour each way, its disk full and its flushes slow, and while others hang up on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_clients_find_every_promise_kept_on_a_file() {
    run(Course::Planned(Database::Sqlite), &["long times away"]).await;
}

/// Sixteen clients ask now the one, now the other of two nodes, to which all that happens too, to one or both; and whose
/// connections are cut, whose pooler is killed, whose database stands still, crashes, and has its clock moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_clients_find_every_promise_kept_on_a_shared_database() {
    run(Course::Planned(Database::Postgres), &["long times away", "grants in turn by two processes"]).await;
}

/// Sixteen clients ask now the one, now the other of two nodes, while the server of their database is killed, and cut off from
/// its replica or from everybody; each time the other takes over, whose clock is half a second behind or ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_clients_find_every_promise_kept_while_one_database_server_takes_over_from_another() {
    run(Course::TakeOver, &["grants in turn by two processes"]).await;
}

/// What befalls servers.
#[derive(Clone, Copy)]
enum Course {
    /// All that can befall those of one server of such a database.
    Planned(Database),
    /// One of two servers of a database takes over from the other, and then that from it.
    TakeOver,
}

fn seed() -> u64 {
    match env::var(SEED) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{SEED} is not a number: {text}")),
        Err(_) => rand::rng().random_range(0..1_000_000_000),
    }
}

/// A run that must have had all of [`SEEN`] and this, and must have felt every fault of its course.
async fn run(course: Course, also_seen: &[&str]) {
    let _alone = IN_TURN.lock().await;
    let seed = seed();
    println!("seed {seed}: {SEED}={seed} brings the same faults in the same order at the same times");
    the_wall_clock_can_be_moved().await;

    let (plan, ground) = match course {
        Course::Planned(database) => {
            (plan(seed, database), Ground::new(database, &mut StdRng::seed_from_u64(seed)).await)
        }
        Course::TakeOver => (Vec::new(), Ground::replicated().await),
    };
    println!("{}", ground.describe());
    let (addresses, told) = watch::channel(vec![None; ground.places().len()]);
    let world = Arc::new(World::new(told));
    let mut faults = Faults::new(ground, &world, seed, addresses);
    let clients: Vec<_> = (0..CLIENTS).map(|n| tokio::spawn(Client::new(n, seed, Arc::clone(&world)).run())).collect();
    let streams = [(None, 0), (None, 97), (Some("hot/"), 0)]
        .map(|(prefix, patience)| tokio::spawn(follow(Arc::clone(&world), prefix, patience)));

    let befallen = match course {
        Course::Planned(_) => faults.befall(&plan).await,
        Course::TakeOver => faults.befall_databases().await,
    };
    if let Err(problem) = befallen {
        println!("{}\n{problem}", faults.told.join("\n"));
        // Whoever asked last notices that nobody answers. What was done until then may tell why.
        sleep(Duration::from_secs(1)).await;
        let until_then = match faults.ground.database() {
            Database::Sqlite => {
                let history = faults.history(&world, Vec::new(), false).await;
                check(&history).explain(&history)
            }
            // What nobody has sequenced would look as if it were lost; and the database may be away.
            Database::Postgres => String::new(),
        };
        panic!("seed {seed}: {problem}\nuntil then: {until_then}\n{}", faults.ground.keep());
    }
    world.end();
    for client in clients {
        client.await.expect("a client failed");
    }
    faults.tell("the clients have come to an end".to_owned());
    settle(&world, seed).await;
    faults.tell("every lease has ended".to_owned());
    let mut followed = Vec::new();
    for stream in streams {
        followed.push(stream.await.expect("a follower failed"));
    }
    faults.ground.come_to_rest().await;
    faults.kill_all().await;

    let history = faults.history(&world, followed, true).await;
    let report = check(&history);
    println!("{}\n{} operations, {report}", faults.told.join("\n"), history.operations.len());
    println!("{:#?}", faults.felt);
    if !report.violations.is_empty() {
        panic!("seed {seed}: {}\n{}", report.explain(&history), faults.ground.keep());
    }
    for what in SEEN.iter().chain(also_seen) {
        assert!(report.count(what) > 0, "the run had no {what}");
    }
    for Step { fault, .. } in plan {
        assert!(faults.felt.get(fault.evidence()).is_some_and(|times| *times > 0), "nobody felt {fault:?}");
    }
    if matches!(course, Course::TakeOver) {
        assert_eq!(faults.felt.get(TAKEN_OVER), Some(&2), "{TAKEN_OVER}");
    }
}

/// Without this, the test would prove nothing about the wall clock: a new database starts with what the clock shows.
async fn the_wall_clock_can_be_moved() {
    let mut times = Vec::new();
    for seconds in [0, 3_600] {
        let place = Place::with_movable_wall_clock();
        place.move_wall_clock(seconds);
        let server = place.start().await;
        let (_addresses, told) = watch::channel(vec![Some(Here { process: 0, address: server.address })]);
        let request = json!({"lease_key": "k", "owner": "o", "ttl_ms": 1_000});
        let answer = Client::new(0, 0, Arc::new(World::new(told))).ask(Call::Acquire, request, None).await.unwrap();
        times.push(server_time(&answer.body["server_time"]).unwrap());
        server.kill().await;
    }
    let moved = times[1] - times[0];
    assert!(moved > 3_000_000_000, "libfaketime does not move the server's wall clock: by {moved} us");
}

/// Waits until every lease has ended, so that the timeline must say how; then does the last thing of the run.
async fn settle(world: &Arc<World>, seed: u64) {
    let mut client = Client::new(CLIENTS, seed, Arc::clone(world));
    for key in world.keys() {
        loop {
            match client.insist(Call::Get, json!({"lease_key": key})).await.body["status"].as_str() {
                Some("quarantined") => client.lift(&key).await,
                Some("held" | "breaking" | "cooling") => sleep(Duration::from_millis(50)).await,
                _ => break,
            }
        }
    }
    client.insist(Call::Acquire, json!({"lease_key": LAST, "owner": "last", "ttl_ms": 100})).await;
    while client.insist(Call::Get, json!({"lease_key": LAST})).await.body["status"] != "free" {
        sleep(Duration::from_millis(20)).await;
    }
}
