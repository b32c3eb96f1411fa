//! A PostgreSQL server of a test's own, on a small disk: it can run out of room, stand still, flush slowly and crash.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::disk::Disk;
use crate::programs::{Kept, User, end_of, free_port, until_listening};
use crate::server::named_server;

/// What its disk holds, in megabytes: a new server takes some forty.
const DISK: u32 = 128;

/// Of the server that the environment names, since the same programs make another.
const PROGRAMS: &str = "SELECT setting FROM pg_config WHERE name = 'BINDIR'";

/// All that PostgreSQL waits before it flushes, at the most it can be told to (microseconds), whoever else is at work.
const FLUSH_SLOWLY: [&str; 2] = ["ALTER SYSTEM SET commit_delay = 100000", "ALTER SYSTEM SET commit_siblings = 0"];
const FLUSH_AS_EVER: [&str; 2] = ["ALTER SYSTEM RESET commit_delay", "ALTER SYSTEM RESET commit_siblings"];
const READ_SETTINGS: &str = "SELECT pg_reload_conf()";

/// A server that is there until this is dropped.
pub(crate) struct Cluster {
    // First, so that nothing runs on the disk when that goes.
    running: Kept,
    disk: Disk,
    folder: TempDir,
    programs: PathBuf,
    user: Option<User>,
    port: u16,
    keeps_log: bool,
}

impl Cluster {
    /// Makes one and waits until it is ready. If it does not keep pieces of its log for new use, it needs room for every new
    /// one, and crashes when there is none; else what it notices first is that tables cannot grow.
    pub(crate) async fn new(keeps_log: bool) -> Self {
        let mut named = named_server().connect().await.unwrap();
        let programs: String = sqlx::query_scalar(PROGRAMS).fetch_one(&mut named).await.unwrap();
        named.close().await.unwrap();
        let programs = PathBuf::from(programs);
        assert!(
            programs.join("initdb").is_file(),
            "PostgreSQL's programs are not in {}: this test makes a server of its own, on this machine, with those of \
             the server that was named",
            programs.display()
        );
        let (user, folder) = (User::instead_of_root(), tempfile::tempdir().unwrap());
        if let Some(user) = user {
            user.own(folder.path());
        }
        let disk = Disk::new(DISK, user);
        make(&programs, &disk, user);
        let port = free_port();
        let running = run(&programs, &disk, folder.path(), user, port, keeps_log);
        let mut cluster = Self { running, disk, folder, programs, user, port, keeps_log };
        cluster.until_ready().await.unwrap();
        cluster
    }

    /// How to connect to it, as its superuser.
    pub(crate) fn options(&self) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(self.port)
            .username("postgres")
            .database("postgres")
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) const fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Waits until it takes connections, and starts it again if it has ended, as it does when it cannot recover from a
    /// crash; whether it had.
    pub(crate) async fn until_ready(&mut self) -> Result<bool, String> {
        let mut had_ended = false;
        for _ in 0..600 {
            if self.running.has_ended() {
                had_ended = true;
                self.running =
                    run(&self.programs, &self.disk, self.folder.path(), self.user, self.port, self.keeps_log);
            }
            if let Ok(connection) = self.options().connect().await {
                // That it is not closed well is no matter here.
                let _ = connection.close().await;
                return Ok(had_ended);
            }
            sleep(Duration::from_millis(50)).await;
        }
        Err(format!("PostgreSQL takes no connections:\n{}", end_of(&self.log())))
    }

    /// How often it has crashed so far.
    pub(crate) fn crashes(&self) -> u64 {
        let text = fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(&text).lines().filter(|line| line.contains("PANIC: ")).count() as u64
    }

    /// Lets it take its time for every flush, or not.
    pub(crate) async fn flush_slowly(&self, slowly: bool) -> Result<(), sqlx::Error> {
        let mut admin = self.options().connect().await?;
        for sql in if slowly { FLUSH_SLOWLY } else { FLUSH_AS_EVER } {
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await?;
        }
        sqlx::query(READ_SETTINGS).execute(&mut admin).await?;
        admin.close().await
    }

    /// Stops all its processes in the middle of whatever they do; what lets them go on.
    pub(crate) fn freeze(&self) -> Frozen {
        let Some(first) = self.pid() else { return Frozen(Vec::new()) };
        // First the one that starts others.
        let mut stopped = vec![first];
        let _ = kill_process(first, Signal::STOP);
        let of_it = children(first);
        for &child in &of_it {
            // It may have ended by now.
            let _ = kill_process(child, Signal::STOP);
        }
        stopped.extend(of_it);
        Frozen(stopped)
    }

    fn pid(&self) -> Option<Pid> {
        let file = fs::read_to_string(data(&self.disk).join("postmaster.pid")).ok()?;
        Pid::from_raw(file.lines().next()?.trim().parse().ok()?)
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Keeps all it has, for whoever looks into a failure; where that is.
    pub(crate) fn keep(mut self) -> String {
        self.running.kill();
        self.disk.copy_to(self.folder.path());
        // What is kept is not dropped with the rest.
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap()).keep();
        format!("{} (run postgres -D data there)", folder.display())
    }
}

/// Processes that stand still until this is dropped.
pub(crate) struct Frozen(Vec<Pid>);

impl Frozen {
    /// How many they are.
    pub(crate) const fn count(&self) -> usize {
        self.0.len()
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in self.0.drain(..).rev() {
            // One that was killed meanwhile needs nothing.
            let _ = kill_process(pid, Signal::CONT);
        }
    }
}

fn data(disk: &Disk) -> PathBuf {
    disk.path().join("data")
}

/// Makes an empty one. Small pieces of log, so that it needs new ones all the time.
fn make(programs: &Path, disk: &Disk, user: Option<User>) {
    use std::os::unix::process::CommandExt as _;
    let mut initdb = Command::new(programs.join("initdb"));
    initdb.current_dir(disk.path()).arg("--pgdata").arg(data(disk));
    initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
    initdb.arg("--wal-segsize=1");
    if let Some(user) = user {
        initdb.uid(user.id).gid(user.group);
    }
    let output = initdb.output().unwrap();
    assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
}

fn run(programs: &Path, disk: &Disk, folder: &Path, user: Option<User>, port: u16, keeps_log: bool) -> Kept {
    let (data, port_text) = (data(disk), port.to_string());
    let arguments = ["-D", data.to_str().unwrap(), "-h", "127.0.0.1", "-p", &port_text, "-k", ""];
    let recycle = if keeps_log { "wal_recycle=on" } else { "wal_recycle=off" };
    let settings = ["-c", "max_connections=120", "-c", "min_wal_size=2MB", "-c", "max_wal_size=8MB", "-c", recycle];
    let mut running =
        Kept::run(&programs.join("postgres"), &[&arguments[..], &settings].concat(), folder, user, &folder.join("log"));
    until_listening(port, || running.has_ended());
    running
}

/// The processes that this one has started.
fn children(parent: Pid) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_child = |stat: &str| {
        // After the name, in parentheses: its state, and its parent.
        let (_, rest) = stat.rsplit_once(')')?;
        (rest.split_whitespace().nth(1)? == parent.as_raw_nonzero().to_string()).then_some(())
    };
    let pid = |entry: fs::DirEntry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        is_child(&stat)?;
        Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)
    };
    processes.filter_map(pid).collect()
}
