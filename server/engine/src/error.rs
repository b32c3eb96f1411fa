//! What can go wrong below the rules.

use std::path::PathBuf;

use domain::Span;
use domain::lease::Refusal;

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Fault {
    /// By the rules.
    #[error("refused: {}", .0.code())]
    Refused(Refusal),
    /// The idempotency key was used for another request.
    #[error("the idempotency key was used for another request")]
    IdempotencyMismatch,
    /// The original of this request still waits in a queue.
    #[error("the original request is still waiting")]
    IdempotencyInProgress,
    /// Something named does not exist: an API token, a sign-in link.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// The caller's token or session has ended while the caller waited.
    #[error("the caller's token or session has ended")]
    NotGoodAnyMore,
    /// Too much is under way.
    #[error("too much is under way")]
    Overloaded {
        /// When to try again.
        retry_after: Span,
    },
    /// The database does not answer. Whether the command was carried out is not known.
    #[error("the database is unavailable")]
    Unavailable {
        /// When to try again.
        retry_after: Span,
    },
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
}

impl Fault {
    pub(crate) const OVERLOADED: Self = Self::Overloaded { retry_after: Span::millis(1_000) };
    pub(crate) const UNAVAILABLE: Self = Self::Unavailable { retry_after: Span::millis(1_000) };
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process serves this database.
    #[error("{} is served by another process: one process at a time may open it", .0.display())]
    InUse(PathBuf),
    /// A newer version has changed it in a way that this one cannot live with.
    #[error(
        "{database} was changed by a newer version of Job Leases: it takes one that knows its schema up to {oldest} at least \
         (it is at {found}), and this one knows up to {known}. Use the newer version, or restore a backup made by this one"
    )]
    Newer {
        /// Which: the path of a file, or the shared database.
        database: String,
        /// Its schema.
        found: i64,
        /// The oldest schema whose programs may use it.
        oldest: i64,
        /// The newest schema that this version knows.
        known: i64,
    },
    /// It is of an older version.
    #[error(
        "the database is of an older version of Job Leases (schema {found}, that of this one is {known}): use that version, or let a \
         node of this one bring it up to date at its start"
    )]
    Older {
        /// Its schema.
        found: i64,
        /// The newest schema that this version knows.
        known: i64,
    },
    /// It is something else.
    #[error("{} is no database of Job Leases", .0.display())]
    NotOurs(PathBuf),
    /// To bring it up to date would be more than nodes of an older version can live with, which are at work.
    #[error(
        "nodes of an older version are at work on the database, which cannot live with its next schema ({oldest}): stop them \
         first (nodes {})",
        list(nodes)
    )]
    OlderNodes {
        /// The oldest schema whose programs could use it then.
        oldest: i64,
        /// The numbers of the nodes.
        nodes: Vec<i64>,
    },
    /// The read models have followed lines that the timeline does not hold: its end was cut off, or an older copy was put
    /// in its place.
    #[error("lines are missing from {}: {} has what they said up to line {applied}, which is not there or another. Restore the database; or, if an older copy was put back on purpose, delete {} (leases granted since that copy are then forgotten)", path.display(), views.display(), views.display())]
    LinesMissing {
        /// The database.
        path: PathBuf,
        /// The file of the read models.
        views: PathBuf,
        /// How far they have come.
        applied: i64,
    },
    /// The folder or one of the files cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The URL of the database cannot be used.
    #[error("cannot use this database: {0}")]
    Url(String),
    /// The migrations failed.
    #[error("cannot bring the schema up to date: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// Anything else.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn list(numbers: &[i64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    numbers.join(", ")
}

/// What the database, or its content, did wrong.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused a statement.
    #[error("the database failed: {0}")]
    Database(#[from] sqlx::Error),
    /// The read models could not be brought up to the timeline in time.
    #[error("the read models did not follow the timeline")]
    Behind,
    /// It was closed.
    #[error("the database is closed")]
    Closed,
    /// It did not answer in time.
    #[error("the database did not answer in time")]
    Silent,
    /// Another transaction did the same first; it can be tried again.
    #[error("another transaction came first")]
    Overtaken,
    /// What was remembered of a key is not so any more; nothing was done, and it can be read.
    #[error("what was remembered is not so any more")]
    Stale,
    /// It was committed with a warning: by one server, and perhaps by no other.
    #[error("the database committed, but warned: {0}")]
    Unconfirmed(String),
    /// A stored value is not what this program wrote.
    #[error("the database holds something unexpected: {0}")]
    Corrupt(String),
}

impl StoreError {
    pub(crate) fn corrupt(what: impl std::fmt::Display) -> Self {
        Self::Corrupt(what.to_string())
    }

    /// Whether the database does not answer at all, so that nothing else would succeed either.
    pub(crate) fn is_away(&self) -> bool {
        use sqlx::Error;
        match self {
            Self::Silent | Self::Closed => true,
            Self::Database(error) => match error {
                Error::Io(_) | Error::Tls(_) | Error::Protocol(_) | Error::PoolTimedOut | Error::PoolClosed => true,
                // PostgreSQL: no connection, it shuts down or starts, or it is a replica that cannot be written.
                Error::Database(error) => error.code().is_some_and(|code| {
                    code.starts_with("08")
                        || matches!(&*code, "57P01" | "57P02" | "57P03" | "25006" | "25P03" | "53300")
                }),
                _ => false,
            },
            Self::Behind | Self::Overtaken | Self::Stale | Self::Unconfirmed(_) | Self::Corrupt(_) => false,
        }
    }

    /// Whether the connection is gone.
    pub(crate) fn is_cut(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Io(_)) => true,
            // PostgreSQL: ended by its administrator, or by a timeout.
            Self::Database(sqlx::Error::Database(error)) => {
                error.code().is_some_and(|code| matches!(&*code, "57P01" | "57P02" | "25P03"))
            }
            _ => false,
        }
    }

    /// Whether a lock was not to be had in time.
    pub(crate) fn is_held_up(&self) -> bool {
        match self {
            Self::Database(sqlx::Error::Database(error)) => error.code().is_some_and(|code| code == "55P03"),
            _ => false,
        }
    }

    /// Whether another transaction was in the way, so that it may succeed when it is tried again.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Overtaken => true,
            // PostgreSQL: not serialisable, deadlock, and a key that somebody else inserted.
            Self::Database(sqlx::Error::Database(error)) => {
                error.code().is_some_and(|code| matches!(&*code, "40001" | "40P01" | "23505"))
            }
            _ => false,
        }
    }
}
