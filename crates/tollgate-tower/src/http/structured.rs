//! `RateLimit-Policy` and `RateLimit`: lists of RFC 9651.

use super::format::Unit;
use super::items::{MOST_ITEMS, QuotaPolicy, ServiceLimit, integer};
use super::limits::RateLimits;
use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, Item, ItemSerializer, List, ListEntry, Parser};
use std::borrow::Cow;
use std::sync::Arc;

pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Room for the list of a quota or two.
const USUAL_LENGTH: usize = 96;

/// Appends one list to each of the two fields.
pub(super) fn write(rate_limits: &RateLimits, headers: &mut HeaderMap) {
    let mut policies = ItemList::new();
    for policy in &rate_limits.policies {
        policies.begin(&policy.name);
        policies.number(";q=", policy.quota);
        if policy.unit != Unit::Requests {
            policies.parameter(";qu=").string(policy.unit.as_str());
        }
        if let Some(window) = policy.window {
            policies.number(";w=", window.max(1));
        }
        policies.partition_key(policy.partition_key.as_deref());
        if let Some(burst) = policy.burst {
            policies.number(";tollgate-burst=", burst);
        }
    }
    append(headers, POLICY, &policies.0);

    let mut limits = ItemList(cleared(policies.0));
    for limit in &rate_limits.limits {
        limits.begin(&limit.name);
        limits.number(";r=", limit.available);
        if let Some(window) = limit.window {
            limits.number(";t=", window);
        }
        limits.partition_key(limit.partition_key.as_deref());
    }
    append(headers, LIMIT, &limits.0);
}

/// A list of strings with parameters, as RFC 9651 writes it. The serializer of `sfv` makes a response several times as
/// expensive: it checks its input again, and formats numbers with `fmt`.
struct ItemList(String);

impl ItemList {
    fn new() -> Self {
        Self(String::with_capacity(USUAL_LENGTH))
    }

    /// Begins an item.
    fn begin(&mut self, name: &str) {
        if !self.0.is_empty() {
            self.0.push_str(", ");
        }
        self.string(name);
    }

    /// Begins a parameter whose value comes next.
    fn parameter(&mut self, key: &str) -> &mut Self {
        self.0.push_str(key);
        self
    }

    fn number(&mut self, key: &str, number: u64) {
        self.parameter(key).0.push_str(itoa::Buffer::new().format(integer(number)));
    }

    fn string(&mut self, text: &str) {
        self.0.push('"');
        if text.bytes().all(|byte| matches!(byte, 0x20..=0x7e) && !matches!(byte, b'"' | b'\\')) {
            self.0.push_str(text);
        } else {
            for letter in plain(text).chars() {
                if matches!(letter, '"' | '\\') {
                    self.0.push('\\');
                }
                self.0.push(letter);
            }
        }
        self.0.push('"');
    }

    fn partition_key(&mut self, key: Option<&[u8]>) {
        if let Some(key) = key {
            ItemSerializer::with_buffer(&mut self.parameter(";pk=").0).bare_item(key);
        }
    }
}

/// The memory of a text that is not needed any more.
fn cleared(mut text: String) -> String {
    text.clear();
    text
}

/// Appends `list` as a field. A list without members is not written.
fn append(headers: &mut HeaderMap, name: HeaderName, list: &str) {
    if !list.is_empty() {
        headers.append(name, HeaderValue::from_str(list).expect("structured fields are printable ASCII"));
    }
}

/// Escapes a name: a string of RFC 9651 holds printable ASCII only, and a name may contain anything.
fn plain(name: &str) -> Cow<'_, str> {
    let is_plain = name.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    if is_plain { Cow::Borrowed(name) } else { Cow::Owned(name.escape_default().to_string()) }
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
