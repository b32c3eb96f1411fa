//! Instants and lengths of time in words.

use domain::{Span, Timestamp};

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The time of day in UTC, `20:41:39`.
#[must_use]
pub fn time_of_day(at: Timestamp) -> String {
    at.to_string()[11..19].to_owned()
}

/// An instant in UTC, as short as it can be read from `reference`: the time of day on the same day, else the day and the
/// minute, in another year the date.
#[must_use]
pub fn moment(at: Timestamp, reference: Timestamp) -> String {
    let (text, today) = (at.to_string(), reference.to_string());
    if text[..10] == today[..10] {
        return text[11..19].to_owned();
    }
    if text[..4] != today[..4] {
        return text[..10].to_owned();
    }
    // Months are two digits from 01 to 12.
    let month = text[5..7].parse::<usize>().ok().and_then(|month| MONTHS.get(month - 1)).copied().unwrap_or_default();
    format!("{} {month} {}", &text[8..10], &text[11..16])
}

/// An instant in UTC in full, `2026-07-03 20:41:39.469980 UTC`.
#[must_use]
pub fn in_full(at: Timestamp) -> String {
    let text = at.to_string();
    format!("{} {} UTC", &text[..10], &text[11..26])
}

/// What is left until an instant: rounded up, so that it reads `0 s left` at no time before the end.
#[must_use]
pub fn left(span: Span) -> String {
    let seconds = span.as_micros().saturating_add(SECOND - 1) / SECOND;
    format!("{} left", length(seconds, true))
}

/// How long ago something was: rounded down.
#[must_use]
pub fn ago(span: Span) -> String {
    format!("{} ago", length(span.as_micros() / SECOND, false))
}

/// A length of time. What runs out keeps its second unit, what has passed does not need it.
fn length(seconds: i64, exact: bool) -> String {
    let (first, second) = match seconds {
        ..MINUTE => return format!("{seconds} s"),
        MINUTE..HOUR => ((seconds / MINUTE, "min"), (seconds % MINUTE, "s")),
        HOUR..DAY => ((seconds / HOUR, "h"), (seconds % HOUR / MINUTE, "min")),
        DAY.. => ((seconds / DAY, "d"), (seconds % DAY / HOUR, "h")),
    };
    if exact {
        format!("{} {} {:02} {}", first.0, first.1, second.0, second.1)
    } else {
        format!("{} {}", first.0, first.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn what_is_left_is_rounded_up() {
        for (micros, words) in [
            (1, "1 s left"),
            (41_000_000, "41 s left"),
            (40_000_001, "41 s left"),
            (59_000_001, "1 min 00 s left"),
            (118_000_000, "1 min 58 s left"),
            (3_600_000_000, "1 h 00 min left"),
            (86_399_000_000, "23 h 59 min left"),
            (93_600_000_000, "1 d 02 h left"),
        ] {
            assert_eq!(left(Span::from_micros(micros)), words);
        }
    }

    #[test]
    fn what_is_past_is_rounded_down() {
        for (micros, words) in [
            (0, "0 s ago"),
            (999_999, "0 s ago"),
            (59_999_999, "59 s ago"),
            (119_000_000, "1 min ago"),
            (7_200_000_000, "2 h ago"),
            (172_800_000_000, "2 d ago"),
        ] {
            assert_eq!(ago(Span::from_micros(micros)), words);
        }
    }

    #[test]
    fn a_moment_names_its_day_unless_it_is_today() {
        let today = at("2026-07-03T23:59:59Z");
        assert_eq!(moment(at("2026-07-03T20:41:39.469980Z"), today), "20:41:39");
        assert_eq!(moment(at("2026-07-04T00:00:00Z"), today), "04 Jul 00:00");
        assert_eq!(moment(at("2025-12-31T23:59:59Z"), today), "2025-12-31");
        assert_eq!(in_full(at("2026-07-03T20:41:39.469980Z")), "2026-07-03 20:41:39.469980 UTC");
        assert_eq!(time_of_day(at("2026-07-03T20:41:39.469980Z")), "20:41:39");
    }
}
