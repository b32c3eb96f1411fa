//! Names and texts, checked once where they enter: a value of these types cannot be wrong.
//!
//! All are brought to Unicode NFC first; then nothing is trimmed, cut or hashed.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
#[cfg(not(target_family = "wasm"))]
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// Why a text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Nothing was given.
    #[error("is empty")]
    Empty,
    /// More bytes of UTF-8, after NFC, than allowed.
    #[error("is longer than {max} bytes of UTF-8")]
    TooLong {
        /// The most bytes that would have been taken.
        max: usize,
    },
    /// A character of Unicode category Cc.
    #[error("contains a control character")]
    ControlCharacter,
    /// White space at the start or the end.
    #[error("begins or ends with white space")]
    OuterWhiteSpace,
    /// A subject is not `kind:id`.
    #[error("is not of the form kind:id, with a kind of a-z, 0-9, '-' or '_' (at most 64)")]
    NotKindAndId,
    /// Metadata is nested too deeply.
    #[error("has more than {max} levels of objects and lists")]
    TooDeep {
        /// The most levels.
        max: usize,
    },
    /// Metadata is not a JSON object.
    #[error("is not a JSON object")]
    NotAnObject,
}

/// In the browser names come from the server, which has normalised them, or go to it, which does so again: the tables, a
/// fifth of the whole download, stay away from there.
#[cfg(target_family = "wasm")]
fn nfc(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

#[cfg(not(target_family = "wasm"))]
fn nfc(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_nfc_quick(text.chars()) == IsNormalized::Yes {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(text.nfc().collect())
    }
}

fn name(text: &str, max: usize) -> Result<Arc<str>, TextError> {
    let text = nfc(text);
    if text.is_empty() {
        return Err(TextError::Empty);
    }
    if text.len() > max {
        return Err(TextError::TooLong { max });
    }
    if text.chars().any(char::is_control) {
        return Err(TextError::ControlCharacter);
    }
    if text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace) {
        return Err(TextError::OuterWhiteSpace);
    }
    Ok(Arc::from(text.as_ref()))
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "Cow<'_, str>", into = "Arc<str>")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The most bytes of UTF-8, after NFC.
            pub const MAX_BYTES: usize = $max;

            /// Takes the text as it is, brought to NFC.
            ///
            /// # Errors
            /// If it is empty, too long, has a control character, or white space at either end.
            pub fn parse(text: &str) -> Result<Self, TextError> {
                name(text, $max).map(Self)
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<Cow<'_, str>> for $name {
            type Error = TextError;
            fn try_from(text: Cow<'_, str>) -> Result<Self, TextError> {
                Self::parse(&text)
            }
        }

        impl From<$name> for Arc<str> {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

name_type!(
    /// The name of what must not collide: 1 to 512 bytes.
    LeaseKey,
    512
);
name_type!(
    /// The job a lease is for: 1 to 512 bytes.
    JobKey,
    512
);
name_type!(
    /// Who asks for a lease: 1 to 256 bytes.
    Owner,
    256
);
name_type!(
    /// Why an operator did something: 1 to 1,024 bytes.
    Reason,
    1024
);

impl LeaseKey {
    /// Prefixes that belong to the product itself; callers may not take leases below them.
    pub const RESERVED_PREFIXES: [&'static str; 2] = ["job:", "job-leases/"];

    /// Whether the key belongs to the product itself.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        Self::RESERVED_PREFIXES.iter().any(|prefix| self.0.starts_with(prefix))
    }
}

/// What a lease or job concerns, as `kind:id` (`customer:acme`, `invoice:2041`): at most 256 bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Cow<'_, str>", into = "Arc<str>")]
pub struct Subject(Arc<str>);

impl Subject {
    /// The most bytes of UTF-8, after NFC.
    pub const MAX_BYTES: usize = 256;
    /// The most subjects one lease can carry.
    pub const MAX_COUNT: usize = 16;

    /// Takes `kind:id`.
    ///
    /// # Errors
    /// As for the other names, and if there is no kind or no id.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let text = name(text, Self::MAX_BYTES)?;
        let (kind, id) = text.split_once(':').ok_or(TextError::NotKindAndId)?;
        let kind_is_plain =
            kind.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_');
        if kind.is_empty() || kind.len() > 64 || id.is_empty() || !kind_is_plain {
            return Err(TextError::NotKindAndId);
        }
        Ok(Self(text))
    }

    /// The text, `kind:id`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<Cow<'_, str>> for Subject {
    type Error = TextError;
    fn try_from(text: Cow<'_, str>) -> Result<Self, TextError> {
        Self::parse(&text)
    }
}

impl From<Subject> for Arc<str> {
    fn from(subject: Subject) -> Self {
        subject.0
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// What the owner wants kept with a lease: a JSON object of at most 4 KiB as compact JSON; `{}` if nothing.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Metadata(Option<Arc<str>>);

impl Metadata {
    /// The most bytes of compact JSON.
    pub const MAX_BYTES: usize = 4096;
    /// The most levels of objects and lists in each other. Readers of JSON give up at 128, and answers and stored records
    /// put some around it.
    pub const MAX_LEVELS: usize = 32;
    /// The empty object.
    pub const EMPTY: Self = Self(None);

    /// Takes a JSON object.
    ///
    /// # Errors
    /// If it is longer than 4 KiB when written without white space.
    pub fn from_object(object: &serde_json::Map<String, serde_json::Value>) -> Result<Self, TextError> {
        if object.is_empty() {
            return Ok(Self::EMPTY);
        }
        if object.values().any(|value| is_deeper(value, Self::MAX_LEVELS - 1)) {
            return Err(TextError::TooDeep { max: Self::MAX_LEVELS });
        }
        let text = serde_json::to_string(object).map_err(|_| TextError::NotAnObject)?;
        if text.len() > Self::MAX_BYTES {
            return Err(TextError::TooLong { max: Self::MAX_BYTES });
        }
        Ok(Self(Some(Arc::from(text))))
    }

    /// Takes the text of a JSON object.
    ///
    /// # Errors
    /// If it is not a JSON object, or longer than 4 KiB when written without white space.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let object = serde_json::from_str(text).map_err(|_| TextError::NotAnObject)?;
        Self::from_object(&object)
    }

    /// Compact JSON.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or("{}")
    }

    /// Whether it is `{}`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The object itself.
    #[must_use]
    pub fn to_object(&self) -> serde_json::Map<String, serde_json::Value> {
        self.0.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// Whether a value has more levels of objects and lists than that.
fn is_deeper(value: &serde_json::Value, levels: usize) -> bool {
    let Some(left) = levels.checked_sub(1) else { return value.is_object() || value.is_array() };
    match value {
        serde_json::Value::Array(items) => items.iter().any(|item| is_deeper(item, left)),
        serde_json::Value::Object(members) => members.values().any(|member| is_deeper(member, left)),
        _ => false,
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Metadata {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_object().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = serde_json::Map::deserialize(deserializer)?;
        Self::from_object(&object).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_taken_as_it_is_or_refused_with_the_reason() {
        assert_eq!(LeaseKey::parse("nightly/report").unwrap().as_str(), "nightly/report");
        assert_eq!(LeaseKey::parse("e\u{301}").unwrap().as_str(), "\u{e9}");
        assert_eq!(LeaseKey::parse(""), Err(TextError::Empty));
        assert_eq!(LeaseKey::parse(" a"), Err(TextError::OuterWhiteSpace));
        assert_eq!(LeaseKey::parse("a\u{3000}"), Err(TextError::OuterWhiteSpace));
        assert_eq!(LeaseKey::parse("a\tb"), Err(TextError::ControlCharacter));
        assert_eq!(LeaseKey::parse("a\u{85}b"), Err(TextError::ControlCharacter));
        assert!(LeaseKey::parse(&"k".repeat(512)).is_ok());
        assert_eq!(LeaseKey::parse(&"k".repeat(513)), Err(TextError::TooLong { max: 512 }));
        // 256 two-byte letters after NFC, 768 bytes before it.
        assert!(LeaseKey::parse(&"e\u{301}".repeat(256)).is_ok());
        assert!(LeaseKey::parse("job:x").unwrap().is_reserved());
        assert!(!LeaseKey::parse("jobs").unwrap().is_reserved());
    }

    #[test]
    fn a_subject_needs_a_kind_and_an_id() {
        assert!(Subject::parse("license:L-7:b").is_ok());
        for text in ["acme", ":acme", "customer:", "Customer:acme", "cust omer:acme"] {
            assert_eq!(Subject::parse(text), Err(TextError::NotKindAndId), "{text}");
        }
    }

    #[test]
    fn metadata_is_an_object_of_at_most_4_kib() {
        assert_eq!(Metadata::parse(" { } ").unwrap(), Metadata::EMPTY);
        assert_eq!(Metadata::parse("{\"a\": 1}").unwrap().as_str(), "{\"a\":1}");
        assert_eq!(Metadata::parse("[1]"), Err(TextError::NotAnObject));
        let nested = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
        assert!(Metadata::parse(&nested(32)).is_ok());
        assert_eq!(Metadata::parse(&nested(33)), Err(TextError::TooDeep { max: 32 }));
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(4096));
        assert_eq!(Metadata::parse(&long), Err(TextError::TooLong { max: 4096 }));
    }
    #[test]
    fn numbers_in_metadata_are_the_same_however_often_they_are_read_and_written() {
        // Among any thousand, fast but careless reading gets hundreds wrong in the last digit.
        let mut bits = 1_u64;
        for _ in 0..1_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = f64::from_bits(bits);
            if !number.is_finite() {
                continue;
            }
            let once = Metadata::parse(&format!("{{\"n\":{number:e}}}")).unwrap();
            let again = Metadata::parse(&serde_json::to_string(&once).unwrap()).unwrap();
            assert_eq!(again, once);
            assert_eq!(once.to_object()["n"].as_f64(), Some(number), "{once:?}");
        }
    }
}
