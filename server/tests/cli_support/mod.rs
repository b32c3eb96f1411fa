//! A server of leases as the tests want it: it answers, waits, lies silent, loses answers or is gone, and remembers
//! what it was asked. It has one key.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// What it does with those who come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Answers.
    Here,
    /// Takes connections and never says a word.
    Silent,
    /// Does not listen.
    Away,
}

/// How it answers, and what happened.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) mode: Mode,
    /// How long each answer is on its way.
    pub(crate) delay: Duration,
    /// How long an acquire that waits stands in the queue before it is granted.
    pub(crate) queue: Duration,
    /// Acquires are refused as `held`; those that wait, after a moment, as `wait_timeout`.
    pub(crate) taken: bool,
    /// The lease is over.
    pub(crate) lost: bool,
    /// The lease is being broken, and ends then (seconds since 1970).
    pub(crate) breaking_until: Option<f64>,
    /// Whether holders can have it tell them of a break.
    pub(crate) attends: bool,
    /// So many answers to acquires are lost on their way.
    pub(crate) lose_answers: u32,
    /// When the lease ends, in seconds since 1970.
    pub(crate) expires_at: f64,
    pub(crate) calls: Vec<Call>,
    grants: HashMap<String, u64>,
    next_token: u64,
    ttl: f64,
}

/// What it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) operation: String,
    pub(crate) body: Value,
    pub(crate) idempotency_key: Option<String>,
    /// When, in seconds since 1970.
    pub(crate) at: f64,
}

pub(crate) struct Fake {
    port: u16,
    state: Arc<Mutex<State>>,
}

/// Seconds since 1970.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

impl Fake {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State {
            mode: Mode::Here,
            delay: Duration::ZERO,
            queue: Duration::ZERO,
            taken: false,
            lost: false,
            breaking_until: None,
            attends: true,
            lose_answers: 0,
            expires_at: 0.0,
            calls: Vec::new(),
            grants: HashMap::new(),
            next_token: 41,
            ttl: 0.0,
        }));
        let shared = Arc::clone(&state);
        thread::spawn(move || listen(port, listener, &shared));
        Self { port, state }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        self.state().mode = mode;
        if mode == Mode::Away {
            // Until nobody listens: connections that come now must be refused.
            while TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// The operations it was asked for, in order.
    pub(crate) fn operations(&self) -> Vec<String> {
        self.state().calls.iter().map(|call| call.operation.clone()).collect()
    }

    pub(crate) fn count(&self, operation: &str) -> usize {
        self.operations().iter().filter(|name| *name == operation).count()
    }

    /// A command line that speaks to it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.program(env!("CARGO_BIN_EXE_job-leases"), arguments)
    }

    /// A program in whose environment it is the server.
    pub(crate) fn program(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("JOB_LEASE") {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .env("JOB_LEASES_URL", format!("http://127.0.0.1:{}", self.port))
            .env("JOB_LEASES_TOKEN", "jl_test")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// `job-leases run` of a shell script.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> Child {
        let arguments = [&["run", "--key", "nightly"], options, &["--", "sh", "-c", script]].concat();
        self.command(&arguments).spawn().unwrap()
    }
}

/// The answer that an ended program gives.
pub(crate) fn finish(child: Child) -> (i32, String, String) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// Waits until `condition` holds; the tests' own limit is generous, since nothing is proved by speed.
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if condition() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("never happened: {what}");
}

fn listen(port: u16, listener: TcpListener, state: &Arc<Mutex<State>>) {
    listener.set_nonblocking(true).unwrap();
    let mut listener = Some(listener);
    loop {
        let away = state.lock().unwrap().mode == Mode::Away;
        if away {
            listener = None;
        } else if listener.is_none() {
            listener = TcpListener::bind(("127.0.0.1", port)).ok();
            if let Some(listener) = &listener {
                listener.set_nonblocking(true).unwrap();
            }
        }
        match listener.as_ref().map(TcpListener::accept) {
            Some(Ok((connection, _))) => {
                let state = Arc::clone(state);
                thread::spawn(move || {
                    // A caller that has gone is no failure of the server's.
                    let _ = serve(connection, &state);
                });
            }
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// One request; the connection ends with the answer.
fn serve(connection: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    connection.set_nonblocking(false)?;
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_owned());
    }
    let header = |name: &str| {
        head.iter().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let Some(path) = head.first().and_then(|line| line.split(' ').nth(1)).map(str::to_owned) else { return Ok(()) };
    let call = Call {
        operation: path.rsplit('/').next().unwrap_or_default().to_owned(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
        idempotency_key: header("idempotency-key"),
        at: now(),
    };
    let (mode, delay) = {
        let state = state.lock().unwrap();
        (state.mode, state.delay)
    };
    if mode == Mode::Silent {
        // As a network that swallows everything: until the caller has had enough.
        let _ = reader.read(&mut [0]);
        return Ok(());
    }
    let waits = call.operation == "acquire" && call.body.get("wait_ms").is_some();
    if waits {
        let queue = state.lock().unwrap().queue;
        thread::sleep(queue);
    }
    if call.operation == "attend" {
        let until = Instant::now() + Duration::from_millis(call.body["wait_ms"].as_u64().unwrap_or(0));
        while Instant::now() < until && state.lock().unwrap().is_calm() {
            thread::sleep(Duration::from_millis(5));
        }
    }
    let (status, answer, is_lost) = state.lock().unwrap().answer(call);
    thread::sleep(delay);
    if is_lost {
        return Ok(());
    }
    let text = answer.to_string();
    write!(
        &connection,
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )
}

impl State {
    /// Nothing has become of the lease that its holder should hear of.
    fn is_calm(&self) -> bool {
        self.attends && self.mode == Mode::Here && !self.lost && self.breaking_until.is_none()
    }

    fn answer(&mut self, call: Call) -> (u16, Value, bool) {
        if call.operation == "attend" {
            return self.attend();
        }
        self.calls.push(call.clone());
        let refusal = |status, code: &str, details: Value| {
            (status, json!({ "code": code, "message": code, "details": details, "request_id": "r" }), false)
        };
        match call.operation.as_str() {
            "acquire" if self.taken => {
                let busy = json!({ "owner": "somebody", "retry_after_ms": 50 });
                let waits = call.body.get("wait_ms").is_some();
                refusal(409, if waits { "wait_timeout" } else { "held" }, busy)
            }
            "acquire" => {
                self.ttl = call.body["ttl_ms"].as_f64().unwrap() / 1_000.0;
                let key = call.idempotency_key.unwrap_or_default();
                let token = *self.grants.entry(key).or_insert_with(|| {
                    self.next_token += 1;
                    self.expires_at = now() + self.ttl;
                    self.next_token
                });
                let is_lost = self.lose_answers > 0;
                self.lose_answers = self.lose_answers.saturating_sub(1);
                (200, self.lease(token), is_lost)
            }
            "renew" | "release" if self.lost => refusal(409, "lease_lost", json!({ "reason": "expired" })),
            "renew" if now() >= self.expires_at => refusal(409, "lease_lost", json!({ "reason": "expired" })),
            "renew" => {
                self.expires_at = now() + self.ttl;
                if let Some(end) = self.breaking_until {
                    self.expires_at = self.expires_at.min(end);
                }
                (200, self.lease(self.next_token), false)
            }
            "release" => {
                let mut lease = self.lease(self.next_token);
                lease["status"] = json!("released");
                lease["outcome"] = json!("released");
                (200, lease, false)
            }
            _ => refusal(404, "not_found", json!({})),
        }
    }

    fn attend(&self) -> (u16, Value, bool) {
        if !self.attends {
            return (404, json!({ "code": "not_found", "message": "", "request_id": "r" }), false);
        }
        let lease = if self.lost { Value::Null } else { self.lease(self.next_token) };
        let key = json!({
            "lease_key": "nightly",
            "status": "held",
            "lease": lease,
            "cooling_until": null,
            "quarantine": null,
            "queue_length": 0,
            "server_time": "2026-01-01T00:00:00.000000Z",
        });
        (200, key, false)
    }

    fn lease(&self, token: u64) -> Value {
        let remaining = ((self.expires_at - now()) * 1_000.0).floor().max(0.0);
        json!({
            "lease_id": domain::lease::LeaseId::from(domain::lease::FencingToken::new(token).unwrap()),
            "lease_key": "nightly",
            "job_key": null,
            "owner": "tester",
            "status": if self.breaking_until.is_some() { "breaking" } else { "held" },
            "fencing_token": token,
            "acquired_at": "2026-01-01T00:00:00.000000Z",
            "expires_at": "2026-01-01T00:00:30.000000Z",
            "updated_at": "2026-01-01T00:00:00.000000Z",
            "ttl_remaining_ms": remaining as u64,
            "server_time": "2026-01-01T00:00:00.000000Z",
            "renewals": 0,
            "max_hold_until": null,
            "subjects": [],
            "metadata": {},
        })
    }
}
