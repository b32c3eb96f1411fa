//! `GET /api/v1/events`: the timeline as server-sent events.
//!
//! A stream reads by position, at its own pace, and is woken when lines were committed: nothing is buffered for a slow
//! reader, and resuming is the same as never having been away.

use std::sync::Arc;
use std::time::Duration;

use app::api::codec::from_query;
use app::api::exchange::Caller;
use app::api::values::{Prefix, present};
use app::api::{ApiError, live};
use axum::body::{Body, Bytes};
use axum::extract::{Extension, RawQuery, State};
use axum::response::{IntoResponse, Response};
use domain::Role;
use engine::Engine;
use engine::timeline::{Hash, Line, Position, ReadError, Timeline};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};

use super::Http;
use super::request::Passed;

/// How often something is sent even if nothing happens.
const QUIET: Duration = Duration::from_secs(15);
/// How many lines are read at once.
const LINES: u32 = 256;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parameters {
    #[serde(deserialize_with = "present")]
    prefix: Option<Prefix>,
    #[serde(deserialize_with = "present")]
    last_event_id: Option<String>,
}

/// The handler.
pub(super) async fn events(
    State(http): State<Arc<Http>>,
    Extension(passed): Extension<Passed>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let id = Box::from(&*passed.id.0);
    match Stream::open(http, passed, &headers, query.as_deref().unwrap_or_default()).await {
        Ok(stream) => {
            let body = Body::from_stream(futures::stream::unfold(stream, Stream::next));
            let headers = [
                (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
                (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
                // Tells nginx and its like to pass on each event at once.
                (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
            ];
            (StatusCode::OK, headers, body).into_response()
        }
        Err(error) => error.into_response(Some(id)),
    }
}

struct Stream {
    http: Arc<Http>,
    caller: Arc<Caller>,
    secret: Option<Arc<str>>,
    prefix: Option<Prefix>,
    after: Position,
    /// Of the line there.
    hash: Hash,
    head: watch::Receiver<Position>,
    quiet_until: Instant,
    /// Lines read before the answer began, and whether the first word is still to be said.
    first: Option<Vec<Line>>,
    _place: OwnedSemaphorePermit,
}

impl Stream {
    async fn open(http: Arc<Http>, passed: Passed, headers: &HeaderMap, query: &str) -> Result<Self, ApiError> {
        let Passed { id: _, caller, secret } = passed;
        let caller = caller.ok_or_else(ApiError::unauthenticated)?;
        if caller.role < Role::Viewer {
            return Err(ApiError::new("forbidden", "this needs the role viewer"));
        }
        let Parameters { prefix, last_event_id } = from_query(query)?;
        if http.stopping.is_cancelled() {
            return Err(ApiError::new("stopping", "the server is stopping").retry_after_ms(1_000));
        }
        let place = Arc::clone(&http.limits.streams)
            .try_acquire_owned()
            .map_err(|_| ApiError::new("overloaded", "too many event streams are open").retry_after_ms(5_000))?;
        let timeline = http.engine.timeline();
        let head = timeline.subscribe();
        // A browser that reconnects sends the header; the query is for clients that cannot, and for the first time.
        let from = match headers.get("last-event-id") {
            Some(id) => Some(id.to_str().map_err(|_| bad_id())?.to_owned()),
            None => last_event_id,
        };
        let (after, hash) = match from {
            None => {
                let head = timeline.head();
                (head, hash_at(timeline, head).await?)
            }
            Some(id) => resume(&http.engine, &id).await?,
        };
        // Read once before answering, so that what is too old is refused with a status.
        let first = timeline.read_after(after, LINES).await.map_err(refused)?;
        http.metrics.stream_opened();
        Ok(Self {
            http,
            caller,
            secret,
            prefix,
            after,
            hash,
            head,
            quiet_until: quiet_until(),
            first: Some(first),
            _place: place,
        })
    }

    /// The next piece of the stream.
    async fn next(mut self) -> Option<(Result<Bytes, std::io::Error>, Self)> {
        if let Some(lines) = self.first.take() {
            // An id without data: not an event, but a client that is cut off now will resume from here.
            let mut text = format!("retry: 2000\nid: {}\n\n", self.id());
            self.write(&lines, &mut text);
            return Some((Ok(Bytes::from(text)), self));
        }
        let stopping = self.http.stopping.clone();
        loop {
            // Marked as seen before reading: what is committed during the read wakes the next wait.
            self.head.borrow_and_update();
            let lines = match self.http.engine.timeline().read_after(self.after, LINES).await {
                Ok(lines) => lines,
                Err(error) => {
                    tracing::debug!(%error, "an event stream ends");
                    return None;
                }
            };
            let mut text = String::new();
            self.write(&lines, &mut text);
            if !text.is_empty() {
                self.quiet_until = quiet_until();
                return self.http.still_knows(self.secret.as_deref()).then_some((Ok(Bytes::from(text)), self));
            }
            if !lines.is_empty() {
                continue;
            }
            tokio::select! {
                () = stopping.cancelled() => return None,
                changed = self.head.changed() => changed.ok()?,
                () = sleep_until(self.quiet_until) => {
                    self.quiet_until = quiet_until();
                    // With the id, so that a client whose keys are quiet does not fall behind what is kept.
                    let text = format!(": quiet\nid: {}\n\n", self.id());
                    return self.http.still_knows(self.secret.as_deref()).then_some((Ok(Bytes::from(text)), self));
                }
            }
        }
    }

    /// Writes those lines that the caller may see and asked for, and remembers the last as passed.
    fn write(&mut self, lines: &[Line], text: &mut String) {
        let mut sent = 0;
        for line in lines {
            (self.after, self.hash) = (line.position, line.hash);
            if self.shows(line) {
                text.push_str("id: ");
                text.push_str(&self.id());
                text.push_str("\ndata: ");
                text.push_str(&line.body);
                text.push_str("\n\n");
                sent += 1;
            }
        }
        self.http.metrics.stream_sent(sent);
    }

    fn shows(&self, line: &Line) -> bool {
        match line.record.lease_key() {
            Some(key) => {
                self.caller.covers(key)
                    && self.prefix.as_ref().is_none_or(|prefix| key.as_str().starts_with(prefix.as_str()))
            }
            // What concerns no key may tell of any: it is for those who may see them all.
            None => self.prefix.is_none() && self.caller.prefixes.is_empty(),
        }
    }

    fn id(&self) -> String {
        format!("{}-{}-{}", self.http.engine.timeline().epoch(), self.after.0, mark(&self.hash))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.http.metrics.stream_closed();
    }
}

/// What of a line's hash is in its id: all that came before it is in the hash, so that an id which was given out before an
/// older copy of the database was put back is no id of what was written in its place.
fn mark(hash: &Hash) -> String {
    hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

async fn hash_at(timeline: &Timeline, position: Position) -> Result<Hash, ApiError> {
    let hash = timeline.hash_at(position).await.map_err(|error| refused(error.into()))?;
    hash.ok_or_else(compacted)
}

/// After which line a client goes on that has seen this id, and that line's hash.
async fn resume(engine: &Engine, id: &str) -> Result<(Position, Hash), ApiError> {
    let timeline = engine.timeline();
    let (epoch, rest) = id.split_once('-').ok_or_else(bad_id)?;
    // Without a mark it may have been an id once, but says too little to go on from.
    let (position, given) = rest.split_once('-').map_or((rest, None), |(position, mark)| (position, Some(mark)));
    let position = position.parse().ok().filter(|position| *position >= 0).map(Position).ok_or_else(bad_id)?;
    if epoch != timeline.epoch() || !engine.has_come_to(position).await.map_err(|error| refused(error.into()))? {
        return Err(compacted());
    }
    let hash = hash_at(timeline, position).await?;
    if given == Some(mark(&hash).as_str()) { Ok((position, hash)) } else { Err(compacted()) }
}

fn quiet_until() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "for how long nothing was sent, not for what time it is")]
    let now = Instant::now();
    now + QUIET
}

fn bad_id() -> ApiError {
    ApiError::invalid("last_event_id", "is not the id of an event")
}

fn compacted() -> ApiError {
    ApiError::new("compacted", "events after this id are no longer kept; read the state anew and follow from now")
}

fn refused(error: ReadError) -> ApiError {
    match error {
        ReadError::Compacted { .. } => compacted(),
        ReadError::Store(error) => {
            tracing::error!(%error, "cannot read the timeline");
            ApiError::new("unavailable", "the timeline cannot be read").retry_after_ms(1_000)
        }
    }
}

/// For the router, which knows it by its place in the API.
pub(super) const PATH: &str = live::PATH;
