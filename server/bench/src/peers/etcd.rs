//! etcd: a key is created in a transaction if nobody has it, under the caller's own lease.

use std::net::{SocketAddr, TcpStream as Probe};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::SendRequest;
use prost::Message;
use tokio::net::TcpStream;

use super::Peer;
use crate::load::{Lease, Session};
use crate::process::{self, Manner, Process, find, free_port};

pub(crate) struct Etcd {
    process: Process,
    address: SocketAddr,
}

impl Peer for Etcd {
    const NAME: &'static str = "etcd, one node";
    const LACKS: &'static str =
        "no waiting in order without a recipe in the client, no break with a reason, no history of holders";
    const PACKAGE: &'static str = "etcd-server";
    type Session = Caller;

    async fn start(folder: &Path, manner: Manner) -> Result<Option<Self>> {
        let Some(program) = find("etcd") else { return Ok(None) };
        let (address, peers, log) = (free_port()?, free_port()?, folder.join("log"));
        let mut command = process::program(&program, manner);
        command.arg("--data-dir").arg(folder.join("data"));
        for name in ["--listen-client-urls", "--advertise-client-urls"] {
            command.arg(name).arg(format!("http://{address}"));
        }
        for name in ["--listen-peer-urls", "--initial-advertise-peer-urls"] {
            command.arg(name).arg(format!("http://{peers}"));
        }
        command.arg("--initial-cluster").arg(format!("default=http://{peers}"));
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
        let (send, connection) = h2::client::handshake(stream).await?;
        // Ends with the caller.
        tokio::spawn(connection);
        let mut caller = Caller { send, address: self.address, lease: 0 };
        let granted: LeaseGranted =
            caller.call("/etcdserverpb.Lease/LeaseGrant", &LeaseGrant { ttl: 600, id: 0 }).await?;
        caller.lease = granted.id;
        Ok(caller)
    }
}

pub(crate) struct Caller {
    send: SendRequest<Bytes>,
    address: SocketAddr,
    lease: i64,
}

impl Caller {
    async fn call<A: Message + Default>(&mut self, path: &str, request: &impl Message) -> Result<A> {
        // gRPC: one byte (not compressed), the length, the message.
        let mut frame = BytesMut::with_capacity(request.encoded_len() + 5);
        frame.put_u8(0);
        frame.put_u32(u32::try_from(request.encoded_len())?);
        request.encode(&mut frame)?;
        let head = http::Request::post(format!("http://{}{path}", self.address))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let (answer, mut stream) = self.send.clone().ready().await?.send_request(head, false)?;
        stream.send_data(frame.freeze(), true)?;
        let mut body = answer.await?.into_body();
        let mut bytes = BytesMut::new();
        while let Some(piece) = body.data().await {
            let piece = piece?;
            body.flow_control().release_capacity(piece.len())?;
            bytes.put(piece);
        }
        let trailers = body.trailers().await?.context("an answer without a status")?;
        ensure!(trailers.get("grpc-status").is_some_and(|status| status == "0"), "etcd refused: {trailers:?}");
        ensure!(bytes.len() >= 5, "an empty answer");
        Ok(A::decode(bytes.split_off(5))?)
    }

    /// Does something if the key is, or is not, of this revision; 0 if it must not be there.
    async fn if_created(&mut self, key: &str, revision: i64, then: Operation) -> Result<Option<i64>> {
        let compare = vec![Compare { result: 0, target: 1, key: key.into(), create_revision: revision }];
        let answer: Answered = self.call("/etcdserverpb.KV/Txn", &Transaction { compare, then: vec![then] }).await?;
        Ok(answer.succeeded.then(|| answer.header.map_or(0, |header| header.revision)))
    }

    fn put(&self, key: &str) -> Operation {
        let put = Put { key: key.into(), value: b"worker-1".to_vec(), lease: self.lease };
        Operation { put: Some(put), delete: None }
    }
}

impl Session for Caller {
    async fn take(&mut self, key: &str, _: bool) -> Result<Option<Lease>> {
        let put = self.put(key);
        let revision = self.if_created(key, 0, put).await?;
        Ok(revision.map(|revision| Lease { id: revision.to_string(), token: revision.cast_unsigned() }))
    }

    async fn give(&mut self, key: &str, lease: &Lease) -> Result<()> {
        let delete = Operation { put: None, delete: Some(Delete { key: key.into() }) };
        let deleted = self.if_created(key, lease.token.cast_signed(), delete).await?;
        ensure!(deleted.is_some(), "{key} was not this caller's");
        Ok(())
    }

    async fn renew(&mut self, key: &str, lease: &Lease) -> Result<()> {
        // Keeping a lease alive is not flushed; what a holder tells of itself is.
        let put = self.put(key);
        let renewed = self.if_created(key, lease.token.cast_signed(), put).await?;
        ensure!(renewed.is_some(), "{key} was not this caller's");
        Ok(())
    }

    async fn batch(&mut self, _: &[String]) -> Result<bool> {
        Ok(false)
    }
}

// The few messages of etcd's API that are needed, by the numbers of their fields.

#[derive(Clone, PartialEq, Message)]
struct LeaseGrant {
    #[prost(int64, tag = "1")]
    ttl: i64,
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGranted {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Compare {
    #[prost(int32, tag = "1")]
    result: i32,
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(int64, tag = "5")]
    create_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Operation {
    #[prost(message, optional, tag = "2")]
    put: Option<Put>,
    #[prost(message, optional, tag = "3")]
    delete: Option<Delete>,
}

#[derive(Clone, PartialEq, Message)]
struct Transaction {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    then: Vec<Operation>,
}

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(int64, tag = "3")]
    revision: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Answered {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(bool, tag = "2")]
    succeeded: bool,
}
