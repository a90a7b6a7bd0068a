//! How many prompts a field `prompt` has.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The number of texts in a list of them, where each is a string or a list of tokens. A single text is one, and so is a
/// single list of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PromptCount(pub(crate) u64);

impl<'de> Deserialize<'de> for PromptCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = deserializer.deserialize_any(Texts { is_outer: true })?;
        Ok(Self(texts.max(1)))
    }
}

/// Counts the texts of a value. Within a list each list is one text, and is skipped.
#[derive(Clone, Copy)]
struct Texts {
    is_outer: bool,
}

impl<'de> serde::de::DeserializeSeed<'de> for Texts {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Texts {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<u64, A::Error> {
        if !self.is_outer {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(1);
        }
        let mut texts = 0;
        while let Some(text) = list.next_element_seed(Self { is_outer: false })? {
            texts += text;
        }
        Ok(texts)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<u64, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(1)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<u64, E> {
        Ok(1)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_unit<E: Error>(self) -> Result<u64, E> {
        Ok(0)
    }
}

#[test]
fn texts_and_lists_of_tokens_are_counted() {
    for (prompt, expected) in [
        ("\"a\"", 1),
        ("null", 1),
        ("[]", 1),
        ("[1,2,3]", 1),
        ("[\"a\",\"b\",\"c\"]", 3),
        ("[[1,2],[3],[[[]]]]", 3),
        ("[\"a\",[1],{\"b\":[]},null,true,1.5,-1]", 3),
        ("{\"id\":[\"a\",\"b\"]}", 1),
        ("7", 1),
    ] {
        assert_eq!(serde_json::from_str::<PromptCount>(prompt).unwrap().0, expected, "{prompt}");
    }
}
