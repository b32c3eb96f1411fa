//! Instants and lengths of time in words.

use domain::Timestamp;

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

/// What is left from `now`, a whole second, until an instant after it: at least `1 s left`.
#[must_use]
pub fn left(until: Timestamp, now: Timestamp) -> String {
    let seconds = until.as_micros() / SECOND - now.as_micros() / SECOND;
    format!("{} left", length(seconds.max(1), true))
}

/// How long ago something was at `now`, a whole second.
#[must_use]
pub fn ago(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_micros() / SECOND - since.as_micros() / SECOND;
    format!("{} ago", length(seconds.max(0), false))
}

/// How long it was from one instant to a later one, in one unit or two.
#[must_use]
pub fn lasted(from: Timestamp, until: Timestamp) -> String {
    let micros = until.since(from).as_micros().max(0);
    if micros < SECOND { format!("{} ms", micros / 1_000) } else { length(micros / SECOND, true) }
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
    fn what_is_left_is_counted_in_whole_seconds_and_never_nothing() {
        let now = at("2026-07-03T20:00:00Z");
        for (until, words) in [
            ("2026-07-03T20:00:00.000001Z", "1 s left"),
            ("2026-07-03T20:00:01Z", "1 s left"),
            ("2026-07-03T20:00:41.9Z", "41 s left"),
            ("2026-07-03T20:01:00Z", "1 min 00 s left"),
            ("2026-07-03T20:01:58Z", "1 min 58 s left"),
            ("2026-07-03T21:00:00Z", "1 h 00 min left"),
            ("2026-07-04T19:59:00Z", "23 h 59 min left"),
            ("2026-07-04T22:00:00Z", "1 d 02 h left"),
        ] {
            assert_eq!(left(at(until), now), words);
        }
    }

    #[test]
    fn what_is_past_is_told_in_one_unit() {
        let now = at("2026-07-03T20:00:00Z");
        for (since, words) in [
            ("2026-07-03T20:00:00.9Z", "0 s ago"),
            ("2026-07-03T19:59:01Z", "59 s ago"),
            ("2026-07-03T19:58:01Z", "1 min ago"),
            ("2026-07-03T18:00:00Z", "2 h ago"),
            ("2026-07-01T20:00:00Z", "2 d ago"),
        ] {
            assert_eq!(ago(at(since), now), words);
        }
    }

    #[test]
    fn what_lasted_is_told_to_the_millisecond_while_it_is_short() {
        let from = at("2026-07-03T20:00:00Z");
        for (until, words) in [
            ("2026-07-03T19:00:00Z", "0 ms"),
            ("2026-07-03T20:00:00.0429Z", "42 ms"),
            ("2026-07-03T20:00:08.9Z", "8 s"),
            ("2026-07-03T20:01:58Z", "1 min 58 s"),
        ] {
            assert_eq!(lasted(from, at(until)), words);
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
