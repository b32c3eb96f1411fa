//! A backup that is taken while servers are at work and written to, and what it is worth when they are gone.

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::history::Call;
use crate::postgres::Postgres;
use crate::process::{IN_TURN, PATIENCE, Place, ServerProcess};
use crate::wire::{Answer, Connection, post};

const WRITERS: usize = 6;
const EVENTS: &str = "/api/v1/events";
/// So many leases are kept before the backup, and as many more after it.
const ENOUGH: usize = 60;
/// Writers that are held up may have so many answers on their way.
const ON_THE_WAY: u64 = 2 * WRITERS as u64;
/// How often it is backed up, until so much happens meanwhile.
const ATTEMPTS: usize = 20;

/// A lease that was acknowledged and is held for good.
#[derive(Clone)]
struct Kept {
    key: String,
    lease_id: Value,
    token: u64,
}

/// What writers were told.
#[derive(Default)]
struct Told {
    kept: Mutex<Vec<Kept>>,
    greatest: AtomicU64,
    answers: AtomicU64,
    stop: AtomicBool,
}

impl Told {
    fn token(&self, lease: &Value) -> u64 {
        let token = lease["fencing_token"].as_u64().unwrap();
        self.greatest.fetch_max(token, Ordering::SeqCst);
        self.answers.fetch_add(1, Ordering::SeqCst);
        token
    }
}

async fn ask(connection: &mut Connection, call: Call, body: &Value) -> Answer {
    connection.send(&post(call.path(), body, "asked", None)).await.unwrap();
    timeout(PATIENCE, connection.receive()).await.expect("no answer").unwrap()
}

async fn ask_well(connection: &mut Connection, call: Call, body: &Value) -> Value {
    let answer = ask(connection, call, body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

impl Told {
    /// Waits until so many leases are kept.
    async fn until_kept(&self, count: usize) {
        let began = Instant::now();
        while self.kept.lock().unwrap().len() < count {
            assert!(began.elapsed() < PATIENCE, "writers are held up");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Takes turns on keys that others want too, and keeps one lease in each round.
fn write(server: &ServerProcess, n: usize, told: &Arc<Told>) -> JoinHandle<()> {
    let (address, told) = (server.address, Arc::clone(told));
    tokio::spawn(async move {
        let mut connection = Connection::open(address).await.unwrap();
        for round in 0.. {
            if told.stop.load(Ordering::SeqCst) {
                return;
            }
            let key = format!("shared/{}", (n + round) % 4);
            let wanted = json!({"lease_key": key, "owner": format!("w{n}"), "ttl_ms": 60_000, "wait_ms": 60_000});
            let lease = ask_well(&mut connection, Call::Acquire, &wanted).await;
            told.token(&lease);
            let named = json!({"lease_key": key, "lease_id": lease["lease_id"]});
            ask_well(&mut connection, Call::Renew, &named).await;
            ask_well(&mut connection, Call::Release, &named).await;
            let key = format!("kept/{n}/{round}");
            let wanted = json!({"lease_key": key, "owner": format!("w{n}"), "ttl_ms": 3_600_000});
            let lease = ask_well(&mut connection, Call::Acquire, &wanted).await;
            let kept = Kept { key, lease_id: lease["lease_id"].clone(), token: told.token(&lease) };
            told.kept.lock().unwrap().push(kept);
        }
    })
}

/// Runs the command line; what it printed, as JSON.
async fn run(arguments: &[&str]) -> Result<Value, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_job-leases"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("JOB_LEASES_")) {
        command.env_remove(name);
    }
    let done = command.args(arguments).arg("--json").stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&done.stdout).unwrap())
}

/// The id of an event.
async fn event_id(server: &ServerProcess) -> String {
    let mut stream = Connection::open(server.address).await.unwrap();
    assert_eq!(stream.follow(EVENTS, None).await.unwrap(), 200);
    let first = timeout(PATIENCE, stream.chunk()).await.unwrap().unwrap().unwrap();
    let text = String::from_utf8(first).unwrap();
    text.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned()
}

/// What was known when the backup began, and all that was told in the end.
struct Before {
    kept: Vec<Kept>,
    event_id: String,
    told: Arc<Told>,
    backed_up: Value,
}

/// Writers are at work at these servers of one database, and meanwhile it is backed up; then the servers are killed.
async fn back_up(servers: Vec<ServerProcess>, url: &str, to: &Path) -> Before {
    let told = Arc::new(Told::default());
    let writers: Vec<_> = (0..WRITERS).map(|n| write(&servers[n % servers.len()], n, &told)).collect();
    told.until_kept(ENOUGH).await;
    let event_id = event_id(&servers[0]).await;
    let mut attempts = 0;
    let (kept, backed_up) = loop {
        let kept = told.kept.lock().unwrap().clone();
        let answers = told.answers.load(Ordering::SeqCst);
        let backed_up = run(&["backup", "--database", url, "--to", to.to_str().unwrap()]).await.unwrap();
        let meanwhile = told.answers.load(Ordering::SeqCst) - answers;
        if meanwhile > ON_THE_WAY {
            break (kept, backed_up);
        }
        attempts += 1;
        assert!(attempts < ATTEMPTS, "writers are held up: {meanwhile} answers during the backup");
        std::fs::remove_file(to).unwrap();
    };
    told.until_kept(kept.len() + ENOUGH).await;
    told.stop.store(true, Ordering::SeqCst);
    for writer in writers {
        timeout(PATIENCE, writer).await.unwrap().unwrap();
    }
    for server in servers {
        server.kill().await;
    }
    Before { kept, event_id, told, backed_up }
}

/// Restores it, and looks whether all is there that was acknowledged before it was taken.
async fn look(before: &Before, from: &Path, place: &Place) {
    let from = from.to_str().unwrap();
    let restored = run(&["restore", "--from", from, "--database", place.url()]).await.unwrap();
    for fact in ["last", "hash", "keys", "tokens"] {
        assert_eq!(restored[fact], before.backed_up[fact], "{fact}: {restored} and {}", before.backed_up);
    }
    let verified = run(&["verify", "--database", place.url()]).await.unwrap();
    assert_eq!(verified["hash"], restored["hash"]);
    let again = run(&["restore", "--from", from, "--database", place.url()]).await.unwrap_err();
    assert!(again.contains("nothing was restored"), "{again}");

    let server = place.start().await;
    let mut connection = Connection::open(server.address).await.unwrap();
    for kept in &before.kept {
        let named = json!({"lease_key": kept.key, "lease_id": kept.lease_id});
        let lease = ask_well(&mut connection, Call::Renew, &named).await;
        assert_eq!(lease["fencing_token"], kept.token);
    }
    // What was given out after it is not known, but no token is given out once more.
    let greatest = before.told.greatest.load(Ordering::SeqCst);
    let since = before.told.kept.lock().unwrap().last().unwrap().clone();
    let named = json!({"lease_key": since.key, "lease_id": since.lease_id});
    assert_eq!(ask(&mut connection, Call::Renew, &named).await.status, 404);
    let wanted = json!({"lease_key": since.key, "owner": "next", "ttl_ms": 60_000});
    let lease = ask_well(&mut connection, Call::Acquire, &wanted).await;
    assert!(lease["fencing_token"].as_u64().unwrap() > greatest, "{lease} after {greatest}");
    // Nor are events taken for others.
    let mut stream = Connection::open(server.address).await.unwrap();
    assert_eq!(stream.follow(EVENTS, Some(&before.event_id)).await.unwrap(), 410);
    server.kill().await;
    run(&["verify", "--database", place.url()]).await.unwrap();
}

#[tokio::test]
async fn a_backup_of_a_server_at_work_holds_all_that_it_had_acknowledged() {
    let _alone = IN_TURN.lock().await;
    let (place, there) = (Place::new(), Place::new());
    let file = there.path().join("backup");
    let servers = vec![place.start().await];
    let before = back_up(servers, place.url(), &file).await;
    look(&before, &file, &there).await;
    // And on several nodes.
    let database = Postgres::new().await;
    look(&before, &file, &Place::on(database.url())).await;
}

#[tokio::test]
async fn a_backup_of_nodes_at_work_holds_all_that_they_had_acknowledged() {
    let _alone = IN_TURN.lock().await;
    let database = Postgres::new().await;
    let places = [Place::on(database.url()), Place::on(database.url())];
    let mut servers = Vec::new();
    for place in &places {
        servers.push(place.start().await);
    }
    let file = places[0].path().join("backup");
    let before = back_up(servers, &database.url(), &file).await;
    let other = Postgres::new().await;
    look(&before, &file, &Place::on(other.url())).await;
    // And on one machine.
    look(&before, &file, &Place::new()).await;
}
