//! The configuration: from files to rules, with all problems at once.

mod limit;

use crate::bucket::Bucket;
use crate::fields::{Fields, shortened};
use crate::meter::Meters;
use crate::problem::{Problem, Source};
use crate::proxied::{Mapping, Part, no_part};
use crate::rule::{Level, Path, Rule};
use crate::rules::{Node as RuleNode, Rules};
use crate::store::SharedStore;
use crate::terms::{Outage, Terms};
use crate::yaml::{self, Node, Value, scalar};
use std::mem;
use std::sync::Arc;

const ROOT: &[&str] = &["domain", "descriptors", "all_or_nothing", "http"];
#[rustfmt::skip]
const DESCRIPTOR: &[&str] = &[
    "key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric",
    "share_threshold", "metadata", "wait", "max_waiting", "classes", "weight", "burst", "sliding", "time_zone",
    "outage",
];
#[rustfmt::skip]
const RATE_LIMIT: &[&str] = &[
    "unit", "requests_per_unit", "unlimited", "name", "replaces", "burst", "wait", "max_waiting", "classes", "weight",
    "sliding", "time_zone", "outage",
];
const MOST_LIMITS: usize = 4;

/// A configuration that is free of problems.
#[derive(Debug)]
pub struct Loaded {
    /// The rules.
    pub rules: Rules,
    /// What the author should know, although it is no mistake.
    pub notes: Vec<Problem>,
}

/// How files are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether several files may have the same domain.
    pub merge_domains: bool,
    /// Whether several instances share the limits.
    pub is_shared: bool,
    /// Whether all rules are in quota mode.
    pub quota_mode: bool,
}

/// Reads a configuration.
///
/// # Errors
///
/// Returns all problems, in the order of the files, and then those of rules that do not go together.
pub fn load(sources: &[Arc<Source>], options: Options, meters: &Meters) -> Result<Loaded, Vec<Problem>> {
    let mut loader = Loader { options, rules: Rules::default(), problems: Vec::new(), notes: Vec::new() };
    for source in sources {
        match yaml::read(source) {
            Err(problem) => loader.problems.push(problem),
            Ok(documents) => documents.iter().for_each(|document| loader.document(document)),
        }
    }
    loader.imply_all_or_nothing();
    if loader.problems.is_empty() {
        loader.rules.all.iter().for_each(|rule| rule.count_among(meters));
        Ok(Loaded { rules: loader.rules, notes: loader.notes })
    } else {
        Err(loader.problems)
    }
}

struct Loader {
    options: Options,
    rules: Rules,
    problems: Vec<Problem>,
    notes: Vec<Problem>,
}

impl Loader {
    fn document(&mut self, document: &Node) {
        let fields = Fields::of(document, "a file", ROOT, &mut self.problems);
        let name = fields.text("domain", &mut self.problems);
        let all_or_nothing = fields.flag("all_or_nothing", &mut self.problems);
        let descriptors = fields.list("descriptors", &mut self.problems);
        let mapping = fields.list("http", &mut self.problems);
        let http: Mapping = mapping.iter().map(|descriptor| self.mapping(descriptor)).collect();
        let Some(name) = name else {
            if matches!(document.value, Value::Map(_)) {
                self.problems.push(Problem::at(fields.place(), "a file has a `domain`, and this one has none"));
            }
            return;
        };
        let is_known = self.rules.domains.contains_key(name);
        if is_known && !self.options.merge_domains {
            let text = format!(
                "domain `{}` is configured twice: join the files, or set MERGE_DOMAIN_CONFIG=true",
                shortened(name)
            );
            self.problems.push(Problem::at(fields.place_of("domain"), text));
        }
        let mut domain = self.rules.domains.remove(name).unwrap_or_default();
        domain.all_or_nothing |= all_or_nothing;
        if let Some(node) = fields.get("all_or_nothing").filter(|_| all_or_nothing && self.options.is_shared) {
            let text = "several limits in a store cannot be charged all or none: remove `all_or_nothing`";
            self.problems.push(Problem::at(&node.place, text));
        }
        domain.http.extend(http);
        let path = Path { domain: name.into(), levels: Vec::new(), named: Vec::new() };
        descriptors.iter().for_each(|node| self.descriptor(node, &path, &mut domain.level));
        self.rules.domains.insert(name.to_owned(), domain);
    }

    /// Reads which parts of an HTTP request make up a descriptor.
    fn mapping(&mut self, node: &Node) -> Vec<(String, Part)> {
        let Value::Map(entries) = &node.value else {
            let text = format!("a descriptor of `http` maps keys to parts of a request, and this is {}", node.kind());
            self.problems.push(Problem::at(&node.place, text));
            return Vec::new();
        };
        let mut parts = Vec::new();
        for (key, part) in entries {
            let text = scalar(part).unwrap_or_default();
            match (scalar(key), Part::parse(text)) {
                (Some(key), Some(part)) => parts.push((key.to_owned(), part)),
                _ => self.problems.push(Problem::at(&part.place, no_part(text))),
            }
        }
        parts
    }

    /// A request that waits in one rule and is refused by another would have waited in vain, and paid. Limits in a store
    /// are charged one after the other.
    fn imply_all_or_nothing(&mut self) {
        let Rules { domains, all } = &mut self.rules;
        for rule in &*all {
            let Some(domain) = domains.get_mut(&*rule.domain) else { continue };
            let waits = rule.terms.wait.is_some() || rule.terms.classes.is_some();
            if waits && !domain.all_or_nothing && !self.options.is_shared {
                let text = format!("requests wait here, so domain `{}` is `all_or_nothing`", shortened(&rule.domain));
                self.notes.push(Problem::at(&rule.place, text));
                domain.all_or_nothing = true;
            }
        }
        for rule in all.iter().filter(|rule| rule.terms.quota) {
            let domain = domains.get_mut(&*rule.domain);
            // Said once for each domain.
            if domain.is_some_and(|domain| mem::take(&mut domain.all_or_nothing)) {
                let text = "`quota_mode`, also as QUOTA_MODE, lets one of several rules refuse, and `all_or_nothing` does \
                            not: choose one";
                self.problems.push(Problem::at(&rule.place, text));
            }
        }
    }

    fn descriptor(&mut self, node: &Node, path: &Path, level: &mut crate::rules::Level) {
        let fields = Fields::of(node, "a descriptor", DESCRIPTOR, &mut self.problems);
        let problems = &mut self.problems;
        let key = fields.text("key", problems);
        let value = fields.text("value", problems).unwrap_or("");
        let share = fields.flag("share_threshold", problems);
        let names_value = fields.flag("value_to_metric", problems);
        if share && !value.contains('*') {
            let text = "`share_threshold` is for values with `*`, which then share the limit";
            problems.push(Problem::at(fields.place_of("share_threshold"), text));
        }
        let Some(key) = key else {
            if matches!(node.value, Value::Map(_)) {
                problems.push(Problem::at(fields.place(), "a descriptor has a `key`, and this one has none"));
            }
            return;
        };
        let is_open = value.is_empty() || (value.contains('*') && !share);
        let mut path = path.clone();
        if names_value && is_open {
            path.named.push(path.levels.len());
        }
        path.levels.push(Level { key: key.into(), value: value.into(), is_open });
        let rule = self.rule(&fields, &path);
        let mut descriptor = RuleNode { rule, ..RuleNode::default() };
        let nested = fields.list("descriptors", &mut self.problems);
        nested.iter().for_each(|node| self.descriptor(node, &path, &mut descriptor.level));
        let rule = descriptor.rule.clone();
        if level.insert(key, value, descriptor) {
            self.rules.all.extend(rule);
        } else {
            let with = if value.is_empty() { String::new() } else { format!(" with value `{}`", shortened(value)) };
            let text = format!("key `{}`{with} is in this list twice: remove one", shortened(key));
            self.problems.push(Problem::at(fields.place(), text));
        }
    }

    fn rule(&mut self, fields: &Fields<'_>, path: &Path) -> Option<Arc<Rule>> {
        let Some(node) = fields.get("rate_limit") else {
            for name in ["wait", "max_waiting", "classes", "weight", "burst", "sliding", "time_zone", "outage"] {
                if let Some(node) = fields.get(name) {
                    let text = format!("`{name}` is a part of a limit: add a `rate_limit` to this descriptor");
                    self.problems.push(Problem::at(&node.place, text));
                }
            }
            return None;
        };
        let items = match &node.value {
            Value::List(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        if !(1..=MOST_LIMITS).contains(&items.len()) {
            let text = format!("a list of limits has 1 to {MOST_LIMITS}, and this one has {}", items.len());
            self.problems.push(Problem::at(&node.place, text));
        }
        let known_problems = self.problems.len();
        let mut terms = Terms {
            shadow: fields.flag("shadow_mode", &mut self.problems),
            quota: fields.flag("quota_mode", &mut self.problems) || self.options.quota_mode,
            ..Terms::default()
        };
        let mut path = path.clone();
        limit::waiting(fields, &mut terms, &path.levels, &mut self.problems);
        for item in items {
            let limit = Fields::of(item, "a rate limit", RATE_LIMIT, &mut self.problems);
            limit::names(&limit, &mut terms, &mut self.problems);
            limit::waiting(&limit, &mut terms, &path.levels, &mut self.problems);
            limit::limit(&limit, fields, items.len(), &mut terms, &mut self.problems);
        }
        if fields.flag("detailed_metric", &mut self.problems) {
            // A level whose values share the limit counts under its pattern.
            path.named = (0..path.levels.len()).filter(|&index| path.levels[index].is_open).collect();
        }
        if terms.outage == Outage::Wait && terms.wait.is_none() {
            let text = "`outage: wait` waits no longer than `wait` says: add a `wait`";
            self.problems.push(Problem::at(&node.place, text));
        }
        if self.problems.len() > known_problems {
            return None;
        }
        if let Err(error) = Bucket::check(&terms) {
            self.problems.push(Problem::at(&node.place, format!("this limit cannot be kept: {error}")));
            return None;
        }
        if let Some(text) = SharedStore::refuses(&terms).filter(|_| self.options.is_shared) {
            self.problems.push(Problem::at(&node.place, text));
            return None;
        }
        Some(Arc::new(Rule::new(path, terms, node.place.clone())))
    }
}
