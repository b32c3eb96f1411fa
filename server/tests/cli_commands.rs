//! The command line against a real server.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use server::serve::{Config, Server};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const TOKEN: &str = "jl_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A server with a database of its own, stopped at the end.
struct Running {
    runtime: Runtime,
    server: Option<Server>,
    address: SocketAddr,
    folder: TempDir,
}

/// What a command did.
#[derive(Debug)]
struct Done {
    code: i32,
    out: String,
    err: String,
}

impl Done {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Running {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let folder = TempDir::new().unwrap();
        let server = runtime.block_on(Server::start(config(folder.path(), None))).unwrap();
        Self { runtime, address: server.address(), server: Some(server), folder }
    }

    fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop());
        }
    }

    fn start_again(&mut self) {
        let config = config(self.folder.path(), Some(self.address));
        self.server = Some(self.runtime.block_on(Server::start(config)).unwrap());
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_job-leases"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("JOB_LEASE") {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .env("JOB_LEASES_URL", format!("http://{}", self.address))
            .env("JOB_LEASES_TOKEN", TOKEN)
            // Nothing of the user's own is read.
            .env("XDG_DATA_HOME", self.folder.path().join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn cli(&self, arguments: &[&str]) -> Done {
        finish(self.command(arguments).spawn().unwrap())
    }

    fn with_token(&self, token: &str, arguments: &[&str]) -> Done {
        finish(self.command(arguments).env("JOB_LEASES_TOKEN", token).spawn().unwrap())
    }

    /// Takes a lease and gives its id.
    fn acquire(&self, key: &str) -> String {
        let done = self.cli(&["acquire", key, "--owner", "w1", "--ttl", "1h", "--json"]);
        assert_eq!(done.code, 0, "{done:?}");
        done.json()["lease_id"].as_str().unwrap().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

fn config(folder: &Path, listen: Option<SocketAddr>) -> Config {
    let mut config = Config::new(folder.join("test.db"));
    if let Some(listen) = listen {
        config.listen = listen;
    }
    config.bootstrap_token = Some(TOKEN.to_owned());
    config
}

fn finish(child: Child) -> Done {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Done { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
}

fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if condition() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("never happened: {what}");
}

#[test]
fn a_worker_takes_renews_and_gives_back_and_is_told_when_it_is_too_late() {
    let server = Running::start();
    let taken = server.cli(&["acquire", "k", "--owner", "w1", "--ttl", "1h", "--subject", "customer:acme", "--json"]);
    assert_eq!(taken.code, 0, "{taken:?}");
    let lease = taken.json();
    let id = lease["lease_id"].as_str().unwrap();
    let token = lease["fencing_token"].to_string();
    assert_eq!(lease["subjects"][0], "customer:acme");

    let renewed = server.cli(&["renew", "k", id, "--ttl", "2h", "--json"]);
    assert_eq!(renewed.code, 0, "{renewed:?}");
    assert!(renewed.json()["ttl_remaining_ms"].as_u64().unwrap() > 3_600_000);

    assert_eq!(server.cli(&["validate", "k", &token]).code, 0);
    assert_eq!(server.cli(&["validate", "k", "9007199254740991"]).code, 66);

    let shown = server.cli(&["get", "k"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.out.contains("held") && shown.out.contains("w1") && shown.out.contains(id), "{}", shown.out);

    let released = server.cli(&["release", "k", id, "--json"]);
    assert_eq!((released.code, &released.json()["outcome"]), (0, &Value::from("released")), "{released:?}");
    assert_eq!(server.cli(&["validate", "k", &token]).code, 75);
    assert_eq!(server.cli(&["renew", "k", id]).code, 75);
    assert_eq!(server.cli(&["release", "k", id]).code, 0, "once more is no harm");
    assert_eq!(server.cli(&["release", "k", "ls_0000000001a"]).code, 66);
    assert_eq!(server.cli(&["get", "unheard-of"]).code, 66);
}

#[test]
fn the_environment_of_run_names_the_lease_to_the_commands_inside() {
    let server = Running::start();
    let job_leases = env!("CARGO_BIN_EXE_job-leases");
    let script = format!("'{job_leases}' validate && '{job_leases}' renew --json");
    let done = server.cli(&["run", "--key", "k", "--", "sh", "-c", &script]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("current") && done.out.contains("\"lease_key\":\"k\""), "{done:?}");
}

#[test]
fn a_key_that_is_held_is_73_at_once_or_after_the_wait_and_a_wait_is_served() {
    let server = Running::start();
    let id = server.acquire("k");
    let refused = server.cli(&["acquire", "k", "--owner", "w2"]);
    assert_eq!(refused.code, 73, "{refused:?}");
    assert!(refused.err.contains("w1"), "who holds it is said: {refused:?}");
    assert_eq!(server.cli(&["acquire", "k", "--wait", "200ms"]).code, 73);
    let waiter = server.command(&["acquire", "k", "--owner", "w2", "--wait", "5m", "--json"]).spawn().unwrap();
    until("it waits", || server.cli(&["get", "k", "--json"]).json()["queue_length"] == 1);
    assert_eq!(server.cli(&["release", "k", &id]).code, 0);
    let served = finish(waiter);
    assert_eq!((served.code, &served.json()["owner"]), (0, &Value::from("w2")), "{served:?}");
}

#[test]
fn an_operator_breaks_transfers_quarantines_and_lifts() {
    let server = Running::start();
    let id = server.acquire("k");
    assert_eq!(server.cli(&["break", "k"]).code, 64, "a reason is needed");
    let breaking = server.cli(&["break", "k", "--reason", "stuck", "--grace", "1h", "--json"]);
    assert_eq!((breaking.code, &breaking.json()["status"]), (0, &Value::from("breaking")), "{breaking:?}");
    assert_eq!(server.cli(&["break", "k", "--reason", "stuck", "--grace", "0", "--lease-id", &id]).code, 0);
    assert_eq!(server.cli(&["renew", "k", &id]).code, 75);
    assert_eq!(server.cli(&["break", "k", "--reason", "stuck"]).code, 66, "nothing is held");

    assert_eq!(server.cli(&["quarantine", "k", "--reason", "bad data"]).code, 0);
    let refused = server.cli(&["acquire", "k"]);
    assert_eq!(refused.code, 73, "{refused:?}");
    let shown = server.cli(&["get", "k"]);
    assert!(shown.out.contains("bad data"), "{}", shown.out);
    assert_eq!(server.cli(&["lift", "k", "--reason", "mended"]).code, 0);
    assert_eq!(server.cli(&["lift", "k", "--reason", "mended"]).code, 66);

    let id = server.acquire("k");
    let transferred = server.cli(&["transfer", "k", &id, "--to-owner", "w9", "--json"]);
    assert_eq!((transferred.code, &transferred.json()["owner"]), (0, &Value::from("w9")), "{transferred:?}");
    assert_eq!(server.cli(&["renew", "k", &id]).code, 75);
}

#[test]
fn lists_are_tables_for_people_and_json_for_scripts_and_go_on_page_by_page() {
    let server = Running::start();
    for key in ["a/1", "a/2", "a/3", "b/1"] {
        server.acquire(key);
    }
    let table = server.cli(&["list", "--prefix", "a/"]);
    assert_eq!(table.code, 0, "{table:?}");
    let lines: Vec<_> = table.out.lines().collect();
    assert_eq!(lines.len(), 4, "{}", table.out);
    assert!(lines[0].starts_with("KEY") && lines[1].starts_with("a/1") && lines[1].contains("held"), "{}", table.out);

    let page = server.cli(&["list", "--limit", "2", "--sort", "-lease_key", "--json"]).json();
    assert_eq!(page["items"][0]["lease_key"], "b/1");
    let cursor = page["next"].as_str().unwrap();
    let next = server.cli(&["list", "--limit", "2", "--sort", "-lease_key", "--cursor", cursor, "--json"]).json();
    assert_eq!(next["items"][1]["lease_key"], "a/1");
    assert_eq!(next["next"], Value::Null);

    let more = server.cli(&["list", "--limit", "3"]);
    assert!(more.err.contains("--cursor"), "{more:?}");
    let all = server.cli(&["list", "--limit", "1", "--all"]);
    assert_eq!((all.out.lines().count(), all.err.as_str()), (5, ""));

    let exported = server.cli(&["export", "leases", "--prefix", "a/"]);
    let keys: Vec<Value> =
        exported.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["lease_key"].clone()).collect();
    assert_eq!(keys, ["a/1", "a/2", "a/3"], "{exported:?}");

    let history = server.cli(&["history", "a/1", "--json"]).json();
    assert_eq!(history["items"].as_array().unwrap().len(), 1);
    assert_eq!(server.cli(&["list", "--status", "sleeping"]).code, 64);
    assert_eq!(server.cli(&["list", "--limit", "501"]).code, 64);
}

#[test]
fn tokens_are_made_listed_and_revoked_and_do_what_their_role_may() {
    let server = Running::start();
    let made = server.cli(&["token", "create", "ci", "--role", "viewer", "--expires-in", "1h", "--json"]);
    assert_eq!(made.code, 0, "{made:?}");
    let made = made.json();
    let secret = made["token"].as_str().unwrap();
    assert_eq!(server.with_token(secret, &["list"]).code, 0);
    let refused = server.with_token(secret, &["acquire", "k"]);
    assert_eq!(refused.code, 77, "{refused:?}");
    let listed = server.cli(&["token", "list"]);
    assert!(listed.out.contains("ci") && !listed.out.contains(secret), "{listed:?}");
    assert_eq!(server.cli(&["token", "revoke", made["token_id"].as_str().unwrap()]).code, 0);
    assert_eq!(server.with_token(secret, &["list"]).code, 77);
    assert_eq!(server.with_token("", &["list"]).code, 77);
    assert_eq!(server.cli(&["token", "create", "ci", "--role", "king"]).code, 64);

    let limited = server.cli(&["token", "create", "team", "--role", "worker", "--prefix", "team/", "--json"]).json();
    let secret = limited["token"].as_str().unwrap();
    assert_eq!(server.with_token(secret, &["acquire", "team/k"]).code, 0);
    assert_eq!(server.with_token(secret, &["acquire", "other"]).code, 77);
}

#[test]
fn the_token_is_read_from_a_file_or_from_where_a_local_server_leaves_it() {
    let server = Running::start();
    let file = server.folder.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let list = |name: &str, value: &Path| {
        finish(server.command(&["list"]).env_remove("JOB_LEASES_TOKEN").env(name, value).spawn().unwrap()).code
    };
    assert_eq!(list("JOB_LEASES_TOKEN_FILE", &file), 0);
    assert_eq!(list("JOB_LEASES_TOKEN_FILE", Path::new("/nowhere")), 78);
    let local = server.folder.path().join("data/job-leases");
    std::fs::create_dir_all(&local).unwrap();
    std::fs::copy(&file, local.join("job-leases.db-token")).unwrap();
    assert_eq!(list("XDG_DATA_HOME", &server.folder.path().join("data")), 0);
}

#[test]
fn doctor_finds_what_is_wrong() {
    let mut server = Running::start();
    let well = server.cli(&["doctor", "--json"]);
    assert_eq!(well.code, 0, "{well:?}");
    let checks = well.json()["checks"].clone();
    let results: Vec<_> =
        checks.as_array().unwrap().iter().map(|check| (check["check"].clone(), check["result"].clone())).collect();
    for name in ["reachable", "ready", "version", "clocks", "token"] {
        assert!(results.contains(&(name.into(), "ok".into())), "{name}: {results:?}");
    }
    let stranger = server.with_token("jl_nobody", &["doctor"]);
    assert_eq!(stranger.code, 77, "{stranger:?}");
    server.stop();
    let away = server.cli(&["doctor"]);
    assert_eq!(away.code, 69, "{away:?}");
    assert!(away.out.contains("BAD"), "{away:?}");
}

#[test]
fn watch_follows_without_a_gap_past_a_restart_of_the_server() {
    let mut server = Running::start();
    let id = server.acquire("w/1");
    let mut watching = server.command(&["watch", "--prefix", "w/", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let kind = |event: &Value| event["event"]["kind"].as_str().unwrap_or_default().to_owned();
    // When it has begun to listen is not told: something goes on happening until it says so.
    let begun = AtomicBool::new(false);
    let first = thread::scope(|scope| {
        scope.spawn(|| {
            while !begun.load(Ordering::Relaxed) {
                server.cli(&["renew", "w/1", &id]);
                thread::sleep(Duration::from_millis(50));
            }
        });
        let first = next();
        begun.store(true, Ordering::Relaxed);
        first
    });
    assert_eq!(kind(&first), "lease.renewed");
    server.cli(&["acquire", "x/other"]);
    server.stop();
    server.start_again();
    assert_eq!(server.cli(&["release", "w/1", &id]).code, 0);
    let after_first = loop {
        let event = next();
        if kind(&event) != "lease.renewed" {
            break event;
        }
    };
    assert_eq!(kind(&after_first), "lease.released", "{after_first}");
    watching.kill().unwrap();
    watching.wait().unwrap();

    let from = first["id"].as_str().unwrap();
    let again = server.cli(&["watch", "--prefix", "w/", "--after", from, "--count", "1"]);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.out.contains("w/1"), "{again:?}");
    assert_eq!(server.cli(&["watch", "--after", "999999-1"]).code, 66);
}

#[test]
fn workers_take_turns() {
    let server = Running::start();
    let count = server.folder.path().join("count");
    std::fs::write(&count, "0\n").unwrap();
    // Reading, dawdling and writing loses numbers if two do it at once.
    let script = "read n < \"$COUNT\"; sleep 0.05; echo $((n + 1)) > \"$COUNT\"";
    let arguments = ["run", "--key", "turns", "--wait", "5m", "--", "sh", "-c", script];
    let workers: Vec<_> = (0..12).map(|_| server.command(&arguments).env("COUNT", &count).spawn().unwrap()).collect();
    for worker in workers {
        let done = finish(worker);
        assert_eq!(done.code, 0, "{done:?}");
    }
    assert_eq!(std::fs::read_to_string(&count).unwrap(), "12\n");
    assert_eq!(server.cli(&["get", "turns", "--json"]).json()["status"], "free");
    let history = server.cli(&["history", "turns", "--json"]).json();
    assert_eq!(history["items"].as_array().unwrap().len(), 12);
}

#[test]
fn a_wait_outlives_a_restart_of_the_server() {
    let mut server = Running::start();
    let id = server.acquire("k");
    let arguments = ["run", "--key", "k", "--owner", "w2", "--wait", "5m", "--", "echo", "ran"];
    let waiter = server.command(&arguments).spawn().unwrap();
    let waiting = |server: &Running| server.cli(&["get", "k", "--json"]).json()["queue_length"] == 1;
    until("it waits", || waiting(&server));
    server.stop();
    server.start_again();
    until("it waits again", || waiting(&server));
    assert_eq!(server.cli(&["release", "k", &id]).code, 0);
    let done = finish(waiter);
    assert_eq!((done.code, done.out.as_str()), (0, "ran\n"), "{done:?}");
}

#[test]
fn run_outlives_a_restart_of_the_server_and_ends_with_a_break() {
    let mut server = Running::start();
    let child = server.command(&["run", "--key", "k", "--ttl", "6s", "--", "sleep", "60"]).spawn().unwrap();
    until("it holds", || server.cli(&["get", "k", "--json"]).out.contains("\"held\""));
    server.stop();
    thread::sleep(Duration::from_millis(500));
    server.start_again();
    let renewals = || server.cli(&["get", "k", "--json"]).json()["lease"]["renewals"].as_u64().unwrap();
    until("it is renewed by the new server", || renewals() >= 2);
    assert_eq!(server.cli(&["break", "k", "--reason", "enough", "--grace", "30s"]).code, 0);
    let done = finish(child);
    assert_eq!(done.code, 75, "{done:?}");
    assert!(done.err.contains("breaks"), "{done:?}");
    assert_eq!(server.cli(&["get", "k", "--json"]).json()["lease"]["status"], "released");
}
