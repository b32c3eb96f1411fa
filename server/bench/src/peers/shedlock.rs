//! PostgreSQL with the statements of ShedLock's JDBC provider, on the database's own time.

use std::path::Path;

use anyhow::{Result, ensure};
use tokio_postgres::{Client, Statement};

use super::Peer;
use crate::load::{Lease, Session};
use crate::postgres::{PACKAGE, Server};
use crate::process::{Manner, Process};

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

pub(crate) struct ShedLock(Server);

impl Peer for ShedLock {
    const NAME: &'static str = "PostgreSQL, ShedLock's statements";
    const LACKS: &'static str =
        "no fencing token, no waiting, no history: the row of a lock tells its last holder only";
    const PACKAGE: &'static str = PACKAGE;
    type Session = Caller;

    async fn start(folder: &Path, manner: Manner) -> Result<Option<Self>> {
        let Some(server) = Server::start(folder, manner)? else { return Ok(None) };
        server.connect().await?.batch_execute(TABLE).await?;
        Ok(Some(Self(server)))
    }

    fn process(&self) -> &Process {
        self.0.process()
    }

    async fn open(&self) -> Result<Caller> {
        let client = self.0.connect().await?;
        let owner = client.query_one("SELECT pg_backend_pid()::text", &[]).await?.get(0);
        let (take, give, extend) =
            tokio::try_join!(client.prepare(TAKE), client.prepare(GIVE), client.prepare(EXTEND))?;
        Ok(Caller { client, owner, take, give, extend })
    }
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
