//! Instants and lengths of time, in whole microseconds.

use std::fmt;
use std::ops::Add;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant in UTC, in microseconds since 1970-01-01T00:00:00Z.
///
/// It is shown, read and sent as RFC 3339 with six decimals and `Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// A length of time in microseconds, never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(i64);

/// 9999-12-31T23:59:59.999999Z: the last instant RFC 3339 can write.
const LAST_MICROS: i64 = 253_402_300_799_999_999;
const MICROS_PER_MINUTE: i64 = 60_000_000;
const MICROS_PER_DAY: i64 = 86_400_000_000;

impl Timestamp {
    /// The epoch: earlier than anything that happens here.
    pub const EPOCH: Self = Self(0);
    /// The last instant that can be written as RFC 3339.
    pub const MAX: Self = Self(LAST_MICROS);

    /// From microseconds since the epoch; what lies outside year 1970 to 9999 is brought to the nearer end.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        if micros < 0 {
            Self(0)
        } else if micros > LAST_MICROS {
            Self(LAST_MICROS)
        } else {
            Self(micros)
        }
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Whole minutes since the epoch.
    #[must_use]
    pub const fn minute(self) -> i64 {
        self.0 / MICROS_PER_MINUTE
    }

    /// The beginning of a minute, given in whole minutes since the epoch.
    #[must_use]
    pub const fn of_minute(minute: i64) -> Self {
        Self::from_micros(minute.saturating_mul(MICROS_PER_MINUTE))
    }

    /// Whole days since the epoch.
    #[must_use]
    pub const fn day(self) -> i64 {
        self.0 / MICROS_PER_DAY
    }

    /// How much later this is than `earlier`; zero if it is not later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        if self.0 > earlier.0 { Span(self.0 - earlier.0) } else { Span(0) }
    }

    /// Reads RFC 3339 in UTC (`Z`), with zero to six decimals.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() < 20 || !text.is_ascii() || bytes[bytes.len() - 1] != b'Z' {
            return None;
        }
        for (index, separator) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
            if bytes[index] != separator {
                return None;
            }
        }
        let number = |from: usize, to: usize| -> Option<i64> {
            let digits = &text[from..to];
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
        };
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        if !(1970..=9999).contains(&year) || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let days = days_from_civil(year, month, day);
        if civil_from_days(days) != (year, month, day) {
            return None;
        }
        let fraction = &text[19..text.len() - 1];
        let micros = match fraction.strip_prefix('.') {
            None if fraction.is_empty() => 0,
            Some(digits) if (1..=6).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse::<i64>().ok()? * 10_i64.pow(6 - u32::try_from(digits.len()).ok()?)
            }
            _ => return None,
        };
        Some(Self(days * MICROS_PER_DAY + ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// From whole milliseconds; `None` if the microseconds would not fit.
    #[must_use]
    pub fn from_millis(millis: u64) -> Option<Self> {
        i64::try_from(millis).ok()?.checked_mul(1_000).map(Self)
    }

    /// From whole milliseconds known to fit: constants and tests.
    #[must_use]
    pub const fn millis(millis: u32) -> Self {
        Self(millis as i64 * 1_000)
    }

    /// From microseconds; negative becomes zero.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(if micros < 0 { 0 } else { micros })
    }

    /// Whole microseconds.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Whole milliseconds, rounded down.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0 / 1_000
    }

    /// Whether it is no time at all.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Add<Span> for Timestamp {
    type Output = Self;

    /// Later by `span`, at most [`Timestamp::MAX`].
    fn add(self, span: Span) -> Self {
        Self::from_micros(self.0.saturating_add(span.0))
    }
}

/// Days since the epoch of a date of the proleptic Gregorian calendar (years counted from March, so that the leap day
/// ends one).
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The date of a day counted from the epoch: the inverse of [`days_from_civil`].
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// Writes `value` as decimal digits that fill `into`, zeros in front.
fn digits(into: &mut [u8], mut value: i64) {
    for slot in into.iter_mut().rev() {
        *slot = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
    }
}

impl Timestamp {
    /// The 27 ASCII characters of RFC 3339: every event carries several, so they are written without the formatter.
    fn ascii(self) -> [u8; 27] {
        let mut out = *b"0000-00-00T00:00:00.000000Z";
        let (year, month, day) = civil_from_days(self.0.div_euclid(MICROS_PER_DAY));
        let micros = self.0.rem_euclid(MICROS_PER_DAY);
        let seconds = micros / 1_000_000;
        digits(&mut out[0..4], year);
        digits(&mut out[5..7], month);
        digits(&mut out[8..10], day);
        digits(&mut out[11..13], seconds / 3_600);
        digits(&mut out[14..16], seconds / 60 % 60);
        digits(&mut out[17..19], seconds % 60);
        digits(&mut out[20..26], micros % 1_000_000);
        out
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ascii = self.ascii();
        f.write_str(std::str::from_utf8(&ascii).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ascii = self.ascii();
        serializer.serialize_str(std::str::from_utf8(&ascii).map_err(serde::ser::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Timestamp;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an RFC 3339 time in UTC that ends in Z")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Timestamp, E> {
                Timestamp::parse(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

/// In events a length of time is a number of microseconds, in fields that end in `_us`.
impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.0)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let micros = i64::deserialize(deserializer)?;
        if micros < 0 {
            return Err(serde::de::Error::custom("a length of time is never negative"));
        }
        Ok(Self(micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_as_rfc_3339_and_read_back() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399_999_999, "2000-02-28T23:59:59.999999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_783_111_299_469_980, "2026-07-03T20:41:39.469980Z"),
            (LAST_MICROS, "9999-12-31T23:59:59.999999Z"),
        ] {
            assert_eq!(Timestamp::from_micros(micros).to_string(), text);
            assert_eq!(Timestamp::parse(text), Some(Timestamp::from_micros(micros)));
        }
        assert_eq!(Timestamp::parse("2026-07-03T20:41:39Z"), Some(Timestamp::from_micros(1_783_111_299_000_000)));
        assert_eq!(Timestamp::parse("2026-07-03T20:41:39.4Z"), Some(Timestamp::from_micros(1_783_111_299_400_000)));
    }

    #[test]
    fn what_is_not_an_instant_in_utc_is_refused() {
        for text in [
            "",
            "2026-07-03",
            "2026-07-03T20:41:39",
            "2026-07-03T20:41:39+00:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-07-03T24:00:00Z",
            "2026-07-03T20:41:39.Z",
            "2026-07-03T20:41:39.1234567Z",
            "1969-12-31T23:59:59Z",
            "+026-07-03T20:41:39Z",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }

    #[test]
    fn adding_never_leaves_the_range_that_can_be_written() {
        assert_eq!(Timestamp::MAX + Span::from_micros(i64::MAX), Timestamp::MAX);
        assert_eq!(Span::from_millis(u64::MAX), None);
    }
}
