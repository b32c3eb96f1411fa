//! What the servers of a run work on, and what can be done to it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use sqlx::{Connection as _, Row as _, SqliteConnection};
use tokio::time::sleep;

use super::{Database, Line};
use crate::cluster::Cluster;
use crate::disk::Disk;
use crate::failover::cluster as failover;
use crate::postgres::Postgres;
use crate::process::{FILE, Place, ServerProcess};
use crate::programs::Pooler;

/// What the disk of a file holds, in megabytes: the log of the read models alone may grow to 64.
const DISK: u32 = 160;

/// The ground, with the places from which it is served.
pub(super) enum Ground {
    /// A file, and one server.
    File { place: [Place; 1], disk: Disk },
    /// A database on a server of its own, and two nodes: one reaches it directly, the other by way of a pooler.
    Shared(Box<Shared>),
    /// A database on two servers, of which one takes over from the other, and two nodes.
    Replicated { places: [Place; 2], servers: Box<failover::Cluster> },
}

/// A database that two nodes share.
pub(super) struct Shared {
    places: [Place; 2],
    // In the order in which they end.
    pub(super) database: Postgres,
    pub(super) pooler: Pooler,
    pub(super) cluster: Cluster,
}

/// A server whose flushes take their time until this is dropped.
pub(super) struct Slow {
    tracer: Child,
    log: std::path::PathBuf,
}

impl Ground {
    pub(super) async fn new(database: Database, chance: &mut StdRng) -> Self {
        if database == Database::Sqlite {
            let disk = Disk::new(DISK, None);
            return Self::File { place: [Place::on_disk(&disk)], disk };
        }
        let cluster = Cluster::new(chance.random_bool(0.5)).await;
        let mut database = Postgres::on(cluster.options()).await;
        database.leave();
        let pooler = Pooler::start("127.0.0.1", cluster.port());
        let mut direct = Place::on(database.url());
        let mut pooled = Place::on(database.url_by_pooler(pooler.port()));
        // One connection for all that a node does, or as many as it likes.
        let few = chance.random_range(0..2);
        for (n, place) in [&mut direct, &mut pooled].into_iter().enumerate() {
            place.arguments = vec!["--connections".to_owned(), if n == few { "1" } else { "12" }.to_owned()];
        }
        // It listens for hints round the pooler, or looks by itself.
        if chance.random_bool(0.5) {
            pooled.arguments.extend(["--direct-database".to_owned(), database.url()]);
        }
        Self::Shared(Box::new(Shared { places: [direct, pooled], database, pooler, cluster }))
    }

    /// Two servers of a database, of which one takes over from the other.
    pub(super) async fn replicated() -> Self {
        let servers = Box::new(failover::Cluster::start().await);
        Self::Replicated { places: [0, 1].map(|node| Place::on(servers.url(node))), servers }
    }

    pub(super) const fn database(&self) -> Database {
        match self {
            Self::File { .. } => Database::Sqlite,
            Self::Shared(_) | Self::Replicated { .. } => Database::Postgres,
        }
    }

    pub(super) fn places(&self) -> &[Place] {
        match self {
            Self::File { place, .. } => place,
            Self::Shared(shared) => &shared.places,
            Self::Replicated { places, .. } => places,
        }
    }

    pub(super) fn disk(&self) -> &Disk {
        match self {
            Self::File { disk, .. } => disk,
            Self::Shared(shared) => shared.cluster.disk(),
            Self::Replicated { .. } => unreachable!("no plan fills the disks of two servers"),
        }
    }

    /// How it is set up, for people.
    pub(super) fn describe(&self) -> String {
        let arguments = self.places().iter().map(|place| place.arguments.join(" "));
        arguments.collect::<Vec<_>>().join("; ").replace("postgres://postgres@", "")
    }

    /// Waits until all that was acknowledged is in the timeline, while there are servers.
    pub(super) async fn come_to_rest(&self) {
        match self {
            Self::File { .. } => {}
            Self::Shared(shared) => shared.database.sequenced().await,
            Self::Replicated { servers, .. } => servers.database().sequenced().await,
        }
    }

    /// The timeline as it stands in the database of servers that were killed.
    pub(super) async fn timeline(&self) -> Vec<Line> {
        match self {
            Self::File { disk, .. } => read_timeline(&disk.path().join(FILE)).await,
            Self::Shared(shared) => shared.database.timeline().await,
            Self::Replicated { servers, .. } => servers.database().timeline().await,
        }
    }

    /// Keeps everything for whoever looks into a failure; where it is, and what was logged.
    pub(super) fn keep(self) -> String {
        let keep = |place: Place| {
            let log = place.log();
            format!("files: {}\n{log}\n", place.keep().display())
        };
        match self {
            Self::File { place: [place], disk } => {
                disk.copy_to(place.path());
                keep(place)
            }
            Self::Shared(shared) => {
                let Shared { places, cluster, .. } = *shared;
                let places = places.map(keep).concat();
                format!("database: {}\n{places}", cluster.keep())
            }
            Self::Replicated { places, servers } => servers.keep() + &places.map(keep).concat(),
        }
    }
}

impl Slow {
    /// Lets every flush of a server take so much longer, from now on.
    pub(super) fn down(server: &ServerProcess, place: &Place, delay: Duration) -> Self {
        let log = place.path().join("flushes");
        // Delayed before it is done: else what is flushed would be there long before the server knows.
        let delay = format!("inject=fsync,fdatasync:delay_enter={}", delay.as_micros());
        let mut strace = Command::new("strace");
        strace.args(["-f", "-q", "-e", "trace=fsync,fdatasync", "-e", &delay]).args(["-p", &server.id().to_string()]);
        strace.arg("-o").arg(&log).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let tracer = strace.spawn().expect("strace is missing, which slows down flushes: apt install strace");
        Self { tracer, log }
    }

    /// Lets it go; how many flushes took longer.
    pub(super) async fn up(mut self) -> u64 {
        let pid = rustix::process::Pid::from_child(&self.tracer);
        // It lets go of the server, and ends.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        while self.tracer.try_wait().unwrap().is_none() {
            sleep(Duration::from_millis(5)).await;
        }
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().filter(|line| line.contains("DELAYED")).count() as u64
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        // It has ended, unless the run failed.
        let _ = self.tracer.kill();
        let _ = self.tracer.wait();
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
