//! pgbouncer in transaction mode, in front of a PostgreSQL server: as Debian sets it up, but for where it is and how small.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::{Kept, User, end_of, find, free_port, until_listening};

/// Connections to the server for each database and user: fewer than its clients have.
const POOL: u32 = 5;

/// A pooler that can be killed and started again.
pub(crate) struct Pooler {
    program: PathBuf,
    folder: TempDir,
    user: Option<User>,
    /// Where it listens, on this machine.
    port: u16,
    running: Option<Kept>,
}

impl Pooler {
    /// Starts one in front of the server on this host and port.
    pub(crate) fn start(host: &str, port: u16) -> Self {
        let program =
            find("pgbouncer").expect("pgbouncer is missing, behind which this test works: apt install pgbouncer");
        let (folder, user, own) = (tempfile::tempdir().unwrap(), User::instead_of_root(), free_port());
        let users = folder.path().join("users");
        fs::write(&users, "\"postgres\" \"\"\n").unwrap();
        // Whatever is not named is as pgbouncer has it by default: `server_reset_query`, timeouts, and that startup
        // parameters which it does not know are refused.
        let settings = format!(
            "[databases]\n* = host={host} port={port}\n\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {own}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {POOL}\nmax_client_conn = 1000\n",
            users.display()
        );
        fs::write(folder.path().join("pgbouncer.ini"), settings).unwrap();
        if let Some(user) = user {
            user.own(folder.path());
        }
        let mut pooler = Self { program, folder, user, port: own, running: None };
        pooler.go_on();
        pooler
    }

    /// Where it listens, on this machine.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Kills it: all connections through it are cut, and there are no new ones.
    pub(crate) fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill();
        }
    }

    /// Starts it again, where it was.
    pub(crate) fn go_on(&mut self) {
        let (folder, log) = (self.folder.path(), self.folder.path().join("log"));
        let mut running = Kept::run(&self.program, &["pgbouncer.ini"], folder, self.user, &log);
        let listens = until_listening(self.port, || running.has_ended());
        assert!(listens, "pgbouncer does not listen:\n{}", end_of(&log));
        self.running = Some(running);
    }
}
