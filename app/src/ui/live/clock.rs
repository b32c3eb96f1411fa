//! The server's time, as well as a browser can know it.

use domain::Timestamp;

/// How long a sample is trusted over worse ones: long enough to find a good one, short enough that clocks which run at
/// different speeds stay within a millisecond or so.
const TRUSTED_MS: f64 = 60_000.0;

/// An estimate of the server's time, from instants the server wrote and the monotonic time at which they arrived.
///
/// An answer takes time to arrive, so each sample puts the server's time too early, never too late; the sample that
/// puts it latest is the best. The reader's own wall clock plays no part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerClock(Option<Sample>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    /// Microseconds to add to the monotonic time.
    offset: i64,
    taken_ms: f64,
}

impl ServerClock {
    /// Learns from the server's time as it was when it wrote an answer, which arrived at `arrived_ms` (milliseconds of
    /// the browser's monotonic clock).
    pub fn learn(&mut self, written: Timestamp, arrived_ms: f64) {
        if self.0.is_some_and(|known| arrived_ms - known.taken_ms > TRUSTED_MS) {
            self.0 = None;
        }
        self.at_least(written, arrived_ms);
    }

    /// Learns that the server's time was at least `written` when this arrived: it may have been written long ago.
    pub fn at_least(&mut self, written: Timestamp, arrived_ms: f64) {
        let offset = written.as_micros() - micros(arrived_ms);
        if self.0.is_none_or(|known| offset > known.offset) {
            self.0 = Some(Sample { offset, taken_ms: arrived_ms });
        }
    }

    /// The server's time at `now_ms` of the monotonic clock, if anything is known of it.
    #[must_use]
    pub fn now(&self, now_ms: f64) -> Option<Timestamp> {
        self.0.map(|known| Timestamp::from_micros(known.offset.saturating_add(micros(now_ms))))
    }
}

/// Whole microseconds of a browser's milliseconds, which stay far below 2^53 microseconds.
#[expect(clippy::cast_possible_truncation, reason = "saturates, and a page does not live for 285 years")]
fn micros(ms: f64) -> i64 {
    (ms * 1_000.0) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_delayed_sample_wins_and_time_is_never_put_ahead() {
        let start = 1_783_111_299_000_000;
        let mut clock = ServerClock::default();
        assert_eq!(clock.now(5.0), None);
        // Written at start, 200 ms under way, arrived at 1,000 ms.
        clock.learn(Timestamp::from_micros(start), 1_000.0);
        assert_eq!(clock.now(1_000.0), Some(Timestamp::from_micros(start)));
        // Written a second later, only 10 ms under way.
        clock.learn(Timestamp::from_micros(start + 1_000_000), 1_810.0);
        assert_eq!(clock.now(1_810.0), Some(Timestamp::from_micros(start + 1_000_000)));
        // A slow one changes nothing.
        clock.learn(Timestamp::from_micros(start + 2_000_000), 3_800.0);
        assert_eq!(clock.now(2_810.0), Some(Timestamp::from_micros(start + 2_000_000)));
    }

    #[test]
    fn a_server_whose_clock_runs_slower_is_followed_after_a_while() {
        let start = 1_783_111_299_000_000;
        let mut clock = ServerClock::default();
        clock.learn(Timestamp::from_micros(start), 0.0);
        clock.learn(Timestamp::from_micros(start + 30_000_000 - 500), 30_000.0);
        assert_eq!(clock.now(30_000.0), Some(Timestamp::from_micros(start + 30_000_000)));
        clock.learn(Timestamp::from_micros(start + 61_000_000 - 1_000), 61_000.0);
        assert_eq!(clock.now(61_000.0), Some(Timestamp::from_micros(start + 61_000_000 - 1_000)));
        // An old line that arrives late puts nothing back.
        clock.at_least(Timestamp::from_micros(start), 200_000.0);
        assert_eq!(clock.now(61_000.0), Some(Timestamp::from_micros(start + 61_000_000 - 1_000)));
    }
}
