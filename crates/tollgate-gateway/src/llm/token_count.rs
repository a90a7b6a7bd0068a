//! Numbers of tokens in a request.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// A number of tokens as clients write it. Anything that a lenient server may read as another number is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenCount(pub(crate) u64);

impl<'de> Deserialize<'de> for TokenCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

struct CountVisitor;

impl Visitor<'_> for CountVisitor {
    type Value = TokenCount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of at least 0")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<TokenCount, E> {
        Ok(TokenCount(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<TokenCount, E> {
        u64::try_from(number).map(TokenCount).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<TokenCount, E> {
        if number.is_finite() && number >= 0.0 {
            // The cast saturates.
            Ok(TokenCount(number.ceil() as u64))
        } else {
            Err(E::invalid_value(Unexpected::Float(number), &self))
        }
    }
}
