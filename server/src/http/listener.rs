//! The accept loop: takes connections, serves them, and lets them end well when the server stops.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::connection::Connection;
use super::delivery::Outbox;

/// How long a client may take to send a request's head, and how long an idle connection is kept.
const HEAD_TIME: Duration = Duration::from_secs(75);
/// How long open requests may take to end once the server stops.
const DRAIN_TIME: Duration = Duration::from_secs(8);
/// The most connections that are being told that there are too many.
const MOST_TURNED_AWAY: usize = 64;
const TURNED_AWAY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
    content-length: 99\r\nconnection: close\r\n\r\n\
    {\"code\":\"overloaded\",\"message\":\"too many connections are open\",\"details\":{\"retry_after_ms\":1000}}\r\n";

/// Serves until `stopping`, then lets open requests end, for at most eight seconds.
pub(crate) async fn serve(listener: TcpListener, router: Router, most: usize, stopping: CancellationToken) {
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let places = Arc::new(Semaphore::new(most));
    let turned_away = Arc::new(Semaphore::new(MOST_TURNED_AWAY));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(64 * 1024);
    loop {
        let accepted = tokio::select! {
            () = stopping.cancelled() => break,
            accepted = listener.accept() => accepted,
            // Takes away those that have ended.
            Some(_) = connections.join_next() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                if !is_of_the_peer(&error) {
                    // Out of file descriptors, most likely: trying again at once would only burn time.
                    tracing::error!(%error, "cannot accept a connection");
                    sleep(Duration::from_millis(200)).await;
                }
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            if let Ok(place) = Arc::clone(&turned_away).try_acquire_owned() {
                tokio::spawn(async move {
                    turn_away(stream).await;
                    drop(place);
                });
            }
            continue;
        };
        prepare(&stream);
        let outbox = Arc::new(Outbox::default());
        let router = router.clone();
        let service = {
            let outbox = Arc::clone(&outbox);
            service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(Arc::clone(&outbox));
                router.clone().call(request.map(Body::new))
            })
        };
        let connection = http.serve_connection(TokioIo::new(Connection::new(stream, outbox)), service);
        let connection = graceful.watch(connection);
        connections.spawn(async move {
            // It fails when the peer hangs up or sends no HTTP: neither is ours to report.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    if timeout(DRAIN_TIME, graceful.shutdown()).await.is_err() {
        tracing::warn!(connections = connections.len(), "ending connections that are still open");
    }
    connections.shutdown().await;
}

/// Small answers go out at once, and a peer that vanished is noticed: its waiters must not hold up a queue.
fn prepare(stream: &TcpStream) {
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5)).with_retries(3);
    let socket = SockRef::from(stream);
    if let Err(error) = socket.set_tcp_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keepalive)) {
        tracing::debug!(%error, "cannot set a connection's options");
    }
}

/// Whether accepting failed because of that one peer.
fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
    )
}

async fn turn_away(mut stream: TcpStream) {
    let _ = timeout(Duration::from_secs(1), stream.write_all(TURNED_AWAY)).await;
}

#[cfg(test)]
mod tests {
    use super::TURNED_AWAY;

    #[test]
    fn the_prepared_answer_has_the_length_that_it_claims() {
        let text = std::str::from_utf8(TURNED_AWAY).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
    }
}
