//! JSON lines with the fields instant, key and cost.

use super::collector::Record;
use crate::event::parse_cost;
use crate::instant::{self, Unit};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Numbers are kept as they are written, so that no digit is lost.
#[derive(Deserialize)]
struct Line<'l> {
    #[serde(borrow)]
    instant: &'l RawValue,
    #[serde(borrow)]
    key: Option<&'l RawValue>,
    #[serde(borrow)]
    cost: Option<&'l RawValue>,
}

pub(super) fn record(line: &str, unit: Unit) -> Result<Record<'_>, String> {
    let parsed: Line<'_> = serde_json::from_str(line).map_err(|error| malformed(&error))?;
    Ok(Record {
        at: instant::parse(&text(parsed.instant), unit)?,
        key: parsed.key.map_or(Cow::Borrowed(""), text),
        cost: parsed.cost.map_or(Ok(1), |cost| parse_cost(&text(cost)))?,
    })
}

/// A string without its quotes, or any other value as it is written.
fn text(value: &RawValue) -> Cow<'_, str> {
    let raw = value.get();
    match raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) if !inner.contains('\\') => Cow::Borrowed(inner),
        Some(_) => serde_json::from_str::<String>(raw).map_or(Cow::Borrowed(raw), Cow::Owned),
        None => Cow::Borrowed(raw),
    }
}

fn malformed(error: &serde_json::Error) -> String {
    let reason = error.to_string().replace(" at line 1 column", ", column");
    format!(r#"{reason}: write an object such as {{"instant":12.5,"key":"ann","cost":1}}"#)
}
