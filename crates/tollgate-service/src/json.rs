//! Requests and answers as JSON, in the mapping of protocol buffers.

use crate::proto::{
    Code, CurrentLimit, Descriptor, DescriptorStatus, Entry, HeaderValue, LimitOverride, RateLimitRequest,
    RateLimitResponse, Span, UInt64Value, Unit,
};
use serde::{Deserialize, Deserializer, Serialize};

/// A request. Keys may be written as `hitsAddend` or `hits_addend`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JsonRequest {
    #[serde(default)]
    domain: String,
    #[serde(default)]
    descriptors: Vec<JsonDescriptor>,
    #[serde(default, alias = "hits_addend", deserialize_with = "number")]
    hits_addend: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsonDescriptor {
    #[serde(default)]
    entries: Vec<JsonEntry>,
    limit: Option<JsonOverride>,
    #[serde(default, alias = "hits_addend", deserialize_with = "some_number")]
    hits_addend: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonEntry {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsonOverride {
    #[serde(default, alias = "requests_per_unit", deserialize_with = "number")]
    requests_per_unit: u64,
    #[serde(default)]
    unit: JsonUnit,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum JsonUnit {
    Number(i32),
    Name(String),
}

impl Default for JsonUnit {
    fn default() -> Self {
        Self::Number(0)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum JsonNumber {
    Number(u64),
    Text(String),
}

/// Numbers of 64 bits are texts in this mapping, and either form is read for all.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match JsonNumber::deserialize(deserializer)? {
        JsonNumber::Number(number) => Ok(number),
        JsonNumber::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

fn some_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    number(deserializer).map(Some)
}

impl JsonRequest {
    /// Reads a request.
    ///
    /// # Errors
    ///
    /// Returns what is wrong, with line and column.
    pub fn read(body: &[u8]) -> Result<RateLimitRequest, serde_json::Error> {
        serde_json::from_slice::<Self>(body).map(Into::into)
    }
}

impl From<JsonRequest> for RateLimitRequest {
    fn from(request: JsonRequest) -> Self {
        Self {
            domain: request.domain,
            descriptors: request.descriptors.into_iter().map(Into::into).collect(),
            hits_addend: u32::try_from(request.hits_addend).unwrap_or(u32::MAX),
        }
    }
}

impl From<JsonDescriptor> for Descriptor {
    fn from(descriptor: JsonDescriptor) -> Self {
        let entry = |entry: JsonEntry| Entry { key: entry.key, value: entry.value };
        let limit = |limit: JsonOverride| LimitOverride {
            requests_per_unit: u32::try_from(limit.requests_per_unit).unwrap_or(u32::MAX),
            unit: match limit.unit {
                JsonUnit::Number(number) => number,
                JsonUnit::Name(name) => Unit::named(&name).map_or(0, |unit| unit as i32),
            },
        };
        Self {
            entries: descriptor.entries.into_iter().map(entry).collect(),
            limit: descriptor.limit.map(limit),
            hits_addend: descriptor.hits_addend.map(|value| UInt64Value { value }),
        }
    }
}

/// An answer. Values that are 0 or empty are left out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JsonResponse<'a> {
    overall_code: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<JsonStatus<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    response_headers_to_add: Vec<JsonHeader<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonStatus<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<JsonLimit<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonLimit<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    requests_per_unit: u32,
    unit: String,
}

#[derive(Debug, Serialize)]
struct JsonHeader<'a> {
    key: &'a str,
    value: &'a str,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl<'a> From<&'a RateLimitResponse> for JsonResponse<'a> {
    fn from(response: &'a RateLimitResponse) -> Self {
        let header = |HeaderValue { key, value }: &'a HeaderValue| JsonHeader { key, value };
        Self {
            overall_code: code(response.overall_code),
            statuses: response.statuses.iter().map(Into::into).collect(),
            response_headers_to_add: response.response_headers_to_add.iter().map(header).collect(),
        }
    }
}

impl<'a> From<&'a DescriptorStatus> for JsonStatus<'a> {
    fn from(status: &'a DescriptorStatus) -> Self {
        let limit = |limit: &'a CurrentLimit| JsonLimit {
            name: &limit.name,
            requests_per_unit: limit.requests_per_unit,
            unit: Unit::try_from(limit.unit).unwrap_or(Unit::Unknown).name().to_uppercase(),
        };
        Self {
            code: code(status.code),
            current_limit: status.current_limit.as_ref().map(limit),
            limit_remaining: status.limit_remaining,
            duration_until_reset: status.duration_until_reset.map(|Span { seconds, nanos }| match nanos {
                0 => format!("{seconds}s"),
                _ => format!("{seconds}.{nanos:09}s"),
            }),
        }
    }
}

fn code(code: i32) -> &'static str {
    match Code::try_from(code) {
        Ok(Code::Ok) => "OK",
        Ok(Code::OverLimit) => "OVER_LIMIT",
        Ok(Code::Unknown) | Err(_) => "UNKNOWN",
    }
}
