//! What people use instead, measured by the same callers in the same run: each with its own protocol, on a fresh folder, and
//! flushing every change before it answers.
//!
//! Only those are measured whose programs are on the machine; the others are named as missing.

mod etcd;
mod postgres;
mod redis;
mod zookeeper;

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::load::{self, Outcome, Plan, Session};
use crate::process::Process;

pub(crate) use self::etcd::Etcd;
pub(crate) use self::postgres::Postgres;
pub(crate) use self::redis::Redis;
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

    /// Starts it in this folder; `None` if its program is not on this machine.
    fn start(folder: &Path) -> impl Future<Output = Result<Option<Self>>>;
    fn process(&self) -> &Process;
    /// Connects a caller.
    fn open(&self) -> impl Future<Output = Result<Self::Session>>;

    /// Runs a load on it.
    async fn run(&self, plan: &Plan) -> Result<Outcome> {
        load::run(plan, || self.open()).await
    }
}

/// The first of these programs that is there, on the PATH or where Debian puts those that are not.
fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .chain(versions("/usr/lib/postgresql").map(|version| version.join("bin")))
        .collect();
    let files = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    files.into_iter().find(|file| file.is_file())
}

fn versions(folder: &str) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

/// A port that was free a moment ago.
fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
