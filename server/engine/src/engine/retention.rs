//! Taking away what has been kept long enough. A key's last grant is never taken away: its greatest token is not forgotten.

use domain::lease::FencingToken;
use domain::{Span, Timestamp};

use super::work::{Call, Task};
use super::{Engine, unavailable};
use crate::error::Fault;
use crate::store::Retain;
use crate::timeline::{Position, ReadError};

/// How long what is over is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Grants that ended, but for the last one of each key.
    pub grants: Span,
    /// Lines of the timeline. What they came to stays, for each key.
    pub timeline: Span,
    /// Idempotency records: for so long the same request is not done twice.
    pub idempotency: Span,
}

const DAY: i64 = 24 * 60 * 60 * 1_000_000;

impl Default for Retention {
    fn default() -> Self {
        Self {
            grants: Span::from_micros(30 * DAY),
            timeline: Span::from_micros(90 * DAY),
            idempotency: Span::from_micros(7 * DAY),
        }
    }
}

/// How many lines, records or grants in one transaction: others wait for it.
const PIECE: u32 = 2_000;

fn ago(now: Timestamp, span: Span) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_sub(span.as_micros()))
}

impl Engine {
    /// Takes away what has been kept long enough, in pieces, so that nobody waits long.
    ///
    /// Lines go only as far as the read models are durable, which have more of them than the last state of each key.
    ///
    /// # Errors
    /// If the database fails; what was done until then stays done.
    pub async fn retain(&self, call: Call) -> Result<(), Fault> {
        let retention = self.0.retention;
        let now = self.now();
        // What is old enough to go has come to the read models, however long they may wait for more.
        self.0.store.settled().await.map_err(unavailable)?;
        let ended_before = ago(now, retention.grants);
        let mut after: Option<FencingToken> = None;
        loop {
            after = self.0.store.forget(ended_before, after, PIECE).await.map_err(unavailable)?;
            if after.is_none() {
                break;
            }
        }
        let durable = self.0.store.make_views_durable().await.map_err(unavailable)?.unwrap_or_default();
        let lines_before = ago(now, retention.timeline);
        let idempotency_before = ago(now, retention.idempotency);
        loop {
            let lines = self.old_lines(lines_before, durable).await?;
            if lines.is_none() && !self.0.store.remembers_before(idempotency_before).await.map_err(unavailable)? {
                return Ok(());
            }
            let retain = Retain { lines, idempotency_before, limit: PIECE };
            self.submit(call.clone(), Task::Retain(retain), None).await?;
        }
    }

    /// The last of the next lines that are older than `before` and not after `durable`, if the very first is.
    async fn old_lines(&self, before: Timestamp, durable: Position) -> Result<Option<Position>, Fault> {
        let timeline = self.timeline();
        let first = match timeline.read_after(Position(0), PIECE).await {
            Ok(lines) => lines,
            Err(ReadError::Compacted { oldest }) => match timeline.read_after(oldest, PIECE).await {
                Ok(lines) => lines,
                Err(ReadError::Compacted { .. }) => return Ok(None),
                Err(ReadError::Store(error)) => return Err(unavailable(error)),
            },
            Err(ReadError::Store(error)) => return Err(unavailable(error)),
        };
        let old = first.iter().take_while(|line| line.record.at() < before && line.position <= durable);
        Ok(old.last().map(|line| line.position))
    }
}
