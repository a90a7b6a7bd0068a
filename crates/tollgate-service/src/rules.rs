//! All rules of a configuration, and how a descriptor finds its own.

use crate::proto::Entry;
use crate::proxied::Mapping;
use crate::rule::Rule;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The rules of all domains.
#[derive(Debug, Default)]
pub struct Rules {
    /// The domains by name.
    pub domains: BTreeMap<String, Domain>,
    /// All rules, in the order of the files.
    pub all: Vec<Arc<Rule>>,
}

/// The rules of one domain.
#[derive(Debug, Default)]
pub struct Domain {
    /// The outermost level.
    pub level: Level,
    /// Whether a request that one rule refuses takes no token of any other.
    pub all_or_nothing: bool,
    /// The descriptors of requests that come over HTTP.
    pub http: Mapping,
}

/// The descriptors of one list, by their keys.
#[derive(Debug, Default)]
pub struct Level {
    by_key: BTreeMap<String, Values>,
}

/// The descriptors of one key.
#[derive(Debug, Default)]
struct Values {
    exact: HashMap<String, Node>,
    patterns: Vec<(Pattern, Node)>,
    any: Option<Node>,
}

/// A descriptor of a file.
#[derive(Debug, Default)]
pub struct Node {
    /// The rule, if the descriptor has one.
    pub rule: Option<Arc<Rule>>,
    /// The descriptors in it.
    pub level: Level,
}

/// A value with `*`, each of which stands for any text.
#[derive(Debug)]
struct Pattern {
    text: String,
    parts: Vec<String>,
}

impl Rules {
    /// Finds the rule of a descriptor. At each level the value itself comes first, then values with `*` in the order of
    /// the file, then the descriptor without a value. The rule is that of the last level, so a descriptor matches a rule
    /// of the same depth.
    pub fn find<'r>(domain: &'r Domain, entries: &[Entry]) -> Option<&'r Arc<Rule>> {
        let (last, outer) = entries.split_last()?;
        let level = outer.iter().try_fold(&domain.level, |level, entry| Some(&level.find(entry)?.level))?;
        level.find(last)?.rule.as_ref()
    }
}

impl Level {
    fn find(&self, entry: &Entry) -> Option<&Node> {
        let values = self.by_key.get(&entry.key)?;
        let value = String::from_utf8_lossy(&entry.value);
        let exact = values.exact.get(&*value);
        let pattern = || values.patterns.iter().find(|(pattern, _)| pattern.matches(&value)).map(|(_, node)| node);
        exact.or_else(pattern).or(values.any.as_ref())
    }

    /// Adds a descriptor. Returns false if there is one of this key and value.
    pub fn insert(&mut self, key: &str, value: &str, node: Node) -> bool {
        let values = self.by_key.entry(key.to_owned()).or_default();
        if value.is_empty() {
            values.any.is_none() && values.any.replace(node).is_none()
        } else if value.contains('*') {
            let is_new = !values.patterns.iter().any(|(pattern, _)| pattern.text == value);
            if is_new {
                values.patterns.push((Pattern::new(value), node));
            }
            is_new
        } else {
            let is_new = !values.exact.contains_key(value);
            if is_new {
                values.exact.insert(value.to_owned(), node);
            }
            is_new
        }
    }
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self { text: text.to_owned(), parts: text.split('*').map(str::to_owned).collect() }
    }

    /// Takes each part at its first place after the one before: if a value matches at all, it matches so.
    fn matches(&self, value: &str) -> bool {
        let [first, middle @ .., last] = &*self.parts else { return false };
        let Some(mut rest) = value.strip_prefix(&**first).and_then(|rest| rest.strip_suffix(&**last)) else {
            return false;
        };
        for part in middle {
            match rest.find(&**part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        true
    }
}
