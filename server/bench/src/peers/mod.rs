//! What people use instead, measured by the same callers in the same run: each with its own protocol, on a fresh folder, and
//! flushing every change before it answers.
//!
//! Only those are measured whose programs are on the machine; the others are named as missing.

mod etcd;
mod redis;
mod shedlock;
mod zookeeper;

use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::load::{self, Outcome, Plan, Session};
use crate::process::{Manner, PATIENCE, Process};

pub(crate) use self::etcd::Etcd;
pub(crate) use self::redis::Redis;
pub(crate) use self::shedlock::ShedLock;
pub(crate) use self::zookeeper::ZooKeeper;

/// Some server of leases, or of what people make leases of.
pub(crate) trait Peer: Sized {
    /// What people call it.
    const NAME: &'static str;
    /// What it leaves to its users.
    const LACKS: &'static str;
    /// The Debian package that brings it.
    const PACKAGE: &'static str;
    type Session: Session + 'static;

    /// Starts it in this folder; `None` if its program is not on this machine. See [`Manner`].
    fn start(folder: &Path, manner: Manner) -> impl Future<Output = Result<Option<Self>>>;
    fn process(&self) -> &Process;
    /// Connects a caller.
    fn open(&self) -> impl Future<Output = Result<Self::Session>>;

    /// Waits until it takes callers: some listen before they are ready, and hang up until then.
    async fn ready(self) -> Result<Self> {
        let began = Instant::now();
        while let Err(error) = self.open().await {
            ensure!(began.elapsed() < PATIENCE, "{} takes no callers: {error:#}", Self::NAME);
            sleep(Duration::from_millis(50)).await;
        }
        Ok(self)
    }

    /// Runs a load on it.
    async fn run(&self, plan: &Plan) -> Result<Outcome> {
        load::run(plan, |_| self.open()).await
    }
}
