//! The server as a process of its own, which can be killed, stopped and lied to about the time of day.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use crate::disk::Disk;

/// The administrator's token.
pub(crate) const TOKEN: &str = "jl_faultsfaultsfaultsfaultsfaultsfaultsfault00";

/// The name of a database's file.
pub(crate) const FILE: &str = "leases.db";

/// How long anything may take before the test gives up; nothing is proved by speed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Tests in which many processes work, or seconds count, come one at a time.
pub(crate) static IN_TURN: Mutex<()> = Mutex::const_new(());

/// Where a server lives from start to start: which database it serves, its log, and what its wall clock shows.
pub(crate) struct Place {
    folder: TempDir,
    /// The database, as it is named on the command line.
    url: String,
    /// The library that fakes the wall clock, if it is to be faked.
    faketime: Option<PathBuf>,
    /// What runs the server, if it is not run by itself: a tracer and its arguments.
    pub(crate) through: Vec<String>,
    /// What else the server is told.
    pub(crate) arguments: Vec<String>,
}

/// A server that listens.
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Place {
    /// With a SQLite file of its own.
    pub(crate) fn new() -> Self {
        let mut place = Self {
            folder: tempfile::tempdir().unwrap(),
            url: String::new(),
            faketime: None,
            through: Vec::new(),
            arguments: Vec::new(),
        };
        place.url = format!("sqlite:{}", place.database().display());
        place
    }

    /// A place where the wall clock can be moved.
    pub(crate) fn with_movable_wall_clock() -> Self {
        let mut place = Self::new();
        place.faketime = Some(faketime());
        place.move_wall_clock(0);
        place
    }

    /// The same, with its file on this disk.
    pub(crate) fn on_disk(disk: &Disk) -> Self {
        Self { url: format!("sqlite:{}", disk.path().join(FILE).display()), ..Self::with_movable_wall_clock() }
    }

    /// One for a node of a shared database, where the wall clock can be moved.
    pub(crate) fn on(url: String) -> Self {
        Self { url, ..Self::with_movable_wall_clock() }
    }

    /// The database, as it is named on the command line.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The SQLite file.
    pub(crate) fn database(&self) -> PathBuf {
        self.path().join(FILE)
    }

    /// Moves the server's wall clock to so many seconds from the true one, from now on.
    pub(crate) fn move_wall_clock(&self, seconds: i64) {
        let (file, new) = (self.path().join("faketime.rc"), self.path().join("faketime.new"));
        fs::write(&new, format!("{seconds:+}\n")).unwrap();
        fs::rename(new, file).unwrap();
    }

    /// Starts the server on this database and waits until it listens.
    pub(crate) async fn start(&self) -> ServerProcess {
        self.try_start().await.unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// The same; if it does not start, what it said.
    pub(crate) async fn try_start(&self) -> Result<ServerProcess, String> {
        self.listening(self.command()).await
    }

    /// Starts the server and kills it after this time, wherever it is by then; whether it listened.
    pub(crate) async fn start_and_kill(&self, time: Duration) -> bool {
        let mut child = self.spawn(self.command());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let listens = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if address(&line).is_some() {
                    return;
                }
            }
            std::future::pending::<()>().await;
        };
        let (dies, mut listens) = (sleep(time), std::pin::pin!(listens));
        let mut dies = std::pin::pin!(dies);
        let has_listened = tokio::select! {
            biased;
            () = &mut dies => false,
            () = &mut listens => { dies.await; true }
        };
        child.kill().await.unwrap();
        has_listened
    }

    fn command(&self) -> Command {
        let program = env!("CARGO_BIN_EXE_job-leases");
        let words: Vec<&str> = self.through.iter().map(String::as_str).chain([program]).collect();
        let mut command = Command::new(words[0]);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("JOB_LEASES_")) {
            command.env_remove(name);
        }
        command
            .args(&words[1..])
            .args(["serve", "--listen", "127.0.0.1:0", "--database"])
            .arg(&self.url)
            .args(&self.arguments)
            .env("JOB_LEASES_BOOTSTRAP_TOKEN", TOKEN)
            .env("JOB_LEASES_LOG", "warn");
        if let Some(library) = &self.faketime {
            command
                .env("LD_PRELOAD", library)
                .env("FAKETIME_TIMESTAMP_FILE", self.path().join("faketime.rc"))
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                .env("NO_FAKE_STAT", "1");
        }
        command
    }

    fn spawn(&self, mut command: Command) -> Child {
        let log = File::options().create(true).append(true).open(self.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        command.spawn().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"))
    }

    /// Runs a program and waits until it says on which address it listens.
    pub(crate) async fn listening(&self, command: Command) -> Result<ServerProcess, String> {
        let mut child = self.spawn(command);
        // The program itself tells the port, so whoever listens there is this very child.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        loop {
            let line = match timeout(PATIENCE, lines.next_line()).await {
                Ok(Ok(Some(line))) => line,
                other => return Err(format!("the server did not start: {other:?}\n{}", self.log())),
            };
            if let Some(address) = address(&line) {
                return Ok(ServerProcess { child, address });
            }
        }
    }

    /// The end of what the server logged.
    pub(crate) fn log(&self) -> String {
        let text = fs::read_to_string(self.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Keeps the files, for whoever looks into a failure.
    pub(crate) fn keep(self) -> PathBuf {
        self.folder.keep()
    }
}

impl ServerProcess {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.id()).unwrap()), signal).unwrap();
    }

    /// The process's id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id().expect("the server ended by itself")
    }

    /// Stops it in the middle of whatever it does.
    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        self.child.wait().await.unwrap()
    }

    /// Kills it, paused or not: no handler of its own runs.
    pub(crate) async fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.child.wait().await.unwrap();
    }
}

/// Where a server listens, if this line of its output tells so.
fn address(line: &str) -> Option<SocketAddr> {
    line.rsplit_once("http://").and_then(|(_, address)| address.parse().ok())
}

/// The library that fakes clocks.
pub(crate) fn faketime() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let libraries = folders.flat_map(|folder| {
        // The one for programs with threads, if both are there.
        ["libfaketimeMT.so.1", "libfaketime.so.1"].map(|name| folder.path().join("faketime").join(name))
    });
    libraries
        .into_iter()
        .find(|library| library.exists())
        .expect("libfaketime is missing, with which this test moves the server's wall clock: apt install libfaketime")
}
