//! The limits of a rule, from the fields of a file.

use crate::fields::Fields;
use crate::problem::Problem;
use crate::proto::Unit;
use crate::rule::Level;
use crate::terms::{Classes, Limit, Outage, Refill, Terms};
use crate::yaml::{Value, scalar};
use std::time::Duration;
use tollgate::Quota;

/// A proxy gives up after some seconds, or minutes at most.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
const MOST_WEIGHT: u32 = 1_000_000;

/// Reads the fields that name a rule and the rules that it replaces.
pub(super) fn names(limit: &Fields<'_>, terms: &mut Terms, problems: &mut Vec<Problem>) {
    if let Some(name) = limit.text("name", problems) {
        terms.name = name.to_owned();
    }
    for item in limit.list("replaces", problems) {
        let fields = Fields::of(item, "an entry of `replaces`", &["name"], problems);
        match fields.text("name", problems) {
            Some(name) if name == terms.name => {
                problems.push(Problem::at(&item.place, "a rule cannot replace itself: name another rule"));
            }
            Some(name) => terms.replaces.push(name.to_owned()),
            None => problems.push(Problem::at(&item.place, "an entry of `replaces` has the `name` of a rule")),
        }
    }
}

/// Reads the extensions that concern all limits of a rule, which may be in the rule or beside it.
pub(super) fn waiting(fields: &Fields<'_>, terms: &mut Terms, levels: &[Level], problems: &mut Vec<Problem>) {
    if let Some(wait) = fields.time("wait", problems) {
        if wait > LONGEST_WAIT {
            let text = format!("a request waits at most {LONGEST_WAIT:?}, which proxies allow");
            problems.push(Problem::at(fields.place_of("wait"), text));
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
        if levels.iter().position(|level| level.is_open) != Some(levels.len() - 1) {
            let text = "values share a limit by weight if the last key has no value, and all keys before it have one";
            problems.push(Problem::at(fields.place(), text));
        }
        classes(fields, terms.classes.get_or_insert(Classes { weights: Vec::new(), others: 1 }), problems);
    }
}

/// Reads `classes` and `weight`: the weights of some values, and that of all others. Each may be in the rule or beside it.
fn classes(fields: &Fields<'_>, classes: &mut Classes, problems: &mut Vec<Problem>) {
    if let Some(others) = fields.whole("weight", problems) {
        if !(1..=MOST_WEIGHT).contains(&others) {
            let text = format!("a weight is from 1 to {MOST_WEIGHT}");
            problems.push(Problem::at(fields.place_of("weight"), text));
        }
        classes.others = others;
    }
    let Some(node) = fields.get("classes") else { return };
    let Value::Map(entries) = &node.value else {
        let text = format!("`classes` is a map of values to weights, and this is {}", node.kind());
        return problems.push(Problem::at(&node.place, text));
    };
    classes.weights.clear();
    for (value, weight) in entries {
        let number = scalar(weight).and_then(|text| text.parse().ok());
        match (scalar(value), number) {
            (Some(value), Some(number)) if (1..=MOST_WEIGHT).contains(&number) && !value.is_empty() => {
                classes.weights.push((value.to_owned(), number));
            }
            _ => {
                let text = format!("a class is a value and its weight, from 1 to {MOST_WEIGHT}");
                problems.push(Problem::at(&value.place, text));
            }
        }
    }
}

/// Reads one limit of a rule that has so many. `burst`, `sliding` and `time_zone` may be beside it.
pub(super) fn limit(
    limit: &Fields<'_>,
    beside: &Fields<'_>,
    count: usize,
    terms: &mut Terms,
    problems: &mut Vec<Problem>,
) {
    let place_of = |name: &str| if limit.get(name).is_some() { limit } else { beside }.place_of(name);
    let is_unlimited = limit.flag("unlimited", problems);
    let unit = limit.parsed("unit", &format!("one of {}", units()), problems, Unit::named);
    let requests = limit.whole("requests_per_unit", problems);
    let burst = limit.whole("burst", problems).or_else(|| beside.whole("burst", problems));
    let is_sliding = limit.flag("sliding", problems) || beside.flag("sliding", problems);
    let zone = limit.text("time_zone", problems).or_else(|| beside.text("time_zone", problems));
    if is_unlimited {
        if limit.get("unit").is_some() {
            problems
                .push(Problem::at(limit.place_of("unit"), "a limit with `unlimited: true` has no `unit`: remove one"));
        }
        if count > 1 {
            let text = "several limits cannot be `unlimited`: remove this one";
            problems.push(Problem::at(limit.place_of("unlimited"), text));
        }
        return;
    }
    if limit.get("unit").is_none() {
        problems.push(Problem::at(limit.place(), format!("a rate limit has a `unit`: {}", units())));
    }
    // The reference takes a missing number for 0, which refuses all.
    let requests = requests.unwrap_or(0);
    if burst == Some(0) {
        problems.push(Problem::at(place_of("burst"), "a `burst` of 0 lets nothing pass: 1 is the smallest"));
    }
    let Some(unit) = unit else { return };
    let refill = match (burst, is_sliding, zone) {
        (None, false, None) => Refill::Windows,
        (Some(burst), false, None) => Refill::Bucket(burst),
        (None, true, None) => Refill::Sliding,
        (None, false, Some(zone)) => match calendar(requests, unit, zone) {
            Ok(quota) => Refill::Calendar(quota),
            Err(error) => return problems.push(Problem::at(place_of("time_zone"), error)),
        },
        _ => {
            let text = "a limit has one of `burst`, `sliding` and `time_zone`: choose";
            return problems.push(Problem::at(place_of(if is_sliding { "sliding" } else { "time_zone" }), text));
        }
    };
    terms.limits.push(Limit { requests, unit, refill });
}

/// Returns the quota of the units that begin in a time zone.
fn calendar(requests: u32, unit: Unit, zone: &str) -> Result<Quota, String> {
    let quota: Quota = format!("{requests}/{}@UTC", unit.name()).parse().map_err(|error| format!("{error}"))?;
    quota.in_time_zone(zone).map_err(|error| error.to_string())
}

fn units() -> String {
    Unit::ALL.map(Unit::name).join(", ")
}
