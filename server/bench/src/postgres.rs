//! A PostgreSQL server on a fresh folder and a free port: the same, with the same settings, for Job Leases and for what people
//! use instead.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::{Pid, Signal, getuid, kill_process};
use tokio_postgres::{Client, NoTls};

use crate::process::{self, Manner, Process, find, free_port};

/// What it is called.
pub(crate) const NAME: &str = "PostgreSQL";
/// The Debian package that brings it.
pub(crate) const PACKAGE: &str = "postgresql";

/// Everything else is as PostgreSQL has it by itself.
const SETTINGS: [&str; 3] = ["max_connections=300", "shared_buffers=512MB", "synchronous_commit=on"];

/// How long it may take to stop.
const STOP_TIME: Duration = Duration::from_secs(5);

/// A running server.
pub(crate) struct Server {
    process: Process,
    port: u16,
    data: PathBuf,
}

impl Server {
    /// Starts one in this folder; `None` if its programs are not on this machine. See [`Manner`].
    pub(crate) fn start(folder: &Path, manner: Manner) -> Result<Option<Self>> {
        let (Some(initdb), Some(postgres)) = (find("initdb"), find("postgres")) else { return Ok(None) };
        let (port, log, data) = (free_port()?.port(), folder.join("log"), folder.join("data"));
        // It refuses to run as root: then it runs as whoever its package made for it.
        let user = if getuid().is_root() { account("postgres") } else { None };
        let as_user = |mut command: Command| {
            command.current_dir(folder);
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            command
        };
        if let Some((uid, gid)) = user {
            chown(folder, Some(uid), Some(gid))?;
        }
        let mut init = as_user(Command::new(initdb));
        init.args(["--auth=trust", "--username=bench", "--encoding=UTF8", "--locale=C", "--pgdata"]).arg(&data);
        let made = init.output()?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let mut command = as_user(process::program(&postgres, manner));
        command.arg("-D").arg(&data).args(["-h", "127.0.0.1", "-p", &port.to_string(), "-k", ""]);
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        let mut process = manner.start_database(command, &log)?;
        process.until(&log, || {
            let text = fs::read_to_string(&log).ok()?;
            text.contains("ready to accept connections").then_some(())
        })?;
        Ok(Some(Self { process, port, data }))
    }

    pub(crate) const fn process(&self) -> &Process {
        &self.process
    }

    /// Where its database is.
    pub(crate) fn url(&self) -> String {
        format!("postgres://bench@127.0.0.1:{}/postgres", self.port)
    }

    /// Connects to it.
    pub(crate) async fn connect(&self) -> Result<Client> {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await?;
        // Ends with the client.
        tokio::spawn(connection);
        Ok(client)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // If it were killed, the system would keep the memory that its processes share.
        let told = fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        let id = told.lines().next().and_then(|line| line.trim().parse().ok()).and_then(Pid::from_raw);
        if let Some(id) = id
            && kill_process(id, Signal::QUIT).is_ok()
        {
            self.process.wait(STOP_TIME);
        }
    }
}

/// The numbers of a user of this machine.
fn account(name: &str) -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == name)?;
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}
