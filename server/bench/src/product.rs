//! Job Leases itself: the program that is measured, and how a caller talks to it.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::time::sleep;

use crate::connection::Connection;
use crate::load::{Lease, Session};
use crate::process::Process;

const TOKEN: &str = "jl_benchmarkbenchmarkbenchmarkbenchmark00000000";

/// A running server on a database of its own.
pub(crate) struct Server {
    process: Process,
    address: SocketAddr,
}

impl Server {
    /// Starts the program in this folder; `flush_delay` makes each flush take so much longer.
    pub(crate) fn start(program: &Path, folder: &Path, flush_delay: Option<Duration>) -> Result<Self> {
        let log = folder.join("server.log");
        let mut command = match flush_delay {
            None => Command::new(program),
            Some(delay) => {
                let mut strace = Command::new("strace");
                let delay = format!("--inject=fdatasync,fsync:delay_exit={}", delay.as_micros());
                strace.args(["--follow-forks", "--seccomp-bpf", "--quiet=all", "--output=/dev/null"]);
                strace.args(["--trace=fdatasync,fsync", &delay]).arg(program);
                strace
            }
        };
        command.args(["serve", "--listen", "127.0.0.1:0", "--database"]);
        command.arg(format!("sqlite:{}", folder.join("leases.db").display()));
        command.env("JOB_LEASES_BOOTSTRAP_TOKEN", TOKEN).env("JOB_LEASES_LOG", "warn");
        let mut process = Process::start(command, &log)?;
        let address = process.until(&log, || {
            let text = fs::read_to_string(&log).ok()?;
            let line = text.lines().find(|line| line.contains("listens on http://"))?;
            line.rsplit_once("http://")?.1.parse().ok()
        })?;
        Ok(Self { process, address })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Connects a caller.
    pub(crate) async fn open(&self) -> Result<Connection> {
        Connection::open(self.address, TOKEN).await
    }

    /// How many lines wait for the read models.
    pub(crate) async fn backlog(&self) -> Result<u64> {
        let mut connection = self.open().await?;
        let answer = connection.get("/metrics").await?;
        let line = answer.body.lines().find_map(|line| line.strip_prefix("job_leases_read_model_backlog "));
        Ok(line.context("no backlog among the figures")?.trim().parse()?)
    }

    /// Waits until none does.
    pub(crate) async fn settle(&self) -> Result<()> {
        while self.backlog().await? > 0 {
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
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
