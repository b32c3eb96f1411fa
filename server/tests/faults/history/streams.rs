//! Followers of the event stream, who come back to where they were whenever it breaks.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Stream;
use super::world::World;
use crate::process::PATIENCE;

/// The key whose grant is the last thing that happens.
pub(super) const LAST: &str = "hot/the-last";

/// Follows until the last thing has happened, each time at the next node; hangs up by itself after every `patience`
/// events, if that is not 0.
pub(super) async fn follow(world: Arc<World>, prefix: Option<&str>, patience: usize) -> Stream {
    let path = match prefix {
        Some(prefix) => format!("/api/v1/events?prefix={prefix}"),
        None => "/api/v1/events".to_owned(),
    };
    let mut stream = Stream { prefix: prefix.map(str::to_owned), after: -1, received: Vec::new(), connections: 0 };
    let mut last_id: Option<String> = None;
    let mut node = 0;
    loop {
        let (mut connection, _) = world.connect(node).await;
        node += 1;
        match timeout(PATIENCE, connection.follow(&path, last_id.as_deref())).await.expect("no answer to a stream") {
            Ok(200) => stream.connections += 1,
            // A node that was cut off from its database.
            Ok(503) if world.is_shared() => {
                sleep(Duration::from_millis(50)).await;
                continue;
            }
            Ok(status) => panic!("a stream was answered with {status} after {last_id:?}"),
            Err(_) => {
                sleep(Duration::from_millis(5)).await;
                continue;
            }
        }
        let (mut text, mut seen) = (Vec::new(), 0);
        while let Ok(Some(chunk)) = timeout(PATIENCE, connection.chunk()).await.expect("a stream fell silent") {
            text.extend(chunk);
            while let Some(end) = text.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = text.drain(..end + 2).collect();
                let event = String::from_utf8(event).unwrap();
                seen += usize::from(take(&event, &mut stream, &mut last_id));
                if event.contains(LAST) && event.contains("lease.granted") {
                    return stream;
                }
            }
            if patience > 0 && seen >= patience {
                break;
            }
        }
    }
}

/// Takes one event; whether it was one with data.
fn take(event: &str, stream: &mut Stream, last_id: &mut Option<String>) -> bool {
    let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
    let Some(id) = field("id: ") else { return false };
    let position = id.split('-').nth(1).and_then(|position| position.parse().ok()).expect("an id with a position");
    *last_id = Some(id.to_owned());
    if stream.after < 0 {
        stream.after = position;
    }
    let Some(data) = field("data: ") else { return false };
    stream.received.push((position, data.to_owned()));
    true
}
