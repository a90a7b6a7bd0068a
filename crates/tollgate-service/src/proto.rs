//! The messages of Envoy's rate limit service, version 3, as far as this service reads and writes them.
//!
//! The numbers of the fields are those of `envoy/service/ratelimit/v3/rls.proto` and
//! `envoy/extensions/common/ratelimit/v3/ratelimit.proto`. Fields that are left out here are skipped when read.
//! As JSON, a request with an unknown field is refused, its fields may be written as `hitsAddend` or `hits_addend`, and
//! values of an answer that are 0 or empty are left out.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `envoy.service.ratelimit.v3.RateLimitRequest`
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct RateLimitRequest {
    /// The domain, whose rules count.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// What is limited: each descriptor finds a rule of its own.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<Descriptor>,
    /// How many tokens each descriptor takes; 0 means 1.
    #[prost(uint32, tag = "3")]
    #[serde(alias = "hits_addend", deserialize_with = "number")]
    pub hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Descriptor {
    /// Keys and values, from the outermost to the innermost.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// A limit in place of the configured one.
    #[prost(message, optional, tag = "2")]
    pub limit: Option<LimitOverride>,
    /// How many tokens this descriptor takes, in place of the request's number. It may be 0.
    #[prost(message, optional, tag = "3")]
    #[serde(alias = "hits_addend", deserialize_with = "value")]
    pub hits_addend: Option<UInt64Value>,
}

/// `RateLimitDescriptor.Entry`
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// The key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value. It need not be text: Envoy sends the bytes of a header field as they are.
    #[prost(bytes = "vec", tag = "2")]
    #[serde(deserialize_with = "bytes")]
    pub value: Vec<u8>,
}

/// `RateLimitDescriptor.RateLimitOverride`
#[derive(Clone, Copy, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitOverride {
    /// The requests per unit.
    #[prost(uint32, tag = "1")]
    #[serde(alias = "requests_per_unit", deserialize_with = "number")]
    pub requests_per_unit: u32,
    /// The unit.
    #[prost(enumeration = "Unit", tag = "2")]
    #[serde(deserialize_with = "unit")]
    pub unit: i32,
}

/// `google.protobuf.UInt64Value`
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct UInt64Value {
    /// The number.
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse`
#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitResponse {
    /// Whether the request passes.
    #[prost(enumeration = "Code", tag = "1")]
    #[serde(serialize_with = "code")]
    pub overall_code: i32,
    /// One for each descriptor, in their order.
    #[prost(message, repeated, tag = "2")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub statuses: Vec<DescriptorStatus>,
    /// Header fields for the response to the client.
    #[prost(message, repeated, tag = "3")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub response_headers_to_add: Vec<HeaderValue>,
}

/// `RateLimitResponse.DescriptorStatus`
#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DescriptorStatus {
    /// Whether the descriptor is within its limit.
    #[prost(enumeration = "Code", tag = "1")]
    #[serde(serialize_with = "code")]
    pub code: i32,
    /// The limit that counted, if there is one.
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_limit: Option<CurrentLimit>,
    /// How many tokens are left.
    #[prost(uint32, tag = "3")]
    #[serde(skip_serializing_if = "is_zero")]
    pub limit_remaining: u32,
    /// The time until the limit is full again.
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "span")]
    pub duration_until_reset: Option<Span>,
}

/// `RateLimitResponse.RateLimit`
#[derive(Clone, PartialEq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CurrentLimit {
    /// The requests per unit.
    #[prost(uint32, tag = "1")]
    #[serde(skip_serializing_if = "is_zero")]
    pub requests_per_unit: u32,
    /// The unit.
    #[prost(enumeration = "Unit", tag = "2")]
    #[serde(serialize_with = "unit_name")]
    pub unit: i32,
    /// The name of the limit, if it has one.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: String,
}

/// `google.protobuf.Duration`
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Span {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds of the last second.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// `envoy.config.core.v3.HeaderValue`
#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub struct HeaderValue {
    /// The name of the field.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// `RateLimitResponse.Code`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Code {
    /// Never sent.
    Unknown = 0,
    /// Within the limit.
    Ok = 1,
    /// Over the limit.
    OverLimit = 2,
}

/// `RateLimitResponse.RateLimit.Unit`, which also has the numbers of `envoy.type.v3.RateLimitUnit`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Unit {
    /// Not a unit.
    Unknown = 0,
    /// A second.
    Second = 1,
    /// A minute.
    Minute = 2,
    /// An hour.
    Hour = 3,
    /// A day of 24 hours.
    Day = 4,
    /// 30 days.
    Month = 5,
    /// 365 days.
    Year = 6,
    /// 7 days.
    Week = 7,
}

impl Unit {
    /// All units, from the shortest.
    pub const ALL: [Self; 7] = [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// Returns the unit of this name, in small or capital letters.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }

    /// Returns the length of the unit in seconds; 0 for none.
    pub const fn seconds(self) -> u64 {
        self.name_and_seconds().1
    }

    /// Returns the name of the unit in a configuration file; empty for none.
    pub const fn name(self) -> &'static str {
        self.name_and_seconds().0
    }

    const fn name_and_seconds(self) -> (&'static str, u64) {
        match self {
            Self::Unknown => ("", 0),
            Self::Second => ("second", 1),
            Self::Minute => ("minute", 60),
            Self::Hour => ("hour", 3_600),
            Self::Day => ("day", 86_400),
            Self::Week => ("week", 7 * 86_400),
            Self::Month => ("month", 30 * 86_400),
            Self::Year => ("year", 365 * 86_400),
        }
    }
}

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

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    long(deserializer).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

fn value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<UInt64Value>, D::Error> {
    long(deserializer).map(|value| Some(UInt64Value { value }))
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    String::deserialize(deserializer).map(String::into_bytes)
}

/// A unit is a number, or a name in small or capital letters.
fn unit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    Ok(match NumberOrText::deserialize(deserializer)? {
        NumberOrText::Number(number) => number,
        NumberOrText::Text(name) => Unit::named(&name).map_or(0, |unit| unit as i32),
    })
}

fn unit_name<S: Serializer>(unit: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&Unit::try_from(*unit).unwrap_or(Unit::Unknown).name().to_uppercase())
}

fn code<S: Serializer>(code: &i32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match Code::try_from(*code) {
        Ok(Code::Ok) => "OK",
        Ok(Code::OverLimit) => "OVER_LIMIT",
        Ok(Code::Unknown) | Err(_) => "UNKNOWN",
    })
}

fn span<S: Serializer>(span: &Option<Span>, serializer: S) -> Result<S::Ok, S::Error> {
    match span.unwrap_or_default() {
        Span { seconds, nanos: 0 } => serializer.collect_str(&format_args!("{seconds}s")),
        Span { seconds, nanos } => serializer.collect_str(&format_args!("{seconds}.{nanos:09}s")),
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}
