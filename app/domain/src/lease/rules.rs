//! The limits and defaults that an installation sets.

use crate::Span;

/// The limits and defaults of leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The shortest ttl.
    pub ttl_min: Span,
    /// The longest ttl.
    pub ttl_max: Span,
    /// The ttl of an acquire that names none.
    pub ttl_default: Span,
    /// The longest wait.
    pub wait_max: Span,
    /// The longest maximum hold.
    pub max_hold_max: Span,
    /// The longest minimum hold.
    pub min_hold_max: Span,
    /// The longest lock delay.
    pub lock_delay_max: Span,
    /// The minimum hold of an acquire that names none.
    pub min_hold_default: Span,
    /// The maximum hold of an acquire that names none.
    pub max_hold_default: Option<Span>,
    /// The lock delay of an acquire that names none.
    pub lock_delay_default: Span,
    /// The longest grace of a break.
    pub grace_max: Span,
    /// The grace of a break that names none.
    pub grace_default: Span,
    /// The most that an outage gives to a lease that was alive when it began.
    pub outage_grace: Span,
    /// The most waiters on one key.
    pub waiters_per_key: usize,
}

impl Default for Rules {
    fn default() -> Self {
        const DAY: Span = Span::millis(24 * 60 * 60 * 1000);
        Self {
            ttl_min: Span::millis(100),
            ttl_max: DAY,
            ttl_default: Span::millis(30_000),
            wait_max: Span::millis(60_000),
            max_hold_max: Span::from_micros(365 * 24 * 60 * 60 * 1_000_000),
            min_hold_max: DAY,
            lock_delay_max: DAY,
            min_hold_default: Span::ZERO,
            max_hold_default: None,
            lock_delay_default: Span::ZERO,
            grace_max: DAY,
            grace_default: Span::millis(10_000),
            outage_grace: Span::millis(5_000),
            waiters_per_key: 1_000,
        }
    }
}

/// A length of time outside what the rules allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must lie between {} and {} milliseconds", min.as_millis(), max.as_millis())]
pub struct RangeError {
    /// The least that is allowed.
    pub min: Span,
    /// The most that is allowed.
    pub max: Span,
}

fn between(min: Span, max: Span, millis: u64) -> Result<Span, RangeError> {
    match Span::from_millis(millis) {
        Some(span) if span >= min && span <= max => Ok(span),
        _ => Err(RangeError { min, max }),
    }
}

impl Rules {
    /// A `ttl_ms`.
    ///
    /// # Errors
    /// Outside `ttl_min` to `ttl_max`.
    pub fn ttl(&self, millis: u64) -> Result<Span, RangeError> {
        between(self.ttl_min, self.ttl_max, millis)
    }

    /// A `wait_ms`; zero is no waiting.
    ///
    /// # Errors
    /// More than `wait_max`.
    pub fn wait(&self, millis: u64) -> Result<Span, RangeError> {
        between(Span::ZERO, self.wait_max, millis)
    }

    /// A `max_hold_ms`.
    ///
    /// # Errors
    /// Zero, or more than `max_hold_max`.
    pub fn max_hold(&self, millis: u64) -> Result<Span, RangeError> {
        between(Span::millis(1), self.max_hold_max, millis)
    }

    /// A `min_hold_ms`; zero is none.
    ///
    /// # Errors
    /// More than `min_hold_max`.
    pub fn min_hold(&self, millis: u64) -> Result<Span, RangeError> {
        between(Span::ZERO, self.min_hold_max, millis)
    }

    /// A `lock_delay_ms`; zero is none.
    ///
    /// # Errors
    /// More than `lock_delay_max`.
    pub fn lock_delay(&self, millis: u64) -> Result<Span, RangeError> {
        between(Span::ZERO, self.lock_delay_max, millis)
    }

    /// A `grace_ms`; zero breaks at once.
    ///
    /// # Errors
    /// More than `grace_max`.
    pub fn grace(&self, millis: u64) -> Result<Span, RangeError> {
        between(Span::ZERO, self.grace_max, millis)
    }
}
