//! The configuration: from files to rules, with all problems at once.

use crate::bucket::Bucket;
use crate::fields::{Fields, shortened};
use crate::meter::Meters;
use crate::problem::{Place, Problem, Source};
use crate::proto::Unit;
use crate::proxied::{Mapping, Part, no_part};
use crate::rule::{Level, Rule};
use crate::rules::{Domain, Node as RuleNode, Rules};
use crate::store::SharedStore;
use crate::terms::{Classes, Limit, Outage, Refill, Terms};
use crate::yaml::{self, Node, Value, scalar};
use std::sync::Arc;
use std::time::Duration;
use tollgate::Quota;

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
/// A proxy gives up after some seconds, or minutes at most.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
const MOST_WEIGHT: u32 = 1_000_000;

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
/// Returns all problems, in the order of the files.
pub fn load(sources: &[Arc<Source>], options: Options, meters: &Meters) -> Result<Loaded, Vec<Problem>> {
    let mut loader = Loader { options, meters, rules: Rules::default(), problems: Vec::new(), notes: Vec::new() };
    for source in sources {
        match yaml::read(source) {
            Err(problem) => loader.problems.push(problem),
            Ok(documents) => documents.iter().for_each(|document| loader.document(document)),
        }
    }
    if loader.problems.is_empty() {
        Ok(Loaded { rules: loader.rules, notes: loader.notes })
    } else {
        Err(loader.problems)
    }
}

struct Loader<'a> {
    options: Options,
    meters: &'a Meters,
    rules: Rules,
    problems: Vec<Problem>,
    notes: Vec<Problem>,
}

/// Where the loader is: the levels above, and the flags that they pass on.
#[derive(Clone)]
struct Path {
    domain: Arc<str>,
    levels: Vec<Level>,
}

impl Loader<'_> {
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
            let place = fields.get("domain").map_or(fields.place(), |node| &node.place);
            self.problems.push(Problem::at(place, text));
        }
        let first_rule = self.rules.all.len();
        let mut domain = self.rules.domains.remove(name).unwrap_or_default();
        domain.all_or_nothing |= all_or_nothing;
        if let Some(node) = fields.get("all_or_nothing").filter(|_| all_or_nothing && self.options.is_shared) {
            let text = "several limits in a store cannot be charged all or none: remove `all_or_nothing`";
            self.problems.push(Problem::at(&node.place, text));
        }
        domain.http.extend(http);
        let path = Path { domain: name.into(), levels: Vec::new() };
        descriptors.iter().for_each(|node| self.descriptor(node, &path, &mut domain.level));
        self.imply_all_or_nothing(&mut domain, name, first_rule);
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
    fn imply_all_or_nothing(&mut self, domain: &mut Domain, name: &str, first_rule: usize) {
        let rules = &self.rules.all[first_rule..];
        let waits = rules.iter().find(|rule| rule.terms.wait.is_some() || rule.terms.classes.is_some());
        if let Some(rule) = waits.filter(|_| !domain.all_or_nothing && !self.options.is_shared) {
            let text = format!("requests wait here, so domain `{}` is `all_or_nothing`", shortened(name));
            self.notes.push(Problem::at(&rule.place, text));
            domain.all_or_nothing = true;
        }
        let is_quota = |rule: &&Arc<Rule>| rule.terms.quota || self.options.quota_mode;
        if let Some(rule) = rules.iter().find(is_quota).filter(|_| domain.all_or_nothing) {
            let text = "`quota_mode`, also as QUOTA_MODE, lets one of several rules refuse, and `all_or_nothing` does \
                        not: choose one";
            self.problems.push(Problem::at(&rule.place, text));
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
            problems.push(Problem::at(fields.get("share_threshold").map_or(fields.place(), |node| &node.place), text));
        }
        let Some(key) = key else {
            if matches!(node.value, Value::Map(_)) {
                problems.push(Problem::at(fields.place(), "a descriptor has a `key`, and this one has none"));
            }
            return;
        };
        let is_open = value.is_empty() || (value.contains('*') && !share);
        let mut path = path.clone();
        path.levels.push(Level { key: key.into(), value: value.into(), is_open, names_value: names_value && is_open });
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
            quota: fields.flag("quota_mode", &mut self.problems),
            ..Terms::default()
        };
        let mut path = path.clone();
        self.waiting(fields, &mut terms, &mut path);
        for item in items {
            let limit = Fields::of(item, "a rate limit", RATE_LIMIT, &mut self.problems);
            self.names(&limit, &mut terms);
            self.waiting(&limit, &mut terms, &mut path);
            self.limit(&limit, fields, items.len(), &mut terms);
        }
        if fields.flag("detailed_metric", &mut self.problems) {
            for level in &mut path.levels {
                // A level whose values share the limit counts under its pattern.
                level.names_value = level.is_open;
            }
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
        Some(Arc::new(Rule::new(&path.domain, path.levels, terms, node.place.clone(), self.meters)))
    }

    fn names(&mut self, limit: &Fields<'_>, terms: &mut Terms) {
        if let Some(name) = limit.text("name", &mut self.problems) {
            terms.name = name.to_owned();
        }
        for item in limit.list("replaces", &mut self.problems) {
            let fields = Fields::of(item, "an entry of `replaces`", &["name"], &mut self.problems);
            match fields.text("name", &mut self.problems) {
                Some(name) if name == terms.name => {
                    self.problems.push(Problem::at(&item.place, "a rule cannot replace itself: name another rule"));
                }
                Some(name) => terms.replaces.push(name.to_owned()),
                None => self.problems.push(Problem::at(&item.place, "an entry of `replaces` has the `name` of a rule")),
            }
        }
    }

    /// Reads the extensions that concern all limits of a rule, which may be in the rule or beside it.
    fn waiting(&mut self, fields: &Fields<'_>, terms: &mut Terms, path: &mut Path) {
        let problems = &mut self.problems;
        if let Some(wait) = fields.time("wait", problems) {
            if wait > LONGEST_WAIT {
                let place = &fields.get("wait").unwrap_or_else(|| unreachable!("it was read")).place;
                problems
                    .push(Problem::at(place, format!("a request waits at most {LONGEST_WAIT:?}, which proxies allow")));
            }
            terms.wait = Some(wait);
        }
        let outage = |text| Outage::ALL.iter().find(|(name, _)| *name == text).map(|(_, outage)| *outage);
        if let Some(outage) = fields.parsed("outage", "`allow`, `refuse` or `wait`", problems, outage) {
            terms.outage = outage;
        }
        if let Some(most) = fields.whole("max_waiting", problems) {
            terms.max_waiting = Some(most);
        }
        if fields.get("classes").or(fields.get("weight")).is_some() {
            let classes = self.classes(fields);
            let (last, outer) = path.levels.split_last_mut().unwrap_or_else(|| unreachable!("a rule has a level"));
            if !last.is_open || outer.iter().any(|level| level.is_open) {
                let text =
                    "values share a limit by weight if the last key has no value, and all keys before it have one";
                self.problems.push(Problem::at(fields.place(), text));
            }
            terms.classes = Some(classes);
        }
    }

    fn classes(&mut self, fields: &Fields<'_>) -> Classes {
        let others = fields.whole("weight", &mut self.problems).unwrap_or(1);
        if !(1..=MOST_WEIGHT).contains(&others) {
            let text = format!("a weight is from 1 to {MOST_WEIGHT}");
            self.problems.push(Problem::at(fields.get("weight").map_or(fields.place(), |node| &node.place), text));
        }
        let mut weights = Vec::new();
        if let Some(node) = fields.get("classes") {
            let Value::Map(entries) = &node.value else {
                let text = format!("`classes` is a map of values to weights, and this is {}", node.kind());
                self.problems.push(Problem::at(&node.place, text));
                return Classes { weights, others };
            };
            for (value, weight) in entries {
                let number = scalar(weight).and_then(|text| text.parse().ok());
                match (scalar(value), number) {
                    (Some(value), Some(number)) if (1..=MOST_WEIGHT).contains(&number) && !value.is_empty() => {
                        weights.push((value.to_owned(), number));
                    }
                    _ => {
                        let text = format!("a class is a value and its weight, from 1 to {MOST_WEIGHT}");
                        self.problems.push(Problem::at(&value.place, text));
                    }
                }
            }
        }
        Classes { weights, others }
    }

    fn limit(&mut self, limit: &Fields<'_>, beside: &Fields<'_>, count: usize, terms: &mut Terms) {
        let problems = &mut self.problems;
        let place = |name: &str| {
            let node = limit.get(name).or_else(|| beside.get(name));
            node.map_or_else(|| limit.place().clone(), |node| node.place.clone())
        };
        let is_unlimited = limit.flag("unlimited", problems);
        let unit = limit.text("unit", problems).map(|text| unit_of(text, &place("unit"), problems));
        let requests = limit.whole("requests_per_unit", problems);
        let burst = limit.whole("burst", problems).or_else(|| beside.whole("burst", problems));
        let is_sliding = limit.flag("sliding", problems) || beside.flag("sliding", problems);
        let zone = limit.text("time_zone", problems).or_else(|| beside.text("time_zone", problems));
        if is_unlimited {
            if unit.is_some() {
                problems.push(Problem::at(&place("unit"), "a limit with `unlimited: true` has no `unit`: remove one"));
            }
            if count > 1 {
                let text = "several limits cannot be `unlimited`: remove this one";
                problems.push(Problem::at(&place("unlimited"), text));
            }
            return;
        }
        let Some(unit) = unit else {
            problems.push(Problem::at(limit.place(), format!("a rate limit has a `unit`: {}", units())));
            return;
        };
        // The reference takes a missing number for 0, which refuses all.
        let requests = requests.unwrap_or(0);
        if burst == Some(0) {
            problems.push(Problem::at(&place("burst"), "a `burst` of 0 lets nothing pass: 1 is the smallest"));
        }
        let Some(unit) = unit else { return };
        let refill = match (burst, is_sliding, zone) {
            (None, false, None) => Refill::Windows,
            (Some(burst), false, None) => Refill::Bucket(burst),
            (None, true, None) => Refill::Sliding,
            (None, false, Some(zone)) => match calendar(requests, unit, zone) {
                Ok(quota) => Refill::Calendar(quota),
                Err(error) => return problems.push(Problem::at(&place("time_zone"), error)),
            },
            _ => {
                let text = "a limit has one of `burst`, `sliding` and `time_zone`: choose";
                return problems.push(Problem::at(&place(if is_sliding { "sliding" } else { "time_zone" }), text));
            }
        };
        terms.limits.push(Limit { requests, unit, refill });
    }
}

fn unit_of(text: &str, place: &Place, problems: &mut Vec<Problem>) -> Option<Unit> {
    let unit = Unit::named(text);
    if unit.is_none() {
        problems.push(Problem::at(place, format!("`{}` is no unit: write {}", shortened(text), units())));
    }
    unit
}

/// Returns the quota of the units that begin in a time zone.
fn calendar(requests: u32, unit: Unit, zone: &str) -> Result<Quota, String> {
    let quota: Quota = format!("{requests}/{}@UTC", unit.name()).parse().map_err(|error| format!("{error}"))?;
    quota.in_time_zone(zone).map_err(|error| error.to_string())
}

fn units() -> String {
    Unit::ALL.map(Unit::name).join(", ")
}
