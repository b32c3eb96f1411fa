//! The run: sixteen clients, and servers that are killed, paused and lied to under them.

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

use super::clients::Client;
use super::faults::Faults;
use super::streams::{LAST, follow};
use super::world::{Here, World};
use super::{Call, Database, History, Line, server_time};
use crate::checker::check;
use crate::failover::cluster::Cluster;
use crate::postgres::Postgres;
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

/// A number that the environment may set.
fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// What the servers of a run work on.
enum Ground {
    /// A file in the one server's place.
    File,
    /// A database that two nodes share.
    Shared(Postgres),
    /// The same on two servers, of which one takes over from the other.
    Replicated(Cluster),
}

impl Ground {
    fn places(&self) -> Vec<Place> {
        match self {
            Self::File => vec![Place::with_movable_wall_clock()],
            Self::Shared(database) => (0..2).map(|_| Place::on(database.url())).collect(),
            Self::Replicated(cluster) => (0..2).map(|node| Place::on(cluster.url(node))).collect(),
        }
    }

    const fn database(&self) -> Database {
        match self {
            Self::File => Database::Sqlite,
            Self::Shared(_) | Self::Replicated(_) => Database::Postgres,
        }
    }

    /// Rounds of work and mischief with so many kills; why there is no server in the end, if there is none.
    async fn befall(&mut self, faults: &mut Faults<'_>, kills: usize, seed: u64) -> Result<(), String> {
        match self {
            Self::File => faults.befall_one(kills).await,
            Self::Shared(database) => faults.befall_two(kills, database).await,
            Self::Replicated(cluster) => faults.befall_databases(cluster, seed).await,
        }
    }

    /// Waits until all that was acknowledged is in the timeline, while there are servers.
    async fn come_to_rest(&self) {
        match self {
            Self::File => {}
            Self::Shared(database) => database.sequenced().await,
            Self::Replicated(cluster) => cluster.database().sequenced().await,
        }
    }

    /// The timeline as it stands in the database of servers that were killed.
    async fn timeline(&self, places: &[Place]) -> Vec<Line> {
        match self {
            Self::File => read_timeline(&places[0].database()).await,
            Self::Shared(database) => database.timeline().await,
            Self::Replicated(cluster) => cluster.database().timeline().await,
        }
    }

    /// Keeps everything for whoever looks into a failure; where it is, and what was logged.
    fn keep(self, places: Vec<Place>) -> String {
        let mut text = match self {
            Self::File => String::new(),
            Self::Shared(database) => format!("database: {}\n", database.keep()),
            Self::Replicated(cluster) => cluster.keep(),
        };
        for place in places {
            let log = place.log();
            text += &format!("files: {}\n{log}\n", place.keep().display());
        }
        text
    }
}

/// Sixteen clients work while the server is killed twenty times and more, paused for less and for more than a lease lasts,
/// and its wall clock is moved an hour each way. `JOB_LEASES_HISTORY_SEED` repeats a run's choices, and
/// `JOB_LEASES_HISTORY_KILLS` makes it longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_clients_find_every_promise_kept_by_a_server_that_is_killed_paused_and_misled() {
    let done = run(async { Ground::File }, 22, &["long times away"]).await;
    assert!(done.kills >= 20, "only {} kills", done.kills);
}

/// Sixteen clients ask now the one, now the other of two nodes, while one or both are killed and paused, for less and for
/// more than nodes are believed to live, and their connections are cut. The environment counts here as it does above.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_clients_find_every_promise_kept_by_two_nodes_that_are_killed_paused_and_cut_off() {
    let ground = async { Ground::Shared(Postgres::new().await) };
    let done = run(ground, 8, &["long times away", "grants in turn by two processes"]).await;
    assert!(done.kills >= 8, "only {} kills", done.kills);
    assert!(done.cuts > 0, "no connection was cut");
}

/// Sixteen clients ask now the one, now the other of two nodes, while the server of their database is killed, and cut off from
/// its replica or from everybody; each time the other takes over, whose clock is half a second behind or ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_clients_find_every_promise_kept_while_one_database_server_takes_over_from_another() {
    let ground = async { Ground::Replicated(Cluster::start().await) };
    let done = run(ground, 0, &["grants in turn by two processes"]).await;
    assert_eq!(done.pauses, 2, "times that the other server took over");
}

/// How much was done to the servers.
struct Done {
    kills: usize,
    cuts: i64,
    pauses: usize,
}

/// A run with so many kills, unless the environment says otherwise, that must have had all of [`SEEN`] and this.
async fn run(ground: impl Future<Output = Ground>, kills: u64, also_seen: &[&str]) -> Done {
    let _alone = IN_TURN.lock().await;
    let seed = number("JOB_LEASES_HISTORY_SEED", rand::rng().random_range(0..1_000_000));
    let kills = usize::try_from(number("JOB_LEASES_HISTORY_KILLS", kills)).unwrap();
    println!("seed {seed}: to choose so again set JOB_LEASES_HISTORY_SEED={seed}");
    the_wall_clock_can_be_moved().await;

    let mut ground = ground.await;
    let places = ground.places();
    let (addresses, told) = watch::channel(vec![None; places.len()]);
    let world = Arc::new(World::new(told));
    let mut faults = Faults::new(&places, &world, StdRng::seed_from_u64(seed), addresses);
    let clients: Vec<_> = (0..CLIENTS).map(|n| tokio::spawn(Client::new(n, seed, Arc::clone(&world)).run())).collect();
    let streams = [(None, 0), (None, 97), (Some("hot/"), 0)]
        .map(|(prefix, patience)| tokio::spawn(follow(Arc::clone(&world), prefix, patience)));

    if let Err(problem) = ground.befall(&mut faults, kills, seed).await {
        println!("{}\n{problem}", faults.told.join("\n"));
        // Whoever asked last notices that nobody answers. What was done until then may tell why.
        sleep(Duration::from_secs(1)).await;
        let history = History {
            operations: world.take_record(),
            lines: ground.timeline(&places).await,
            lives: faults.lives.clone(),
            ..History::default()
        };
        let until_then = match &ground {
            Ground::File => check(&history).explain(&history),
            // What nobody has sequenced would look as if it were lost.
            Ground::Shared(_) | Ground::Replicated(_) => format!("{} lines", history.lines.len()),
        };
        panic!("seed {seed}: {problem}\nuntil then: {until_then}\n{}", ground.keep(places));
    }
    world.end();
    for client in clients {
        client.await.expect("a client failed");
    }
    settle(&world, seed).await;
    let mut followed = Vec::new();
    for stream in streams {
        followed.push(stream.await.expect("a follower failed"));
    }
    ground.come_to_rest().await;
    faults.kill_all().await;

    let history = History {
        database: ground.database(),
        operations: world.take_record(),
        lines: ground.timeline(&places).await,
        streams: followed,
        lives: faults.lives.clone(),
        away: faults.away.clone(),
        cut_off: faults.cut_off.clone(),
        is_settled: true,
    };
    let report = check(&history);
    println!("{}\n{} operations, {report}", faults.told.join("\n"), history.operations.len());
    let done = Done { kills: faults.kills, cuts: faults.cuts, pauses: faults.pauses };
    if !report.violations.is_empty() {
        panic!("seed {seed}: {}\n{}", report.explain(&history), ground.keep(places));
    }
    for what in SEEN.iter().chain(also_seen) {
        assert!(report.count(what) > 0, "the run had no {what}");
    }
    done
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

/// The timeline as it stands in a file.
async fn read_timeline(database: &Path) -> Vec<Line> {
    let mut database = SqliteConnection::connect(&format!("sqlite:{}", database.display())).await.unwrap();
    let rows =
        sqlx::query("SELECT position, hash, body FROM timeline ORDER BY position").fetch_all(&mut database).await;
    let line = |row: &sqlx::sqlite::SqliteRow| Line { position: row.get(0), hash: row.get(1), body: row.get(2) };
    rows.unwrap().iter().map(line).collect()
}
