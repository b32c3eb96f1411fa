//! Redis as its documentation tells to lock with it: SET NX PX, and a script that deletes what is still one's own.

use std::net::{SocketAddr, TcpStream as Probe};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Peer;
use crate::load::{Lease, Session};
use crate::process::{self, Manner, Process, find, free_port};

const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
const EXTEND: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

pub(crate) struct Redis {
    process: Process,
    address: SocketAddr,
}

impl Peer for Redis {
    const NAME: &'static str = "Redis, appendfsync always";
    const LACKS: &'static str =
        "no fencing token, no waiting in order, no history; a lock is a value that anybody may overwrite";
    const PACKAGE: &'static str = "redis-server";
    type Session = Caller;

    async fn start(folder: &Path, manner: Manner) -> Result<Option<Self>> {
        let Some(program) = find("redis-server") else { return Ok(None) };
        let (address, log) = (free_port()?, folder.join("log"));
        let mut command = process::program(&program, manner);
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--save", "", "--dir"]).arg(folder);
        command.args(["--appendonly", "yes", "--appendfsync", "always", "--maxclients", "2000"]);
        let mut process = Process::start(command, &log)?;
        process.until(&log, || Probe::connect(address).ok())?;
        Ok(Some(Self { process, address }))
    }

    fn process(&self) -> &Process {
        &self.process
    }

    async fn open(&self) -> Result<Caller> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let mut caller = Caller {
            stream,
            id: String::new(),
            out: Vec::new(),
            answer: Vec::new(),
            release: String::new(),
            extend: String::new(),
        };
        caller.id = caller.ask(&["CLIENT", "ID"]).await?;
        caller.release = caller.ask(&["SCRIPT", "LOAD", RELEASE]).await?;
        caller.extend = caller.ask(&["SCRIPT", "LOAD", EXTEND]).await?;
        Ok(caller)
    }
}

pub(crate) struct Caller {
    stream: TcpStream,
    id: String,
    out: Vec<u8>,
    answer: Vec<u8>,
    release: String,
    extend: String,
}

impl Caller {
    fn put(&mut self, words: &[&str]) {
        use std::io::Write as _;
        // Writing to a vector cannot fail.
        let _ = write!(self.out, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.out, "${}\r\n{word}\r\n", word.len());
        }
    }

    async fn ask(&mut self, words: &[&str]) -> Result<String> {
        self.put(words);
        let mut answers = self.exchange(1).await?;
        answers.pop().flatten().context("nothing was answered")
    }

    /// Sends what was put, and reads so many answers; none for a nil.
    async fn exchange(&mut self, answers: usize) -> Result<Vec<Option<String>>> {
        self.stream.write_all(&self.out).await?;
        self.out.clear();
        self.answer.clear();
        let (mut found, mut from) = (Vec::with_capacity(answers), 0);
        while found.len() < answers {
            match reply(&self.answer[from..])? {
                Some((reply, length)) => {
                    from += length;
                    found.push(reply);
                }
                None => ensure!(self.stream.read_buf(&mut self.answer).await? > 0, "the server hung up"),
            }
        }
        Ok(found)
    }
}

/// The first reply in these bytes and how long it is; nothing while it is not there as a whole.
fn reply(bytes: &[u8]) -> Result<Option<(Option<String>, usize)>> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let line = std::str::from_utf8(&bytes[1..end])?;
    match bytes[0] {
        b'$' if line == "-1" => Ok(Some((None, end + 2))),
        b'$' => {
            let until = end + 2 + line.parse::<usize>()?;
            if bytes.len() < until + 2 {
                return Ok(None);
            }
            Ok(Some((Some(String::from_utf8(bytes[end + 2..until].to_vec())?), until + 2)))
        }
        kind => {
            ensure!(kind != b'-', "Redis refused: {line}");
            Ok(Some((Some(line.to_owned()), end + 2)))
        }
    }
}

impl Session for Caller {
    async fn take(&mut self, key: &str, _: bool) -> Result<Option<Lease>> {
        let id = self.id.clone();
        self.put(&["SET", key, &id, "NX", "PX", "30000"]);
        let taken = self.exchange(1).await?.pop().flatten().is_some();
        Ok(taken.then_some(Lease { id, token: 0 }))
    }

    async fn give(&mut self, key: &str, lease: &Lease) -> Result<()> {
        let script = self.release.clone();
        let deleted = self.ask(&["EVALSHA", &script, "1", key, &lease.id]).await?;
        ensure!(deleted == "1", "{key} was not this caller's");
        Ok(())
    }

    async fn renew(&mut self, key: &str, lease: &Lease) -> Result<()> {
        let script = self.extend.clone();
        let extended = self.ask(&["EVALSHA", &script, "1", key, &lease.id, "30000"]).await?;
        ensure!(extended == "1", "{key} was not this caller's");
        Ok(())
    }

    async fn batch(&mut self, keys: &[String]) -> Result<bool> {
        let (id, script) = (self.id.clone(), self.release.clone());
        for key in keys {
            self.put(&["SET", key, &id, "NX", "PX", "30000"]);
        }
        ensure!(self.exchange(keys.len()).await?.iter().all(Option::is_some), "a key of one's own was refused");
        for key in keys {
            self.put(&["EVALSHA", &script, "1", key, &id]);
        }
        self.exchange(keys.len()).await?;
        Ok(true)
    }
}
