//! ZooKeeper: a key is an ephemeral node; it goes with its session, and its creation id rises with every grant.

use std::net::SocketAddr;
use std::net::TcpStream as Probe;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Peer;
use crate::load::{Lease, Session};
use crate::process::{self, Manner, Process, find, free_port};

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const SET_DATA: i32 = 5;
const EPHEMERAL: i32 = 1;
const NODE_EXISTS: i32 = -110;

pub(crate) struct ZooKeeper {
    process: Process,
    address: SocketAddr,
}

impl Peer for ZooKeeper {
    const NAME: &'static str = "ZooKeeper";
    const LACKS: &'static str =
        "no waiting in order without a recipe in the client, no lease of its own length, no history";
    const PACKAGE: &'static str = "zookeeper";
    type Session = Caller;

    async fn start(folder: &Path, manner: Manner) -> Result<Option<Self>> {
        // Its own list of what else it needs is in the archive.
        let program = "/usr/share/java/zookeeper.jar";
        let Some(java) = find("java").filter(|_| Path::new(program).is_file()) else { return Ok(None) };
        let (address, log, config) = (free_port()?, folder.join("log"), folder.join("zoo.cfg"));
        let data = folder.join("data");
        std::fs::create_dir(&data)?;
        std::fs::write(
            &config,
            format!(
                "tickTime=2000\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n",
                data.display(),
                address.port()
            ),
        )?;
        let mut command = process::program(&java, manner);
        command.args(["-Xmx1g", "-Dzookeeper.admin.enableServer=false", "-cp", program]);
        command.arg("org.apache.zookeeper.server.ZooKeeperServerMain").arg(&config).current_dir(folder);
        let mut process = Process::start(command, &log)?;
        process.until(&log, || Probe::connect(address).ok())?;
        Ok(Some(Self { process, address }.ready().await?))
    }

    fn process(&self) -> &Process {
        &self.process
    }

    async fn open(&self) -> Result<Caller> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let mut caller = Caller { stream, next: 1, out: Vec::new(), answer: Vec::new() };
        // Protocol 0, nothing seen, 30 s, no session yet, an empty password.
        caller.begin();
        caller.int(0).long(0).int(30_000).long(0).bytes(&[0; 16]);
        caller.send().await?;
        caller.receive().await?;
        Ok(caller)
    }
}

pub(crate) struct Caller {
    stream: TcpStream,
    next: i32,
    out: Vec<u8>,
    answer: Vec<u8>,
}

impl Caller {
    /// Begins a message; its length comes first, once it is known.
    fn begin(&mut self) {
        self.out.clear();
        self.out.extend([0; 4]);
    }

    fn int(&mut self, value: i32) -> &mut Self {
        self.out.extend(value.to_be_bytes());
        self
    }

    fn long(&mut self, value: i64) -> &mut Self {
        self.out.extend(value.to_be_bytes());
        self
    }

    fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.int(i32::try_from(value.len()).unwrap_or(i32::MAX));
        self.out.extend(value);
        self
    }

    async fn send(&mut self) -> Result<()> {
        let length = u32::try_from(self.out.len() - 4)?;
        self.out[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&self.out).await?;
        Ok(())
    }

    async fn receive(&mut self) -> Result<()> {
        let length = self.stream.read_u32().await?;
        self.answer.resize(length as usize, 0);
        self.stream.read_exact(&mut self.answer).await?;
        Ok(())
    }

    /// One request; its error, or 0, and the id of the transaction.
    async fn ask(&mut self, kind: i32, arguments: impl FnOnce(&mut Self)) -> Result<(i32, i64)> {
        self.begin();
        let id = self.next;
        self.next += 1;
        self.int(id).int(kind);
        arguments(self);
        self.send().await?;
        self.receive().await?;
        ensure!(self.answer.len() >= 16, "a short answer");
        let int = |from: usize| self.answer[from..from + 4].try_into().map(i32::from_be_bytes);
        ensure!(int(0)? == id, "an answer to something else");
        Ok((int(12)?, self.answer[4..12].try_into().map(i64::from_be_bytes)?))
    }
}

/// A node of its own for each key.
fn node(key: &str) -> String {
    format!("/{}", key.replace('/', "_"))
}

impl Session for Caller {
    async fn take(&mut self, key: &str, _: bool) -> Result<Option<Lease>> {
        let path = node(key);
        let (error, id) = self
            .ask(CREATE, |call| {
                // Open to everybody: one entry of the list, all permissions, scheme and id.
                call.bytes(path.as_bytes())
                    .bytes(b"worker-1")
                    .int(1)
                    .int(31)
                    .bytes(b"world")
                    .bytes(b"anyone")
                    .int(EPHEMERAL);
            })
            .await?;
        match error {
            0 => Ok(Some(Lease { id: path, token: id.cast_unsigned() })),
            NODE_EXISTS => Ok(None),
            error => bail!("ZooKeeper answered {error}"),
        }
    }

    async fn give(&mut self, _: &str, lease: &Lease) -> Result<()> {
        let (error, _) = self
            .ask(DELETE, |call| {
                call.bytes(lease.id.as_bytes()).int(-1);
            })
            .await?;
        ensure!(error == 0, "ZooKeeper answered {error}");
        Ok(())
    }

    async fn renew(&mut self, _: &str, lease: &Lease) -> Result<()> {
        // A session is kept by pings, which are not flushed; what a holder tells of itself is.
        let (error, _) = self
            .ask(SET_DATA, |call| {
                call.bytes(lease.id.as_bytes()).bytes(b"worker-1").int(-1);
            })
            .await?;
        ensure!(error == 0, "ZooKeeper answered {error}");
        Ok(())
    }

    async fn batch(&mut self, _: &[String]) -> Result<bool> {
        Ok(false)
    }
}
