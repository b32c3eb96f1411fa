//! Values of requests that are checked as they are read.

use std::fmt;
use std::marker::PhantomData;

use domain::{LeaseKey, TextError};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};

/// How the message of a value that is of the right kind, but too small or too large, begins.
pub(super) const OUT_OF_RANGE: &str = "is out of range: ";

/// A whole number of milliseconds. Whether it is one that the rules allow is judged later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(pub u64);

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_u64(Whole("a whole number of milliseconds")).map(Self)
    }
}

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

/// How many items a page may have: 1 to 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize(u16);

impl PageSize {
    /// The most items of one page.
    pub const MAX: u16 = 500;
    /// The items of a page for which no size was given.
    pub const DEFAULT: Self = Self(100);

    /// A page size, if it lies between 1 and 500.
    #[must_use]
    pub const fn new(items: u16) -> Option<Self> {
        if items == 0 || items > Self::MAX { None } else { Some(Self(items)) }
    }

    /// The number of items.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl<'de> Deserialize<'de> for PageSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = deserializer.deserialize_u64(Whole("a whole number from 1 to 500"))?;
        u16::try_from(items)
            .ok()
            .and_then(Self::new)
            .ok_or_else(|| de::Error::custom(format_args!("{OUT_OF_RANGE}it must lie between 1 and {}", Self::MAX)))
    }
}

impl Serialize for PageSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u16(self.0)
    }
}

/// A number of minutes: 1 to 1,440.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minutes(u16);

impl Minutes {
    /// An hour.
    pub const DEFAULT: Self = Self(60);
    /// A day.
    pub const MAX: u16 = 1_440;

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Minutes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = deserializer.deserialize_u64(Whole("a whole number from 1 to 1,440"))?;
        match u16::try_from(number) {
            Ok(number @ 1..=Self::MAX) => Ok(Self(number)),
            _ => Err(de::Error::custom(format_args!("{OUT_OF_RANGE}it must be 1 to {}", Self::MAX))),
        }
    }
}

impl Serialize for Minutes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u16(self.0)
    }
}

/// Reads a whole number, telling a number that is too small or too large from something that is no number.
struct Whole(&'static str);

impl Visitor<'_> for Whole {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u64, E> {
        u64::try_from(number).map_err(|_| E::custom(format_args!("{OUT_OF_RANGE}it must not be negative")))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<u64, E> {
        // JSON integers beyond 64 bits arrive as floating point.
        if number.fract() == 0.0 && !(0.0..18_446_744_073_709_551_616.0).contains(&number) {
            return Err(E::custom(format_args!("{OUT_OF_RANGE}it is too large or negative")));
        }
        Err(E::invalid_type(Unexpected::Float(number), &self))
    }
}

/// What a lease key may begin with: the same rules, but that it may end in white space.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix(String);

impl Prefix {
    /// Takes the text as it is, brought to NFC.
    ///
    /// # Errors
    /// If no lease key could begin with it.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        match LeaseKey::parse(text) {
            Ok(key) => Ok(Self(key.as_str().to_owned())),
            Err(TextError::OuterWhiteSpace) => {
                // With a stop behind it, white space at the end is no longer outside.
                let key = LeaseKey::parse(&format!("{text}."))?;
                Ok(Self(key.as_str().trim_end_matches('.').to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Prefix {
    type Error = TextError;
    fn try_from(text: String) -> Result<Self, TextError> {
        Self::parse(&text)
    }
}

impl From<Prefix> for String {
    fn from(prefix: Prefix) -> Self {
        prefix.0
    }
}

/// Reads an optional field that, if it is there, must have a value: `null` is refused, since it is not the same as
/// leaving the field out.
///
/// # Errors
/// Those of the value.
pub fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Reads what must be an object: serde by itself would take a list of the fields' values as well.
///
/// # Errors
/// If it is anything else, and those of the fields.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct Object<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(fields))
        }
    }

    deserializer.deserialize_any(Object(PhantomData))
}

/// Reads a list of at most `MAX` objects.
///
/// # Errors
/// If there are more, and those of the items.
pub fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MAX: usize>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct Item<T>(T);

    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Item<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            object(deserializer).map(Self)
        }
    }

    let items: Vec<Item<T>> = list::<D, Item<T>, MAX>(deserializer)?;
    Ok(items.into_iter().map(|Item(item)| item).collect())
}

/// Reads a list of at most `MAX` items, and stops reading when there are more.
///
/// # Errors
/// If there are more, and those of the items.
pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MAX: usize>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct Items<T, const MAX: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX} items")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(item) = items.next_element()? {
                if list.len() == MAX {
                    return Err(de::Error::custom(format_args!("{OUT_OF_RANGE}there are more than {MAX} items")));
                }
                list.push(item);
            }
            Ok(list)
        }
    }

    deserializer.deserialize_seq(Items::<T, MAX>(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_what_a_key_could_begin_with() {
        assert_eq!(Prefix::parse("nightly/").unwrap().as_str(), "nightly/");
        assert_eq!(Prefix::parse("night ").unwrap().as_str(), "night ");
        assert_eq!(Prefix::parse(" night"), Err(TextError::OuterWhiteSpace));
        assert_eq!(Prefix::parse(""), Err(TextError::Empty));
    }

    #[test]
    fn a_number_of_the_wrong_size_is_told_from_what_is_no_whole_number() {
        let problem = |text: &str| serde_json::from_str::<Millis>(text).unwrap_err().to_string();
        assert!(problem("-1").starts_with(OUT_OF_RANGE));
        assert!(problem("1e30").starts_with(OUT_OF_RANGE));
        assert!(problem("1.5").starts_with("invalid type"));
        assert!(problem("\"5\"").starts_with("invalid type"));
        assert_eq!(serde_json::from_str::<Millis>("5000").unwrap(), Millis(5000));
    }
}
