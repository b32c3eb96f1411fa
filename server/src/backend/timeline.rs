//! The timeline, page by page.

use app::api::exchange::{Caller, Exchange};
use app::api::page::AsOf;
use app::api::timeline::{Event, Events, ListRequest, TimelineBackend};
use app::api::values::PageSize;
use app::api::{ApiError, Pending};
use domain::Role;
use engine::Engine;
use engine::timeline::Line;

use super::cursor;
use super::problems::of_fault;

/// How many lines one request looks through at the most.
const LOOKED_THROUGH: u32 = 5_000;
/// How many at once.
const PIECE: u32 = 500;

/// The timeline.
pub(crate) struct Timeline {
    engine: Engine,
}

impl Timeline {
    pub(crate) const fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

impl TimelineBackend for Timeline {
    fn list<'a>(&'a self, exchange: &'a Exchange, request: ListRequest) -> Pending<'a, Events> {
        Box::pin(async move {
            let caller = exchange.require(Role::Viewer)?;
            let limit = usize::from(request.limit.unwrap_or(PageSize::DEFAULT).get());
            let timeline = self.engine.timeline();
            let head = timeline.head();
            let mut before = match &request.cursor {
                Some(cursor) => cursor::of_timeline(cursor)?.min(head.next()),
                None => head.next(),
            };
            let mut items = Vec::new();
            let mut looked_through = 0;
            let mut is_over = false;
            while items.len() < limit && looked_through < LOOKED_THROUGH && !is_over {
                let lines = timeline.read_before(before, PIECE).await.map_err(|error| {
                    tracing::error!(%error, "cannot read the timeline");
                    ApiError::new("unavailable", "the timeline cannot be read").retry_after_ms(1_000)
                })?;
                is_over = lines.len() < PIECE as usize;
                for line in &lines {
                    if items.len() == limit {
                        is_over = false;
                        break;
                    }
                    before = line.position;
                    looked_through += 1;
                    if is_wanted(&request, caller, line) {
                        items.push(event(line)?);
                    }
                }
            }
            let now = self.engine.time().await.map_err(of_fault)?;
            Ok(Events {
                items,
                next: (!is_over).then(|| cursor::write_timeline(before)),
                as_of: AsOf { position: head.0.unsigned_abs(), time: now },
                server_time: now,
            })
        })
    }
}

fn is_wanted(request: &ListRequest, caller: &Caller, line: &Line) -> bool {
    let kind_is_wanted = request.kind.as_ref().is_none_or(|wanted| {
        let kind = line.record.kind();
        kind.strip_prefix(wanted.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    kind_is_wanted
        && match line.record.lease_key() {
            Some(key) => {
                caller.covers(key)
                    && request.prefix.as_ref().is_none_or(|prefix| key.as_str().starts_with(prefix.as_str()))
            }
            // What concerns no key may tell of any: it is for those who may see them all.
            None => request.prefix.is_none() && caller.prefixes.is_empty(),
        }
}

fn event(line: &Line) -> Result<Event, ApiError> {
    let event = serde_json::from_str(&line.body).map_err(|error| {
        tracing::error!(%error, position = line.position.0, "a line of the timeline is no object");
        ApiError::internal()
    })?;
    Ok(Event { position: line.position.0.unsigned_abs(), event })
}
