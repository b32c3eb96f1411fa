//! Lengths of time as people type and read them: `500ms`, `30s`, `5m`, `1h30m`.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads one or more whole numbers, each with its unit (`ms`, `s`, `m`, `h`, `d`); `0` needs none.
///
/// # Errors
/// If it is anything else, or too long to count in milliseconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a length of time: write it like 500ms, 30s, 5m or 1h30m");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (_, millis) = UNITS.iter().find(|(unit, _)| *unit == &rest[..letters]).ok_or_else(wrong)?;
        rest = &rest[letters..];
        total = number.checked_mul(*millis).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(Duration::from_millis(total)) }
}

/// Whole milliseconds, as the API takes them.
pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// Writes a length of time in its two greatest units.
pub(crate) fn show(length: Duration) -> String {
    let total = millis(length);
    if total < 1_000 && total > 0 {
        return format!("{total}ms");
    }
    if total < 10_000 && !total.is_multiple_of(1_000) {
        return format!("{}.{}s", total / 1_000, total % 1_000 / 100);
    }
    let mut parts = String::new();
    let mut rest = total;
    for (unit, size) in UNITS.iter().skip(1).rev() {
        if rest >= *size && parts.matches(char::is_alphabetic).count() < 2 {
            parts.push_str(&format!("{}{unit}", rest / size));
            rest %= size;
        } else if !parts.is_empty() {
            break;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_with_their_units_or_refused() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("0", 0),
            ("0s", 0),
            ("2d", 172_800_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "s", "-1s", "1.5s", "5 s", "1x", "1s1", "99999999999999999999s", "999999999999999d"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lengths_are_shown_in_two_units() {
        for (millis, text) in [
            (0, "0s"),
            (400, "400ms"),
            (9_900, "9.9s"),
            (12_300, "12s"),
            (61_000, "1m1s"),
            (3_600_000, "1h"),
            (90_061_000, "1d1h"),
        ] {
            assert_eq!(show(Duration::from_millis(millis)), text);
        }
    }
}
