//! Job Leases itself: the program that is measured, and how a caller talks to it.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::time::sleep;
use tokio_postgres::Client;

use crate::connection::Connection;
use crate::load::{Lease, Session};
use crate::postgres;
use crate::process::{self, Manner, Process};

const TOKEN: &str = "jl_benchmarkbenchmarkbenchmarkbenchmark00000000";

/// What is committed and not in the read models: what has no position yet (rows of lines with U+001E between them), and what
/// they do not have of the rest.
const BACKLOG: &str = "-- backlog\nSELECT (SELECT coalesce(sum(1 + length(body) - length(replace(body, E'\\x1e', ''))), 0) \
     FROM job_leases.log)::bigint + h.position - p.applied FROM job_leases.head AS h, job_leases_views.progress AS p \
     WHERE h.id = 1 AND p.id = 1";
const VERSION: &str = "-- version\nSHOW server_version";

/// How often to look whether there is still a backlog.
const LOOK: Duration = Duration::from_millis(50);

/// A node or several, on a database of their own.
pub(crate) struct Service {
    /// They end before the database does.
    nodes: Vec<Node>,
    /// None on SQLite.
    postgres: Option<Postgres>,
}

struct Node {
    process: Process,
    address: SocketAddr,
}

struct Postgres {
    client: Client,
    version: String,
    server: postgres::Server,
}

/// Processor time that was used so far.
#[derive(Clone, Copy)]
pub(crate) struct Cpu {
    /// By all nodes.
    pub(crate) nodes: Duration,
    /// By the database, where that is a server of its own.
    pub(crate) postgres: Option<Duration>,
}

impl Cpu {
    /// What was used from then to now.
    pub(crate) fn since(self, then: Self) -> Self {
        let postgres = self.postgres.zip(then.postgres).map(|(now, then)| now.saturating_sub(then));
        Self { nodes: self.nodes.saturating_sub(then.nodes), postgres }
    }
}

impl Service {
    /// One node on a SQLite file in this folder.
    pub(crate) fn on_sqlite(program: &Path, folder: &Path, manner: Manner) -> Result<Self> {
        let database = format!("sqlite:{}", folder.join("leases.db").display());
        let node = Node::start(process::program(program, manner), &database, &folder.join("node.log"))?;
        Ok(Self { nodes: vec![node], postgres: None })
    }

    /// One node on a PostgreSQL server of its own in this folder; `None` if that is not on this machine.
    pub(crate) async fn on_postgres(program: &Path, folder: &Path, manner: Manner) -> Result<Option<Self>> {
        let Some(server) = postgres::Server::start(folder, manner)? else { return Ok(None) };
        let client = server.connect().await?;
        let version = client.query_one(VERSION, &[]).await?.try_get(0)?;
        let mut service = Self { nodes: Vec::new(), postgres: Some(Postgres { client, version, server }) };
        service.add_node(program, folder)?;
        Ok(Some(service))
    }

    /// Starts another node on the same PostgreSQL database.
    pub(crate) fn add_node(&mut self, program: &Path, folder: &Path) -> Result<()> {
        let postgres = self.postgres.as_ref().context("a SQLite file has one node")?;
        let log = folder.join(format!("node-{}.log", self.nodes.len() + 1));
        // Flushes are the database's alone here.
        self.nodes.push(Node::start(Command::new(program), &postgres.server.url(), &log)?);
        Ok(())
    }

    /// What it is, for people.
    pub(crate) fn name(&self) -> String {
        let database = match &self.postgres {
            None => "SQLite".to_owned(),
            Some(postgres) => format!("{} {}", postgres::NAME, postgres.version),
        };
        match self.nodes.len() {
            1 => format!("{database}, one node"),
            nodes => format!("{database}, {nodes} nodes"),
        }
    }

    pub(crate) const fn is_on_postgres(&self) -> bool {
        self.postgres.is_some()
    }

    /// Processor time so far.
    pub(crate) fn cpu(&self) -> Cpu {
        let nodes = self.nodes.iter().map(|node| process::cpu(node.process.id())).sum();
        let postgres = self.postgres.as_ref().map(|postgres| process::cpu(postgres.server.process().id()));
        Cpu { nodes, postgres }
    }

    /// The memory that all nodes have in use, in MB.
    pub(crate) fn memory(&self) -> f64 {
        self.nodes.iter().map(|node| process::memory(node.process.id())).sum()
    }

    /// Connects a caller; callers are dealt out to the nodes by their numbers.
    pub(crate) async fn open(&self, caller: usize) -> Result<Connection> {
        Connection::open(self.nodes[caller % self.nodes.len()].address, TOKEN).await
    }

    /// How many lines wait for the read models.
    pub(crate) async fn backlog(&self) -> Result<u64> {
        // Of several nodes each knows how far they have come when it last looked; the database knows it now.
        if let Some(postgres) = &self.postgres {
            let lines: i64 = postgres.client.query_one(BACKLOG, &[]).await?.try_get(0)?;
            return Ok(lines.try_into()?);
        }
        let mut connection = self.open(0).await?;
        let answer = connection.get("/metrics").await?;
        let line = answer.body.lines().find_map(|line| line.strip_prefix("job_leases_read_model_backlog "));
        Ok(line.context("no backlog among the figures")?.trim().parse()?)
    }

    /// Waits until none does.
    pub(crate) async fn settle(&self) -> Result<()> {
        while self.backlog().await? > 0 {
            sleep(LOOK).await;
        }
        Ok(())
    }
}

impl Node {
    /// Starts the program on this database.
    fn start(mut command: Command, database: &str, log: &Path) -> Result<Self> {
        command.args(["serve", "--listen", "127.0.0.1:0", "--database", database]);
        command.env("JOB_LEASES_BOOTSTRAP_TOKEN", TOKEN).env("JOB_LEASES_LOG", "warn");
        let mut process = Process::start(command, log)?;
        let address = process.until(log, || {
            let text = fs::read_to_string(log).ok()?;
            let line = text.lines().find(|line| line.contains("listens on http://"))?;
            line.rsplit_once("http://")?.1.parse().ok()
        })?;
        Ok(Self { process, address })
    }
}

impl Session for Connection {
    async fn take(&mut self, key: &str, wait: bool) -> Result<Option<Lease>> {
        let wait_ms = if wait { r#","wait_ms":60000"# } else { "" };
        let body = format!(r#"{{"lease_key":"{key}","owner":"worker-1","ttl_ms":30000{wait_ms}}}"#);
        let answer = self.post("/api/v1/leases/acquire", &body).await?;
        match answer.status {
            200 => Ok(Some(Lease {
                id: answer.field("lease_id")?.to_owned(),
                token: answer.field("fencing_token")?.parse()?,
            })),
            409 => Ok(None),
            status => bail!("{status}: {}", answer.body),
        }
    }

    async fn give(&mut self, key: &str, lease: &Lease) -> Result<()> {
        let body = format!(r#"{{"lease_key":"{key}","lease_id":"{}"}}"#, lease.id);
        let answer = self.post("/api/v1/leases/release", &body).await?;
        ensure!(answer.status == 200, "{}: {}", answer.status, answer.body);
        Ok(())
    }

    async fn renew(&mut self, key: &str, lease: &Lease) -> Result<()> {
        let body = format!(r#"{{"lease_key":"{key}","lease_id":"{}"}}"#, lease.id);
        let answer = self.post("/api/v1/leases/renew", &body).await?;
        ensure!(answer.status == 200, "{}: {}", answer.status, answer.body);
        Ok(())
    }

    async fn batch(&mut self, keys: &[String]) -> Result<bool> {
        let take = |key: &String| format!(r#"{{"acquire":{{"lease_key":"{key}","owner":"worker-1","ttl_ms":30000}}}}"#);
        let ids = self.operations(keys.iter().map(take)).await?;
        ensure!(ids.len() == keys.len(), "{} of {} keys were granted", ids.len(), keys.len());
        let give = |(key, id)| format!(r#"{{"release":{{"lease_key":"{key}","lease_id":"{id}"}}}}"#);
        self.operations(keys.iter().zip(&ids).map(give)).await?;
        Ok(true)
    }
}

impl Connection {
    /// The ids of the leases that these operations answer.
    pub(crate) async fn operations(&mut self, operations: impl Iterator<Item = String>) -> Result<Vec<String>> {
        let body = format!(r#"{{"operations":[{}]}}"#, operations.collect::<Vec<_>>().join(","));
        let answer = self.post("/api/v1/leases/batch", &body).await?;
        ensure!(answer.status == 200, "{}: {}", answer.status, answer.body);
        Ok(answer.fields("lease_id").map(str::to_owned).collect())
    }
}
