//! A history: all that clients asked and were told, when, and what the timeline says of it.

mod clients;
mod failover;
mod faults;
mod ground;
mod hangups;
mod plan;
mod run;
mod streams;
mod world;

use std::fmt::Write;

use serde_json::Value;

/// Microseconds on the clients' common monotonic clock, since the start.
pub(crate) type Mono = i64;
/// Microseconds of server time.
pub(crate) type Server = i64;

/// Which database a history is of: it decides what can be known of time and of queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Database {
    /// A file, served by one process.
    #[default]
    Sqlite,
    /// Shared by nodes.
    Postgres,
}

/// What was recorded of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) database: Database,
    /// In the order in which they were sent.
    pub(crate) operations: Vec<Operation>,
    /// The timeline, as it was found in the database at the end.
    pub(crate) lines: Vec<Line>,
    pub(crate) streams: Vec<Stream>,
    /// The processes that served it, in the order of their starts.
    pub(crate) lives: Vec<Life>,
    /// From when to when all of them surely did nothing.
    pub(crate) away: Vec<(Mono, Mono)>,
    /// From when to when something stood between nodes and their database, or may have.
    pub(crate) hindered: Vec<(Mono, Mono)>,
    /// When the database's clock went ahead, for good.
    pub(crate) jumps: Vec<Jump>,
    /// From when to when the database's clock was behind what it had told.
    pub(crate) behind: Vec<(Mono, Mono)>,
    /// At the end all leases had run out and every key was read: each lease must have its end.
    pub(crate) is_settled: bool,
}

/// A jump ahead of the database's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jump {
    /// Between these moments it happened.
    pub(crate) from: Mono,
    pub(crate) to: Mono,
    /// By so many microseconds.
    pub(crate) by: i64,
}

/// One process of the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    /// Just before it was started.
    pub(crate) started: Mono,
    /// When it listened.
    pub(crate) up: Mono,
    /// From when to when it surely did nothing: it was paused or, for good, dead.
    pub(crate) gone: Vec<(Mono, Mono)>,
}

/// A request and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// The request's id: events carry it.
    pub(crate) id: String,
    pub(crate) client: usize,
    /// Which process was asked.
    pub(crate) process: usize,
    pub(crate) call: Call,
    pub(crate) body: Value,
    pub(crate) idempotency_key: Option<String>,
    /// Just before the first byte was sent.
    pub(crate) sent: Mono,
    pub(crate) end: End,
}

/// What became of a request.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// The whole answer was there at this time.
    Answered { at: Mono, status: u16, replayed: bool, body: Value },
    /// The caller had hung up at this time.
    HungUp { at: Mono },
    /// The connection broke; at this time it was noticed.
    Broken { at: Mono },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Acquire,
    AcquireMany,
    Batch,
    Break,
    Get,
    Lift,
    List,
    Quarantine,
    Release,
    Renew,
    Transfer,
    Validate,
}

/// A line of the timeline as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) position: i64,
    pub(crate) hash: Vec<u8>,
    pub(crate) body: String,
}

/// What one follower of the event stream received, over however many connections.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) prefix: Option<String>,
    /// It asked for what comes after this position.
    pub(crate) after: i64,
    pub(crate) received: Vec<(i64, String)>,
    pub(crate) connections: usize,
}

impl Database {
    /// By how much a start may put server time ahead, in microseconds: by what the process before may have said,
    /// slewing over at most 3 seconds. Where the database tells the time it does not matter who starts.
    pub(crate) const fn ahead_at_a_start(self) -> i64 {
        match self {
            Self::Sqlite => 1_500,
            Self::Postgres => 0,
        }
    }

    /// For how long a process that is gone is taken for one that lives, in microseconds: one on a file takes all who
    /// wait at it with it.
    pub(crate) const fn unseen(self) -> i64 {
        match self {
            Self::Sqlite => 0,
            Self::Postgres => 3_000_000,
        }
    }
}

impl History {
    /// The process that was asked.
    pub(crate) fn life(&self, operation: &Operation) -> Option<&Life> {
        self.lives.get(operation.process)
    }
}

impl Life {
    /// Since when it surely did nothing any more.
    pub(crate) fn ended(&self) -> Option<Mono> {
        self.gone.last().filter(|(_, until)| *until == Mono::MAX).map(|(since, _)| *since)
    }
}

impl Call {
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Acquire => "/api/v1/leases/acquire",
            Self::AcquireMany => "/api/v1/leases/acquire-many",
            Self::Batch => "/api/v1/leases/batch",
            Self::Break => "/api/v1/leases/break",
            Self::Get => "/api/v1/leases/get",
            Self::Lift => "/api/v1/leases/lift",
            Self::List => "/api/v1/leases/list",
            Self::Quarantine => "/api/v1/leases/quarantine",
            Self::Release => "/api/v1/leases/release",
            Self::Renew => "/api/v1/leases/renew",
            Self::Transfer => "/api/v1/leases/transfer",
            Self::Validate => "/api/v1/leases/validate",
        }
    }
}

impl Operation {
    /// When the client knew what became of it.
    pub(crate) const fn over(&self) -> Mono {
        match self.end {
            End::Answered { at, .. } | End::HungUp { at } | End::Broken { at } => at,
        }
    }

    /// The answer of an operation that succeeded.
    pub(crate) const fn ok(&self) -> Option<&Value> {
        match &self.end {
            End::Answered { status: 200, body, .. } => Some(body),
            _ => None,
        }
    }

    /// The status and error of one that was refused.
    pub(crate) const fn refused(&self) -> Option<(u16, &Value)> {
        match &self.end {
            End::Answered { status, body, .. } if *status != 200 => Some((*status, body)),
            _ => None,
        }
    }

    pub(crate) const fn is_replayed(&self) -> bool {
        matches!(self.end, End::Answered { replayed: true, .. })
    }

    /// A text field of the request.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.body[field].as_str()
    }

    /// The key it is about, if it is about one.
    pub(crate) fn key(&self) -> Option<&str> {
        self.text("lease_key")
    }

    /// How long it may wait in a queue, in milliseconds.
    pub(crate) fn wait_ms(&self) -> u64 {
        self.body["wait_ms"].as_u64().unwrap_or(0)
    }

    /// One line for people.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!(
            "{} client {} at process {} at {} us: {:?} {}",
            self.id, self.client, self.process, self.sent, self.call, self.body
        );
        if let Some(key) = &self.idempotency_key {
            let _ = write!(text, " Idempotency-Key {key}");
        }
        let _ = match &self.end {
            End::Answered { at, status, replayed, body } => {
                write!(text, " -> {at} us: {status}{} {body}", if *replayed { " replayed" } else { "" })
            }
            End::HungUp { at } => write!(text, " -> {at} us: the caller hung up"),
            End::Broken { at } => write!(text, " -> {at} us: the connection broke"),
        };
        text
    }
}

/// Reads a time of the API as microseconds.
pub(crate) fn server_time(text: &Value) -> Option<Server> {
    domain::Timestamp::parse(text.as_str()?).map(domain::Timestamp::as_micros)
}
