//! Fencing tokens, and the lease ids made of them.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A positive integer below 2^53 (so that every JSON reader has it exactly), unique in a database and, for one key,
/// greater with every later grant. A resource that remembers the greatest token it has seen can refuse older holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct FencingToken(u64);

impl FencingToken {
    /// The greatest token there can be: 2^53 - 1.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A token from its number.
    ///
    /// # Errors
    /// `None` for 0 and from 2^53 on.
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number == 0 || number > Self::MAX.0 { None } else { Some(Self(number)) }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as databases hold it.
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        // Below 2^53, so it always fits.
        self.0.cast_signed()
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = &'static str;
    fn try_from(number: u64) -> Result<Self, Self::Error> {
        Self::new(number).ok_or("a fencing token lies between 1 and 2^53 - 1")
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Names one lease: `ls_` and the fencing token in eleven digits of Crockford's base 32, lower case.
///
/// Being the token in another dress, it leads straight to the row of the grant. It is a name, not a secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Cow<'_, str>", into = "String")]
pub struct LeaseId(FencingToken);

/// The text is not the id of a lease that this product could have given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a lease id: ls_ and eleven characters")]
pub struct LeaseIdError;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const DIGITS: usize = 11;

impl LeaseId {
    /// The token of the lease.
    #[must_use]
    pub const fn token(self) -> FencingToken {
        self.0
    }

    /// Reads an id as it was given out.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn parse(text: &str) -> Result<Self, LeaseIdError> {
        let digits = text.strip_prefix("ls_").filter(|digits| digits.len() == DIGITS).ok_or(LeaseIdError)?;
        let mut number = 0_u64;
        for byte in digits.bytes() {
            let digit = ALPHABET.iter().position(|&letter| letter == byte).ok_or(LeaseIdError)?;
            number = number * 32 + digit as u64;
        }
        FencingToken::new(number).map(Self).ok_or(LeaseIdError)
    }
}

impl From<FencingToken> for LeaseId {
    fn from(token: FencingToken) -> Self {
        Self(token)
    }
}

impl TryFrom<Cow<'_, str>> for LeaseId {
    type Error = LeaseIdError;
    fn try_from(text: Cow<'_, str>) -> Result<Self, LeaseIdError> {
        Self::parse(&text)
    }
}

impl From<LeaseId> for String {
    fn from(id: LeaseId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = *b"ls_00000000000";
        let mut number = self.0.get();
        for slot in out[3..].iter_mut().rev() {
            // The remainder is below 32, the length of the alphabet.
            *slot = ALPHABET[(number % 32) as usize];
            number /= 32;
        }
        f.write_str(std::str::from_utf8(&out).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_id_is_its_token_in_another_dress() {
        for number in [1, 31, 32, 1_783_111_299_469_980, FencingToken::MAX.get()] {
            let id = LeaseId::from(FencingToken::new(number).unwrap());
            assert_eq!(id.to_string().len(), 14);
            assert_eq!(LeaseId::parse(&id.to_string()), Ok(id));
        }
        for text in
            ["", "ls_", "ls_00000000000", "ls_0000000000u", "LS_00000000001", "ls_zzzzzzzzzzz", "ls_000000000001"]
        {
            assert_eq!(LeaseId::parse(text), Err(LeaseIdError), "{text}");
        }
    }
}
