//! Flushed before acknowledged: the system calls of the server tell what `kill -9` cannot, since the kernel keeps what a
//! killed process wrote.

mod trace;

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::sleep;

use self::trace::Trace;
use crate::history::Call;
use crate::process::{Place, ServerProcess};
use crate::wire::{Connection, post};

/// How many changes of each kind are looked at.
const CHANGES: usize = 8;

/// Tells the test binary to play a server with this synchronous mode.
const PLAY: &str = "FAULTS_PLAY_A_SERVER";
const PLAYER: &str = "durability::a_server_that_answers_before_it_has_flushed_is_found_out";

/// What runs a program under the tracer, which writes to `file`. The tracer is not the program's parent, so that whoever
/// starts it has the program itself to kill.
fn tracer(file: &Path) -> Vec<String> {
    let found = Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(
        found.is_ok_and(|status| status.success()),
        "strace is missing, which counts the flushes: apt install strace"
    );
    let calls = "trace=fsync,fdatasync,write,writev,pwrite64,pwritev,sendto,sendmsg";
    let words = ["strace", "-D", "-f", "-q", "-y", "-s", "8192", "-e", calls, "-o", file.to_str().unwrap()];
    words.map(str::to_owned).into()
}

/// The name of a request, found in the bytes of its line and of its answer.
fn mark(number: usize) -> String {
    format!("change-{number:05}")
}

async fn ask(connection: &mut Connection, call: Call, number: usize, body: &Value) -> Value {
    connection.send(&post(call.path(), body, &mark(number), None)).await.unwrap();
    let answer = connection.receive().await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

/// Ends the process and reads what the tracer saw of it.
async fn trace_of(server: ServerProcess, file: &Path) -> Trace {
    let id = server.id();
    server.kill().await;
    for _ in 0..600 {
        let text = String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned();
        let is_whole = |line: &str| line.starts_with(&id.to_string()) && line.contains("+++ killed by SIGKILL");
        if text.lines().any(is_whole) {
            return Trace::read(&text);
        }
        sleep(Duration::from_millis(100)).await;
    }
    let text = std::fs::read_to_string(file).unwrap_or_default();
    panic!("strace did not see {id} to its end; may processes be traced here?\n{}", &text[..text.len().min(2_000)]);
}

#[tokio::test]
async fn an_acknowledged_change_was_flushed_first() {
    let mut place = Place::new();
    let file = place.path().join("trace");
    place.through = tracer(&file);
    let server = place.start().await;
    let mut connection = Connection::open(server.address).await.unwrap();
    let mut number = 0;
    for round in 0..CHANGES {
        let key = format!("k{round}");
        let request = json!({"lease_key": key, "owner": "o", "ttl_ms": 60_000});
        let lease = ask(&mut connection, Call::Acquire, number, &request).await;
        let named = json!({"lease_key": key, "lease_id": lease["lease_id"]});
        ask(&mut connection, Call::Renew, number + 1, &named).await;
        ask(&mut connection, Call::Release, number + 2, &named).await;
        number += 3;
    }
    let trace = trace_of(server, &file).await;
    let log = place.database().with_extension("db-wal");
    for number in 0..number {
        assert_eq!(trace.flushed_first(&log, &mark(number)), Ok(()), "{}", mark(number));
    }
}

/// The check of the check: a server whose database is not flushed at each commit is found out, one that is passes.
#[tokio::test]
async fn a_server_that_answers_before_it_has_flushed_is_found_out() {
    if let Ok(mode) = env::var(PLAY) {
        play_a_server(&mode).await;
    }
    for (mode, is_flushed) in [("full", true), ("normal", false), ("off", false)] {
        let place = Place::new();
        let file = place.path().join("trace");
        let words = tracer(&file);
        let mut command = tokio::process::Command::new(&words[0]);
        command.args(&words[1..]).arg(env::current_exe().unwrap()).args(["--exact", PLAYER, "--nocapture"]);
        command.env(PLAY, format!("{mode}:{}", place.database().display()));
        let server = place.listening(command).await.unwrap();
        let mut connection = Connection::open(server.address).await.unwrap();
        for number in 0..CHANGES {
            ask(&mut connection, Call::Acquire, number, &json!({})).await;
        }
        let trace = trace_of(server, &file).await;
        let log = place.database().with_extension("db-wal");
        for number in 0..CHANGES {
            let found = trace.flushed_first(&log, &mark(number));
            assert_eq!(found.is_ok(), is_flushed, "synchronous={mode}, {}: {found:?}", mark(number));
        }
    }
}

/// Answers each request once its name is in the database, in that mode; until it is killed.
async fn play_a_server(mode: &str) -> ! {
    let (mode, path) = mode.split_once(':').unwrap();
    let synchronous = match mode {
        "full" => SqliteSynchronous::Full,
        "normal" => SqliteSynchronous::Normal,
        _ => SqliteSynchronous::Off,
    };
    let options =
        SqliteConnectOptions::new().filename(path).create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
    let mut database: SqliteConnection = options.synchronous(synchronous).connect().await.unwrap();
    sqlx::query("CREATE TABLE timeline (body TEXT)").execute(&mut database).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("\nlistens on http://{}", listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut bytes = vec![0; 4_096];
    loop {
        // Each request comes in one piece, since the next is sent only after the answer.
        let length = stream.read(&mut bytes).await.unwrap();
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let Some(id) = text.lines().find_map(|line| line.strip_prefix("X-Request-Id: ")) else { continue };
        sqlx::query("INSERT INTO timeline (body) VALUES (?1)").bind(id).execute(&mut database).await.unwrap();
        let answer = format!("HTTP/1.1 200 OK\r\nx-request-id: {id}\r\ncontent-length: 2\r\n\r\n{{}}");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}
