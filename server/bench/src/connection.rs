//! One kept-alive HTTP/1.1 connection: as little work a request as can be, since the load runs on the server's own cores.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection on which one request at a time is under way.
pub(crate) struct Connection {
    stream: TcpStream,
    /// The headers that every request carries.
    headers: String,
    request: Vec<u8>,
    answer: Vec<u8>,
}

/// An answer, borrowed from its connection until the next request.
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a str,
}

impl Connection {
    /// Connects; every request shows the token.
    pub(crate) async fn open(address: SocketAddr, token: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        let headers = format!("host: {address}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n");
        Ok(Self { stream, headers, request: Vec::new(), answer: Vec::new() })
    }

    /// Sends a JSON body and reads the answer to its end.
    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Result<Answer<'_>> {
        use std::io::Write as _;
        self.request.clear();
        let length = body.len();
        write!(self.request, "POST {path} HTTP/1.1\r\n{}content-length: {length}\r\n\r\n{body}", self.headers)?;
        self.exchange().await
    }

    /// Asks for a page or a list.
    pub(crate) async fn get(&mut self, path: &str) -> Result<Answer<'_>> {
        use std::io::Write as _;
        self.request.clear();
        write!(self.request, "GET {path} HTTP/1.1\r\n{}\r\n", self.headers)?;
        self.exchange().await
    }

    async fn exchange(&mut self) -> Result<Answer<'_>> {
        self.stream.write_all(&self.request).await?;
        self.answer.clear();
        let (head, body) = loop {
            self.read().await?;
            if let Some(end) = find(&self.answer, b"\r\n\r\n") {
                break (end, end + 4);
            }
        };
        let text = std::str::from_utf8(&self.answer[..head])?;
        let status = text.get(9..12).context("an answer without a status")?.parse()?;
        let end = match header(text, "content-length: ") {
            Some(length) => {
                let end = body + length.parse::<usize>()?;
                while self.answer.len() < end {
                    self.read().await?;
                }
                end
            }
            // A page is sent in pieces; what they hold is of no interest here, only that the last one came.
            None if header(text, "transfer-encoding: ") == Some("chunked") => {
                while !self.answer.ends_with(b"\r\n0\r\n\r\n") {
                    self.read().await?;
                }
                self.answer.len()
            }
            None => bail!("an answer of no known length: {text}"),
        };
        Ok(Answer { status, body: std::str::from_utf8(&self.answer[body..end])? })
    }

    async fn read(&mut self) -> Result<()> {
        self.answer.reserve(2_048);
        ensure!(self.stream.read_buf(&mut self.answer).await? > 0, "the server hung up");
        Ok(())
    }
}

impl Answer<'_> {
    /// The text behind the first field of this name, up to where a string or a number ends.
    pub(crate) fn field(&self, name: &str) -> Result<&str> {
        field(self.body, name).with_context(|| format!("no {name} in {}", self.body))
    }

    /// All of them, in order.
    pub(crate) fn fields<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let mut rest = self.body;
        std::iter::from_fn(move || {
            let found = field(rest, name)?;
            rest = &rest[found.as_ptr() as usize - rest.as_ptr() as usize..];
            Some(found)
        })
    }
}

/// Reading all of the JSON would cost more than the rest of a request.
fn field<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    let mut from = 0;
    loop {
        let at = from + body[from..].find(name)?;
        from = at + name.len();
        if body[..at].ends_with('"') && body[from..].starts_with("\":") {
            let value = body[from + 2..].trim_start_matches('"');
            return Some(&value[..value.find(['"', ',', '}']).unwrap_or(value.len())]);
        }
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_wherever_they_stand() {
        let body = r#"{"results":[{"ok":{"lease_id":"ls_a","note":"lease_id","token":7}},{"ok":{"lease_id":"ls_b"}}]}"#;
        let answer = Answer { status: 200, body };
        assert_eq!(answer.field("lease_id").unwrap(), "ls_a");
        assert_eq!(answer.field("token").unwrap(), "7");
        assert_eq!(answer.fields("lease_id").collect::<Vec<_>>(), ["ls_a", "ls_b"]);
        assert!(answer.field("owner").is_err());
    }
}
