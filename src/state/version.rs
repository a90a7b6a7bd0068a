//! The version of a state, which is written and read before everything else.

use super::StateError;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

const VERSION: u16 = 1;

/// What a state holds, written as `{ version, state }`.
///
/// Reading one of another version succeeds and gives an error in its place, which `build` returns: not every format keeps
/// the text of an error of its own, and what follows the version may have another form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Versioned<T>(pub(crate) Result<T, StateError>);

#[derive(Serialize)]
struct Form<'a, T> {
    version: u16,
    state: &'a T,
}

impl<T: Serialize> Serialize for Versioned<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let state = self.0.as_ref().map_err(ser::Error::custom)?;
        Form { version: VERSION, state }.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Versioned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("State", &["version", "state"], Reader(PhantomData)).map(Self)
    }
}

struct Reader<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Reader<T> {
    type Value = Result<T, StateError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a version and a state")
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let found = seq.next_element()?.ok_or_else(|| de::Error::missing_field("version"))?;
        if found != VERSION {
            return Ok(Err(other(found)));
        }
        seq.next_element()?.map(Ok).ok_or_else(|| de::Error::missing_field("state"))
    }

    /// The state may come before its version: some formats sort fields by their names.
    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut version, mut state) = (None, None);
        while let Some(field) = map.next_key::<Cow<'_, str>>()? {
            match &*field {
                "version" => version = Some(map.next_value()?),
                "state" if version.is_none_or(|found| found == VERSION) => state = Some(map.next_value()?),
                _ => _ = map.next_value::<de::IgnoredAny>()?,
            }
        }
        match version.ok_or_else(|| de::Error::missing_field("version"))? {
            VERSION => state.map(Ok).ok_or_else(|| de::Error::missing_field("state")),
            found => Ok(Err(other(found))),
        }
    }
}

fn other(found: u16) -> StateError {
    StateError::Version { found, expected: VERSION }
}
