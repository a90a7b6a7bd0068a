//! In every format, quotas are serialized as their text.

use super::Quota;
#[cfg(feature = "keyed")]
use crate::Quotas;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "keyed")]
impl Serialize for Quotas {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.to_string();
        if text.parse().as_ref() == Ok(self) {
            return serializer.serialize_str(&text);
        }
        let why = "quotas are written as text: there must be one, and no name may have a `;` or a space at an end";
        Err(serde::ser::Error::custom(why))
    }
}

macro_rules! deserialize_as_text {
    ($type:ty) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}

deserialize_as_text!(Quota);
#[cfg(feature = "keyed")]
deserialize_as_text!(Quotas);
