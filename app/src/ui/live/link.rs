//! How fresh the page is: what is known of the connection to the server.

use domain::Timestamp;

/// How long the connection may be gone before the page calls itself stale.
const PATIENCE_MS: f64 = 5_000.0;
/// After how much silence the server is asked whether it is still there.
const SILENCE_MS: f64 = 20_000.0;
/// How long to wait before the first attempt to reconnect, and at most.
const FIRST_WAIT_MS: f64 = 500.0;
const LONGEST_WAIT_MS: f64 = 10_000.0;

/// What the reader is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// The page is as it was when the server wrote it.
    #[default]
    AsRead,
    /// Changes arrive as they happen.
    Live,
    /// The connection is gone, for a moment so far.
    Reconnecting,
    /// The connection is gone; the page was last true then.
    Stale(Option<Timestamp>),
    /// The session is over.
    SignedOut,
}

impl Link {
    /// Whether what the page shows may be taken as true now.
    #[must_use]
    pub const fn is_fresh(self) -> bool {
        matches!(self, Self::Live | Self::Reconnecting)
    }
}

/// The connection over time. All instants are milliseconds of the browser's monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Watch {
    link: Link,
    heard_ms: f64,
    heard_at: Option<Timestamp>,
    attempts: u32,
    retry_ms: Option<f64>,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Nothing yet.
    Wait,
    /// It has been silent for long: ask whether the server is there.
    Probe,
    /// Open the stream.
    Connect,
}

impl Watch {
    /// What the reader is told.
    #[must_use]
    pub const fn link(&self) -> Link {
        self.link
    }

    /// Something came from the server; `at` is its time then, as far as known.
    pub fn heard(&mut self, now_ms: f64, at: Option<Timestamp>) {
        self.heard_ms = now_ms;
        self.heard_at = at.or(self.heard_at);
    }

    /// The stream is open.
    pub fn opened(&mut self, now_ms: f64, at: Option<Timestamp>) {
        self.heard(now_ms, at);
        self.link = Link::Live;
        self.attempts = 0;
        self.retry_ms = None;
    }

    /// The stream broke, or could not be opened.
    pub fn lost(&mut self, now_ms: f64) {
        if self.link == Link::SignedOut {
            return;
        }
        if self.link == Link::Live {
            self.link = Link::Reconnecting;
        }
        let wait = FIRST_WAIT_MS * 2_f64.powi(self.attempts.min(16).cast_signed());
        self.attempts += 1;
        self.retry_ms = Some(now_ms + wait.min(LONGEST_WAIT_MS));
    }

    /// The server does not know the session any more: there is no use in trying.
    pub fn signed_out(&mut self) {
        self.link = Link::SignedOut;
        self.retry_ms = None;
    }

    /// Time passes.
    pub fn tick(&mut self, now_ms: f64) -> Errand {
        if matches!(self.link, Link::AsRead | Link::Reconnecting)
            && self.attempts > 0
            && now_ms - self.heard_ms > PATIENCE_MS
        {
            self.link = Link::Stale(self.heard_at);
        }
        if self.retry_ms.is_some_and(|at| now_ms >= at) {
            self.retry_ms = None;
            return Errand::Connect;
        }
        if self.link == Link::Live && now_ms - self.heard_ms > SILENCE_MS {
            self.heard_ms = now_ms;
            return Errand::Probe;
        }
        Errand::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: Timestamp = Timestamp::from_micros(7);

    #[test]
    fn a_short_break_is_no_news_and_a_long_one_says_since_when() {
        let mut watch = Watch::default();
        watch.opened(0.0, Some(THEN));
        assert_eq!((watch.tick(1_000.0), watch.link()), (Errand::Wait, Link::Live));
        watch.lost(2_000.0);
        assert_eq!(watch.link(), Link::Reconnecting);
        assert!(watch.link().is_fresh());
        assert_eq!(watch.tick(2_400.0), Errand::Wait);
        assert_eq!(watch.tick(2_500.0), Errand::Connect);
        watch.lost(2_600.0);
        assert_eq!(watch.tick(5_500.0), Errand::Connect);
        assert_eq!(watch.link(), Link::Stale(Some(THEN)));
        watch.opened(6_000.0, Some(Timestamp::from_micros(9)));
        assert_eq!(watch.link(), Link::Live);
    }

    #[test]
    fn attempts_grow_rarer_up_to_a_limit() {
        let mut watch = Watch::default();
        watch.opened(0.0, None);
        let mut now = 0.0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            watch.lost(now);
            let begun = now;
            while watch.tick(now) != Errand::Connect {
                now += 500.0;
            }
            waits.push(now - begun);
        }
        assert_eq!(waits, [500.0, 1_000.0, 2_000.0, 4_000.0, 8_000.0, 10_000.0, 10_000.0, 10_000.0]);
    }

    #[test]
    fn silence_is_looked_into_once_at_a_time() {
        let mut watch = Watch::default();
        watch.opened(0.0, None);
        assert_eq!(watch.tick(20_001.0), Errand::Probe);
        assert_eq!(watch.tick(20_002.0), Errand::Wait);
        watch.heard(20_100.0, None);
        assert_eq!(watch.tick(40_000.0), Errand::Wait);
    }

    #[test]
    fn once_signed_out_it_stays_so() {
        let mut watch = Watch::default();
        watch.opened(0.0, None);
        watch.signed_out();
        watch.lost(1.0);
        assert_eq!((watch.tick(60_000.0), watch.link()), (Errand::Wait, Link::SignedOut));
    }

    #[test]
    fn a_page_that_never_connected_says_so_too() {
        let mut watch = Watch::default();
        watch.heard(0.0, Some(THEN));
        watch.lost(100.0);
        assert_eq!(watch.tick(600.0), Errand::Connect);
        watch.lost(700.0);
        watch.tick(5_200.0);
        assert_eq!(watch.link(), Link::Stale(Some(THEN)));
    }
}
