//! HTTP as bytes on a connection: so that a caller can hang up anywhere, and knows exactly when it sent and received.

use std::io;
use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::process::TOKEN;

/// A connection that is kept alive.
pub(crate) struct Connection(BufReader<TcpStream>);

/// What was answered.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) replayed: bool,
    pub(crate) body: Value,
}

/// A request, ready to be sent.
pub(crate) fn post(path: &str, body: &Value, request_id: &str, idempotency_key: Option<&str>) -> Vec<u8> {
    let body = body.to_string();
    let idempotency = idempotency_key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n\
         X-Request-Id: {request_id}\r\n{idempotency}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn get(path: &str, headers: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n{headers}\r\n").into_bytes()
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }

    /// Begins to follow an event stream; the status it was answered with.
    pub(crate) async fn follow(&mut self, path: &str, last_event_id: Option<&str>) -> io::Result<u16> {
        let resume = last_event_id.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        self.send(&get(path, &resume)).await?;
        Ok(self.head().await?.0)
    }

    /// Reads the answer to a request.
    pub(crate) async fn receive(&mut self) -> io::Result<Answer> {
        let (status, headers) = self.head().await?;
        let body = self.body(&headers).await?;
        let replayed = headers.iter().any(|(name, value)| name == "idempotency-replayed" && value == "true");
        let text = String::from_utf8_lossy(&body).into_owned();
        Ok(Answer { status, replayed, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) })
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line).await?;
        line.strip_suffix("\r\n").map(str::to_owned).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    async fn head(&mut self) -> io::Result<(u16, Vec<(String, String)>)> {
        let status = self.line().await?;
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(|| broken(&status))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line().await?;
            let Some((name, value)) = line.split_once(':') else { return Ok((status, headers)) };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    async fn body(&mut self, headers: &[(String, String)]) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        match headers.iter().find(|(name, _)| name == "content-length") {
            Some((_, length)) => {
                body.resize(length.parse().map_err(|_| broken("content-length"))?, 0);
                self.0.read_exact(&mut body).await?;
            }
            None => {
                while let Some(chunk) = self.chunk().await? {
                    body.extend(chunk);
                }
            }
        }
        Ok(body)
    }

    /// The next piece of a body of unknown length; none at its end.
    pub(crate) async fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let length = usize::from_str_radix(&self.line().await?, 16).map_err(|_| broken("length of a chunk"))?;
        let mut chunk = vec![0; length];
        self.0.read_exact(&mut chunk).await?;
        self.line().await?;
        Ok((length > 0).then_some(chunk))
    }
}
