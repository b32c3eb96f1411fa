//! The clock that leases are counted on here: it runs with real time, is never set, and goes on while the machine sleeps.

use std::ops::Add;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// An instant of that clock; it means nothing on another machine or after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    /// Now.
    pub(crate) fn now() -> Self {
        // On Apple's systems the monotonic clock is the one that counts sleep.
        #[cfg(target_os = "linux")]
        let clock = ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let clock = ClockId::Monotonic;
        let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
        // Both are never negative on these clocks.
        Self(Duration::new(tv_sec.unsigned_abs(), u32::try_from(tv_nsec).unwrap_or(0)))
    }

    /// How much later this is than `earlier`; nothing if it is not.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Earlier by `length`.
    pub(crate) fn before(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(length))
    }

    /// For another process on the same machine.
    pub(crate) fn to_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    /// From another process on the same machine.
    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(length))
    }
}

/// The runtime's timers stand still while the machine sleeps, so where only they serve none of them is longer.
const LONGEST: Duration = Duration::from_millis(100);

/// Waits until `instant` by this clock: a machine that wakes from sleep later than that finds the wait over.
pub(crate) async fn sleep_until(instant: Instant) {
    #[cfg(target_os = "linux")]
    if timer(instant).await.is_ok() {
        return;
    }
    loop {
        let left = instant.since(Instant::now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LONGEST)).await;
    }
}

/// Waits for `length` by this clock.
pub(crate) async fn sleep(length: Duration) {
    sleep_until(Instant::now() + length).await;
}

/// A timer of the kernel's on this very clock.
#[cfg(target_os = "linux")]
async fn timer(instant: Instant) -> std::io::Result<()> {
    use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};
    use tokio::net::unix::pipe::Receiver;

    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    let seconds = i64::try_from(instant.0.as_secs()).unwrap_or(i64::MAX);
    // A timer set to zero would never ring.
    let nanos = i64::from(instant.0.subsec_nanos()).max(i64::from(seconds == 0));
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    let at = Itimerspec { it_interval: zero, it_value: Timespec { tv_sec: seconds, tv_nsec: nanos } };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &at)?;
    // Nothing is read: only that there is something to read matters, which a timer shows as a pipe does.
    Receiver::from_owned_fd_unchecked(timer)?.readable().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_ends_not_before_its_time_and_at_once_if_it_is_past() {
        let start = Instant::now();
        sleep(Duration::from_millis(30)).await;
        assert!(Instant::now().since(start) >= Duration::from_millis(30));
        sleep_until(start).await;
        sleep_until(Instant(Duration::ZERO)).await;
    }

    #[test]
    fn instants_travel_between_processes() {
        let now = Instant::now();
        assert_eq!(Instant::from_nanos(now.to_nanos()), now);
    }
}
