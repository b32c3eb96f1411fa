//! Server time: the one authority on expiry where a single process serves.
//!
//! It starts where the last process left off, runs with real elapsed time (suspend included), never steps, and follows
//! the wall clock by slewing only. A wall clock that jumps an hour therefore moves nothing at once, whichever way and
//! whether the process runs or not, as long as the machine is not restarted in between.

use std::sync::{Arc, Mutex, PoisonError};

use domain::{Span, Timestamp};

/// How fast server time may be slewed towards the wall clock: 500 millionths, as system clocks are. A holder who counts
/// a lease on its own monotonic clock should allow for it: a thousandth of the ttl is ample.
pub(crate) const SLEW_PER_MILLION: i64 = 500;

/// How far ahead of itself the clock may have been persisted: no answer carries a later time than what is persisted.
pub const AHEAD: Span = Span::millis(3_000);

/// Where time is read from: the operating system, or a test's own hands.
pub trait TimeSource: Send + Sync {
    /// The wall clock, in microseconds since the epoch.
    fn wall_micros(&self) -> i64;
    /// Elapsed real time since some fixed instant, suspend included, in nanoseconds.
    fn elapsed_nanos(&self) -> i64;
    /// What tells one run of the machine from another: elapsed times of different boots cannot be compared.
    fn boot_id(&self) -> Option<Arc<str>>;
}

/// The operating system's clocks.
#[derive(Debug, Default)]
pub struct SystemTime {
    _private: (),
}

impl TimeSource for SystemTime {
    fn wall_micros(&self) -> i64 {
        #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        wall.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn elapsed_nanos(&self) -> i64 {
        // Linux's monotonic clock stops while the machine sleeps, its boot time does not; elsewhere the monotonic clock
        // is the one that runs on.
        #[cfg(target_os = "linux")]
        let clock = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let clock = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(clock);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    }

    fn boot_id(&self) -> Option<Arc<str>> {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(Arc::from(id.trim()))
    }
}

/// What is persisted of the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockMark {
    /// Server time when this was written: the service is known to have lived then.
    pub lived_at: Timestamp,
    /// The latest time that any answer may have carried.
    pub ceiling: Timestamp,
    /// The machine's run in which it was written.
    pub boot_id: Option<Arc<str>>,
    /// Elapsed time of that run when it was written, in microseconds.
    pub elapsed_micros: i64,
}

/// Server time.
pub struct Clock {
    source: Arc<dyn TimeSource>,
    boot_id: Option<Arc<str>>,
    hand: Mutex<Hand>,
}

struct Hand {
    elapsed_nanos: i64,
    server_nanos: i64,
    /// Where the database tells the time: how far its time was ahead of the elapsed time when it last did, in nanoseconds.
    told_nanos: Option<i64>,
}

impl Clock {
    /// Starts server time from what an earlier process persisted.
    ///
    /// Within one run of the machine the elapsed time since then is known exactly, whatever the wall clock says; after
    /// a restart of the machine it is not, and the later of wall clock and persisted ceiling is taken.
    #[must_use]
    pub fn start(source: Arc<dyn TimeSource>, mark: Option<&ClockMark>) -> Self {
        let boot_id = source.boot_id();
        let elapsed_nanos = source.elapsed_nanos();
        let wall = Timestamp::from_micros(source.wall_micros());
        let start = mark.map_or(wall, |mark| {
            let elapsed = elapsed_nanos / 1_000 - mark.elapsed_micros;
            if boot_id.is_some() && boot_id == mark.boot_id && elapsed >= 0 {
                // The dead process may have been slewing forward: go on after all that it can have said.
                let said = elapsed.min(AHEAD.as_micros()) * SLEW_PER_MILLION / 1_000_000 + i64::from(elapsed > 0);
                mark.lived_at + Span::from_micros(elapsed + said)
            } else {
                wall.max(mark.ceiling)
            }
        });
        let hand = Mutex::new(Hand { elapsed_nanos, server_nanos: start.as_micros() * 1_000, told_nanos: None });
        Self { source, boot_id, hand }
    }

    /// Server time where the database tells it, which is `now`: between two readings it goes on by elapsed time.
    #[must_use]
    pub fn following(source: Arc<dyn TimeSource>, now: Timestamp) -> Self {
        let (boot_id, elapsed_nanos) = (source.boot_id(), source.elapsed_nanos());
        let server_nanos = now.as_micros() * 1_000;
        let told_nanos = Some(server_nanos - elapsed_nanos);
        Self { source, boot_id, hand: Mutex::new(Hand { elapsed_nanos, server_nanos, told_nanos }) }
    }

    /// Lets it be no earlier than this from now on.
    pub fn at_least(&self, least: Timestamp) -> Timestamp {
        let mut hand = self.hand.lock().unwrap_or_else(PoisonError::into_inner);
        self.advance(&mut hand);
        hand.server_nanos = hand.server_nanos.max(least.as_micros() * 1_000);
        Timestamp::from_micros(hand.server_nanos / 1_000)
    }

    /// Takes in the time that the database has told, and gives the time that counts: never earlier than any that was given
    /// before, even if the database's own clock was set back or another server with a slower one took over.
    pub fn observe(&self, told: Timestamp) -> Timestamp {
        let mut hand = self.hand.lock().unwrap_or_else(PoisonError::into_inner);
        self.advance(&mut hand);
        let told = told.as_micros() * 1_000;
        hand.told_nanos = Some(told - hand.elapsed_nanos);
        hand.server_nanos = hand.server_nanos.max(told);
        Timestamp::from_micros(hand.server_nanos / 1_000)
    }

    /// Elapsed real time, in microseconds.
    pub(crate) fn elapsed(&self) -> i64 {
        self.source.elapsed_nanos() / 1_000
    }

    /// Server time. Never earlier than any time it gave before.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.read().0
    }

    /// Server time, and the elapsed time at that very instant, in nanoseconds.
    fn read(&self) -> (Timestamp, i64) {
        let mut hand = self.hand.lock().unwrap_or_else(PoisonError::into_inner);
        self.advance(&mut hand);
        (Timestamp::from_micros(hand.server_nanos / 1_000), hand.elapsed_nanos)
    }

    /// Lets it go on. Under the lock, so that readings are in the order in which they are taken.
    fn advance(&self, hand: &mut Hand) {
        let elapsed_nanos = self.source.elapsed_nanos();
        let passed = (elapsed_nanos - hand.elapsed_nanos).max(0);
        let most = passed / 1_000_000 * SLEW_PER_MILLION + passed % 1_000_000 * SLEW_PER_MILLION / 1_000_000;
        let aim = match hand.told_nanos {
            Some(told) => told + hand.elapsed_nanos + passed,
            None => self.source.wall_micros().saturating_mul(1_000),
        };
        let off = aim.saturating_sub(hand.server_nanos + passed);
        hand.elapsed_nanos += passed;
        hand.server_nanos += passed + off.clamp(-most, most);
    }

    /// Server time with all that must be persisted for a later process to go on from it.
    #[must_use]
    pub fn mark(&self) -> ClockMark {
        let (now, elapsed_nanos) = self.read();
        ClockMark {
            lived_at: now,
            ceiling: now + AHEAD,
            boot_id: self.boot_id.clone(),
            elapsed_micros: elapsed_nanos / 1_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[derive(Default)]
    struct Hands {
        wall: AtomicI64,
        elapsed: AtomicI64,
        boot: AtomicI64,
    }

    impl Hands {
        fn pass(&self, micros: i64) {
            self.wall.fetch_add(micros, Ordering::SeqCst);
            self.elapsed.fetch_add(micros, Ordering::SeqCst);
        }
    }

    impl TimeSource for Hands {
        fn wall_micros(&self) -> i64 {
            self.wall.load(Ordering::SeqCst)
        }
        fn elapsed_nanos(&self) -> i64 {
            self.elapsed.load(Ordering::SeqCst) * 1_000
        }
        fn boot_id(&self) -> Option<Arc<str>> {
            Some(Arc::from(self.boot.load(Ordering::SeqCst).to_string()))
        }
    }

    const HOUR: i64 = 3_600_000_000;

    fn started() -> (Arc<Hands>, Clock) {
        let hands = Arc::new(Hands::default());
        hands.pass(1_000 * HOUR);
        let clock = Clock::start(hands.clone(), None);
        (hands, clock)
    }

    #[test]
    fn a_wall_clock_that_jumps_moves_server_time_by_slewing_only() {
        for jump in [HOUR, -HOUR] {
            let (hands, clock) = started();
            let before = clock.now();
            hands.wall.fetch_add(jump, Ordering::SeqCst);
            assert_eq!(clock.now(), before);
            for second in 1..=1_000 {
                hands.pass(1_000_000);
                let expected = second * (1_000_000 + SLEW_PER_MILLION * jump.signum());
                assert_eq!(clock.now().since(before).as_micros(), expected);
            }
        }
    }

    #[test]
    fn server_time_reaches_the_wall_clock_and_stays_with_it() {
        let (hands, clock) = started();
        hands.wall.fetch_add(-10_000, Ordering::SeqCst);
        for _ in 0..60 {
            hands.pass(1_000_000);
            let _ = clock.now();
        }
        assert_eq!(clock.now().as_micros(), hands.wall_micros());
    }

    #[test]
    fn a_restart_on_the_same_machine_goes_on_by_elapsed_time() {
        for jump in [HOUR, -HOUR, 0] {
            let (hands, clock) = started();
            let mark = clock.mark();
            hands.pass(1_700_000);
            hands.wall.fetch_add(jump, Ordering::SeqCst);
            let last = clock.now();
            let again = Clock::start(hands.clone(), Some(&mark));
            let first = again.now();
            assert!(first >= last, "{first} {last}");
            assert!(first.since(last).as_micros() < 2_000, "{first} {last}");
        }
    }

    #[test]
    fn a_restart_of_the_machine_never_goes_back() {
        let (hands, clock) = started();
        let mark = clock.mark();
        hands.boot.fetch_add(1, Ordering::SeqCst);
        hands.wall.fetch_add(-HOUR, Ordering::SeqCst);
        assert_eq!(Clock::start(hands.clone(), Some(&mark)).now(), mark.ceiling);
        hands.wall.fetch_add(2 * HOUR, Ordering::SeqCst);
        assert_eq!(Clock::start(hands.clone(), Some(&mark)).now().as_micros(), hands.wall_micros());
    }

    #[test]
    fn readings_never_decrease_however_often_they_are_taken() {
        let (hands, clock) = started();
        hands.wall.fetch_add(-HOUR, Ordering::SeqCst);
        let mut last = clock.now();
        for _ in 0..10_000 {
            hands.pass(3);
            let now = clock.now();
            assert!(now > last);
            last = now;
        }
    }
}
