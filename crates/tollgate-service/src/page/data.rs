//! What the page shows, as JSON.

use super::history::{Counts, History, Row};
use crate::bucket::Reason;
use crate::meter::read;
use crate::problem::Problem;
use crate::rule::Rule;
use crate::service::Service;
use crate::terms::{Limit, Refill, Terms};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// The most rules that are shown: those with the most refusals.
const MOST_RULES: usize = 100;
/// The most values that are shown.
const MOST_VALUES: usize = 20;
/// The most problems of a configuration that are shown.
const MOST_PROBLEMS: usize = 20;
/// The longest text that is shown, in characters.
const LONGEST: usize = 300;
/// The minutes that count as now, the present one with them.
const RECENT: usize = 5;

/// A rule with what it counted.
struct Shown<'s> {
    rule: &'s Arc<Rule>,
    row: &'s Row,
    recent: Counts,
    hour: Counts,
    values: u64,
    waiting: u64,
}

/// Returns what the page shows.
pub fn answer(
    service: &Service,
    history: &History,
    problem: Option<&str>,
    problems: &[Problem],
    began: Duration,
) -> Value {
    let now = service.maker.now();
    let rules = service.rules.load();
    let overrides = service.overrides.all();
    let mut shown = shown(rules.all.iter().chain(&overrides), history);
    let waiting: u64 = shown.iter().map(|shown| shown.waiting).sum();
    let asked = shown.len();
    shown.truncate(MOST_RULES);
    let (values_since, values) =
        service.refusals.get().map_or_else(|| (Duration::ZERO, Vec::new()), |refusals| refusals.top(MOST_VALUES, now));
    let values = values.iter().map(|refused| {
        json!({"rule": visible(&refused.rule), "value": visible(&refused.value), "reasons": reasons(&refused.reasons), "last": seconds(refused.last)})
    });
    let total = &history.total.minutes;
    let totals = &service.totals;
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "now": seconds(now),
        "began": seconds(began),
        "minute": history.minute * 60,
        "problem": problem,
        "shadow": service.manner.shadow,
        "configuration": problems.iter().take(MOST_PROBLEMS).map(|problem| visible(&problem.line())).collect::<Vec<_>>(),
        "configuration_more": problems.len().saturating_sub(MOST_PROBLEMS),
        // In this minute and the one before.
        "store_away": history.total.sum(2).store_away,
        "errors": read(&totals.errors),
        "unknown_domains": read(&totals.unknown_domains),
        "passed": total.iter().map(|minute| minute.granted).collect::<Vec<_>>(),
        "refused": total.iter().map(Counts::refusals).collect::<Vec<_>>(),
        "waiting": waiting,
        "rules": shown.iter().map(Shown::json).collect::<Vec<_>>(),
        "rules_loaded": rules.all.len(),
        "rules_asked": asked,
        "rules_left_out": history.left_out,
        "values": values.collect::<Vec<_>>(),
        "values_since": seconds(values_since.max(began)),
    })
}

/// Returns the rules that were asked for, those that refuse most first.
fn shown<'s>(rules: impl Iterator<Item = &'s Arc<Rule>>, history: &'s History) -> Vec<Shown<'s>> {
    let mut seen = HashSet::new();
    // Rules whose names read alike count as one.
    let rows = rules.filter(|rule| seen.insert(Arc::as_ptr(rule.own_meter())));
    let mut shown: Vec<_> = rows
        .filter_map(|rule| {
            let row = history.row(rule.own_meter())?;
            let (recent, hour) = (row.sum(RECENT), row.sum(usize::MAX));
            let (values, waiting) = rule.made_bucket().map_or((0, 0), |bucket| bucket.counts());
            Some(Shown { rule, row, recent, hour, values, waiting })
        })
        .collect();
    shown.sort_by_key(|shown| {
        let Shown { recent, hour, waiting, .. } = shown;
        Reverse((recent.refusals(), hour.refusals(), *waiting, recent.shadow, hour.granted))
    });
    shown
}

impl Shown<'_> {
    fn json(&self) -> Value {
        let Self { rule, recent, hour, .. } = self;
        let Terms { shadow, quota, .. } = rule.terms;
        let place = &rule.place;
        json!({
            "rule": visible(&rule.title()),
            "limit": limit(&rule.terms),
            "place": visible(&format!("{}:{}", place.source.name, place.line)),
            "mode": if shadow { "shadow" } else if quota { "quota" } else { "" },
            "values": self.values,
            "waiting": self.waiting,
            "waits": recent.waits,
            "wait_ms": (recent.waited / recent.waits.max(1)) as f64 / 1e6,
            "recent": {"granted": recent.granted, "shadow": recent.shadow, "reasons": reasons(&recent.refused)},
            "hour": {"granted": hour.granted, "shadow": hour.shadow, "reasons": reasons(&hour.refused)},
            "refused": self.row.minutes.iter().map(Counts::refusals).collect::<Vec<_>>(),
        })
    }
}

/// Returns the reasons that occurred, with their numbers.
fn reasons(refused: &[u64; Reason::ALL.len()]) -> Map<String, Value> {
    let counted = Reason::ALL.iter().zip(refused).filter(|(_, count)| **count > 0);
    counted.map(|(reason, count)| (reason.name().to_owned(), json!(count))).collect()
}

/// Returns the limits of a rule as people say them.
fn limit(terms: &Terms) -> String {
    let one = |Limit { requests, unit, refill }: &Limit| match refill {
        Refill::Windows => format!("{requests} per {}", unit.name()),
        Refill::Calendar(quota) => quota.to_string(),
        Refill::Bucket(burst) => format!("{requests} per {}, burst {burst}", unit.name()),
        Refill::Sliding => format!("{requests} per {}, sliding", unit.name()),
    };
    let mut text = terms.limits.iter().map(one).collect::<Vec<_>>().join(" and ");
    if terms.limits.is_empty() {
        text.push_str("unlimited");
    }
    if terms.refuses_all() {
        text.push_str(": refuses all");
    }
    if let Some(wait) = terms.wait {
        text.push_str(&format!(", waits up to {wait:?}"));
    }
    if let Some(most) = terms.max_waiting {
        text.push_str(&format!(", at most {most} at a time"));
    }
    text
}

/// Returns a text from outside as a person should see it: its beginning, and no character that is invisible or turns
/// the direction of writing.
fn visible(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars().take(LONGEST) {
        match c {
            '\0'..='\x1f' => shown.extend(char::from_u32(0x2400 + c as u32)),
            '\x7f'..='\u{9f}'
            | '\u{ad}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}' => {
                shown.extend(c.escape_unicode());
            }
            c => shown.push(c),
        }
    }
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

fn seconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1e3
}
