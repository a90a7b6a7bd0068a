//! `RateLimit-Policy` and `RateLimit`: lists of RFC 9651.

use super::items::{MOST_ITEMS, QuotaPolicy, ServiceLimit, integer};
use super::limits::RateLimits;
use super::unit::Unit;
use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, Integer, Item, List, ListEntry, ListSerializer, Parser, StringRef, key_ref};
use std::borrow::Cow;
use std::sync::Arc;

pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Room for the list of a quota or two.
const USUAL_LENGTH: usize = 96;

/// Appends one list to each of the two fields.
pub(super) fn write(rate_limits: &RateLimits, headers: &mut HeaderMap) {
    let mut text = String::with_capacity(USUAL_LENGTH);
    let mut policies = ListSerializer::with_buffer(&mut text);
    for policy in &rate_limits.policies {
        let mut item = policies.bare_item(string(&plain(&policy.name)));
        item = item.parameter(key_ref("q"), number(policy.quota));
        if policy.unit != Unit::Requests {
            item = item.parameter(key_ref("qu"), string(&plain(policy.unit.as_str())));
        }
        if let Some(window) = policy.window {
            item = item.parameter(key_ref("w"), number(window.max(1)));
        }
        if let Some(key) = &policy.partition_key {
            item = item.parameter(key_ref("pk"), &**key);
        }
        if let Some(burst) = policy.burst {
            _ = item.parameter(key_ref("tollgate-burst"), number(burst));
        }
    }
    append(headers, POLICY, &text);

    text.clear();
    let mut limits = ListSerializer::with_buffer(&mut text);
    for limit in &rate_limits.limits {
        let mut item = limits.bare_item(string(&plain(&limit.name)));
        item = item.parameter(key_ref("r"), number(limit.available));
        if let Some(window) = limit.window {
            item = item.parameter(key_ref("t"), number(window));
        }
        if let Some(key) = &limit.partition_key {
            _ = item.parameter(key_ref("pk"), &**key);
        }
    }
    append(headers, LIMIT, &text);
}

/// Appends `list` as a field. A list without members is not written.
fn append(headers: &mut HeaderMap, name: HeaderName, list: &str) {
    if !list.is_empty() {
        headers.append(name, HeaderValue::from_str(list).expect("structured fields are printable ASCII"));
    }
}

fn number(number: u64) -> Integer {
    Integer::try_from(integer(number)).expect("no more than 15 digits")
}

/// Escapes a name: a string of RFC 9651 holds printable ASCII only, and a name may contain anything.
fn plain(name: &str) -> Cow<'_, str> {
    let is_plain = name.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    if is_plain { Cow::Borrowed(name) } else { Cow::Owned(name.escape_default().to_string()) }
}

fn string(plain: &str) -> &StringRef {
    StringRef::from_str(plain).expect("printable ASCII")
}

/// Reads both fields, and counts the items that are malformed or too many.
pub(super) fn read(headers: &HeaderMap) -> (RateLimits, u64) {
    let (policies, no_policies) = items(headers, &POLICY, policy);
    let (limits, no_limits) = items(headers, &LIMIT, limit);
    (RateLimits { policies, limits }, no_policies + no_limits)
}

/// Joins all fields of this name to one list, and reads its items. Also returns how many items were ignored. A malformed
/// list has no items, and counts as one.
fn items<T>(headers: &HeaderMap, name: &HeaderName, read: fn(&ListEntry) -> Option<T>) -> (Vec<T>, u64) {
    let mut joined = Vec::new();
    for value in headers.get_all(name) {
        if !joined.is_empty() {
            joined.extend_from_slice(b", ");
        }
        joined.extend_from_slice(value.as_bytes());
    }
    let Ok(list) = Parser::new(&joined).parse::<List>() else { return (Vec::new(), 1) };
    let items: Vec<T> = list.iter().filter_map(read).take(MOST_ITEMS).collect();
    let ignored = list.len() - items.len();
    (items, ignored as u64)
}

/// Reads a policy; an item that is not a policy is skipped.
fn policy(entry: &ListEntry) -> Option<QuotaPolicy> {
    let (name, item) = named(entry)?;
    let unit = match item.params.get("qu") {
        Some(unit) => Unit::from(unit.as_string()?.as_str()),
        None => Unit::Requests,
    };
    let window = optional(item, "w")?;
    Some(QuotaPolicy {
        name,
        quota: optional(item, "q")??,
        unit,
        window: if window == Some(0) { return None } else { window },
        partition_key: partition_key(item)?,
        // tollgate's own parameter: if it is malformed, the policy is still valid.
        burst: optional(item, "tollgate-burst").flatten(),
    })
}

fn limit(entry: &ListEntry) -> Option<ServiceLimit> {
    let (name, item) = named(entry)?;
    let (available, window) = (optional(item, "r")??, optional(item, "t")?);
    Some(ServiceLimit { name, available, window, partition_key: partition_key(item)? })
}

/// Reads the name of an item. The draft requires a string; its versions 08 and 09 had a token.
fn named(entry: &ListEntry) -> Option<(Arc<str>, &Item)> {
    let ListEntry::Item(item) = entry else { return None };
    let name = match &item.bare_item {
        BareItem::String(name) => name.as_str(),
        BareItem::Token(name) => name.as_str(),
        _ => return None,
    };
    Some((name.into(), item))
}

/// Reads a number that may be missing. Returns `None` if there is a value of another type.
fn optional(item: &Item, key: &str) -> Option<Option<u64>> {
    match item.params.get(key) {
        Some(value) => u64::try_from(i64::from(value.as_integer()?)).ok().map(Some),
        None => Some(None),
    }
}

fn partition_key(item: &Item) -> Option<Option<Arc<[u8]>>> {
    match item.params.get("pk") {
        Some(key) => Some(Some(key.as_byte_sequence()?.into())),
        None => Some(None),
    }
}
