//! The one place of this crate that draws random numbers.

use domain::Span;

/// A random number.
#[expect(clippy::disallowed_methods, reason = "this is the place that draws them")]
pub(crate) fn number() -> u64 {
    rand::random()
}

/// Between half and one and a half of `span`, in whole milliseconds and at least 1, so that callers who were refused
/// together do not come back together.
pub(crate) fn jittered_ms(span: Span) -> u64 {
    let micros = span.as_micros().unsigned_abs();
    let half = micros / 2;
    ((half + number() % (micros + 1)) / 1_000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_half_and_one_and_a_half() {
        for _ in 0..1_000 {
            assert!((500..=1_500).contains(&jittered_ms(Span::millis(1_000))));
        }
        assert_eq!(jittered_ms(Span::ZERO), 1);
    }
}
