//! The series of the classes of a limiter.

use super::names;
use super::series::Series;
use super::tally::Tally;
use crate::core::state::ClassLine;
use std::collections::BTreeMap;

/// Publishes the series of the classes that have a name.
pub(super) fn publish_classes(series: &Series<'_>, tally: &Tally, lines: &[ClassLine]) {
    let mut waiting = BTreeMap::<&str, (usize, u64)>::new();
    for line in lines {
        let counts = tally.counts_of(&line.label);
        counts.count_served(line);
        let (tasks, tokens) = waiting.entry(&counts.name).or_default();
        *tasks += line.waiting_tasks;
        *tokens += line.waiting_tokens;
    }
    for counts in tally.classes.all() {
        let class = || ("class", counts.name.clone());
        let (tasks, tokens) = waiting.get(&*counts.name).copied().unwrap_or_default();
        series.counter_of(names::CLASS_REFUSALS, class(), counts.refused());
        series.gauge_of(names::CLASS_WAITING, Some(class()), tasks as f64);
        series.gauge_of(names::CLASS_WAITING_TOKENS, Some(class()), tokens as f64);
        if let Some(served) = counts.served() {
            series.counter_of(names::CLASS_SERVED, class(), served);
        }
    }
}
