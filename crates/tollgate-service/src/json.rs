//! How numbers, units, codes and times of the protocol are read and written as JSON, in the mapping of protocol buffers.

use crate::proto::{Code, Span, UInt64Value, Unit};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText<N> {
    Number(N),
    Text(String),
}

/// Numbers of 64 bits are texts in this mapping, and either form is read for all.
fn long<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match NumberOrText::deserialize(deserializer)? {
        NumberOrText::Number(number) => Ok(number),
        NumberOrText::Text(text) => text.parse().map_err(D::Error::custom),
    }
}

pub(crate) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    long(deserializer).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

pub(crate) fn value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<UInt64Value>, D::Error> {
    long(deserializer).map(|value| Some(UInt64Value { value }))
}

/// A unit is a number, or a name in small or capital letters.
pub(crate) fn unit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    Ok(match NumberOrText::deserialize(deserializer)? {
        NumberOrText::Number(number) => number,
        NumberOrText::Text(name) => Unit::named(&name).map_or(0, |unit| unit as i32),
    })
}

pub(crate) fn unit_name<S: Serializer>(unit: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&Unit::try_from(*unit).unwrap_or(Unit::Unknown).name().to_uppercase())
}

pub(crate) fn code<S: Serializer>(code: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match Code::try_from(*code) {
        Ok(Code::Ok) => "OK",
        Ok(Code::OverLimit) => "OVER_LIMIT",
        Ok(Code::Unknown) | Err(_) => "UNKNOWN",
    })
}

pub(crate) fn span<S: Serializer>(span: &Option<Span>, serializer: S) -> Result<S::Ok, S::Error> {
    match span.unwrap_or_default() {
        Span { seconds, nanos: 0 } => serializer.collect_str(&format_args!("{seconds}s")),
        Span { seconds, nanos } => serializer.collect_str(&format_args!("{seconds}.{nanos:09}s")),
    }
}

pub(crate) fn is_zero(number: &u32) -> bool {
    *number == 0
}
