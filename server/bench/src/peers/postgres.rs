//! PostgreSQL with the statements of ShedLock's JDBC provider, on the database's own time.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use tokio_postgres::{Client, NoTls, Statement};

use super::{Peer, find, free_port};
use crate::load::{Lease, Session};
use crate::process::Process;

const TABLE: &str = "CREATE TABLE shedlock (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, \
     locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";
const TAKE: &str = "INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES ($1, \
     timezone('utc', CURRENT_TIMESTAMP) + interval '30 seconds', timezone('utc', CURRENT_TIMESTAMP), $2) \
     ON CONFLICT (name) DO UPDATE SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + interval '30 seconds', \
     locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = $2 \
     WHERE shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP)";
const GIVE: &str =
    "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) WHERE name = $1 AND locked_by = $2";
const EXTEND: &str = "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + interval '30 seconds' \
     WHERE name = $1 AND locked_by = $2 AND lock_until > timezone('utc', CURRENT_TIMESTAMP)";

pub(crate) struct Postgres {
    process: Process,
    address: SocketAddr,
}

impl Peer for Postgres {
    const NAME: &'static str = "PostgreSQL, ShedLock's statements";
    const LACKS: &'static str =
        "no fencing token, no waiting, no history: the row of a lock tells its last holder only";
    const PACKAGE: &'static str = "postgresql";
    type Session = Caller;

    async fn start(folder: &Path) -> Result<Option<Self>> {
        let (Some(initdb), Some(program)) = (find("initdb"), find("postgres")) else { return Ok(None) };
        let (address, log, data) = (free_port()?, folder.join("log"), folder.join("data"));
        // It refuses to run as root: then it runs as whoever its package made for it.
        let user = if rustix::process::getuid().is_root() { account("postgres") } else { None };
        let as_user = |mut command: Command| {
            if let Some((uid, gid)) = user {
                command.uid(uid).gid(gid);
            }
            command
        };
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(folder, Some(uid), Some(gid))?;
        }
        let mut init = as_user(Command::new(initdb));
        init.current_dir(folder)
            .args(["--auth=trust", "--username=bench", "--encoding=UTF8", "--locale=C", "--pgdata"])
            .arg(&data);
        let made = init.output()?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let mut command = as_user(Command::new(program));
        command.current_dir(folder).arg("-D").arg(&data).args([
            "-p",
            &address.port().to_string(),
            "-h",
            "127.0.0.1",
            "-k",
            "",
        ]);
        command.args(["-c", "max_connections=300", "-c", "shared_buffers=512MB", "-c", "synchronous_commit=on"]);
        let mut process = Process::start(command, &log)?;
        process.until(&log, || {
            let text = std::fs::read_to_string(&log).ok()?;
            text.contains("ready to accept connections").then_some(())
        })?;
        let postgres = Self { process, address };
        postgres.connect().await?.batch_execute(TABLE).await?;
        Ok(Some(postgres))
    }

    fn process(&self) -> &Process {
        &self.process
    }

    async fn open(&self) -> Result<Caller> {
        let client = self.connect().await?;
        let owner = client.query_one("SELECT pg_backend_pid()::text", &[]).await?.get(0);
        let (take, give, extend) =
            tokio::try_join!(client.prepare(TAKE), client.prepare(GIVE), client.prepare(EXTEND))?;
        Ok(Caller { client, owner, take, give, extend })
    }
}

impl Postgres {
    async fn connect(&self) -> Result<Client> {
        let url = format!("host=127.0.0.1 port={} user=bench dbname=postgres", self.address.port());
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        // Ends with the client.
        tokio::spawn(connection);
        Ok(client)
    }
}

/// The numbers of a user of this machine.
fn account(name: &str) -> Option<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == name)?;
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

pub(crate) struct Caller {
    client: Client,
    owner: String,
    take: Statement,
    give: Statement,
    extend: Statement,
}

impl Session for Caller {
    async fn take(&mut self, key: &str, _: bool) -> Result<Option<Lease>> {
        let taken = self.client.execute(&self.take, &[&key, &self.owner]).await? == 1;
        Ok(taken.then(|| Lease { id: self.owner.clone(), token: 0 }))
    }

    async fn give(&mut self, key: &str, lease: &Lease) -> Result<()> {
        ensure!(self.client.execute(&self.give, &[&key, &lease.id]).await? == 1, "{key} was not this caller's");
        Ok(())
    }

    async fn renew(&mut self, key: &str, lease: &Lease) -> Result<()> {
        ensure!(self.client.execute(&self.extend, &[&key, &lease.id]).await? == 1, "{key} was not this caller's");
        Ok(())
    }

    async fn batch(&mut self, _: &[String]) -> Result<bool> {
        Ok(false)
    }
}
