//! The series of the classes of a limiter.

use super::names;
use super::series::Series;
use super::tally::Tally;
use crate::core::state::ClassTotals;
use std::collections::BTreeMap;

/// Publishes the series of the classes that have a name.
pub(super) fn publish_classes(series: &Series<'_>, tally: &Tally, classes: &[ClassTotals]) {
    let mut waiting = BTreeMap::<&str, (u64, u64)>::new();
    for class in classes {
        let counted = tally.counted(&class.label);
        counted.count_served(class.served);
        let counts = &counted.counts;
        let (tasks, tokens) = waiting.entry(&counts.name).or_default();
        *tasks += class.waiting_tasks;
        *tokens += class.waiting_tokens;
    }
    for counts in tally.classes.all() {
        let label = || ("class", counts.name.clone());
        let (tasks, tokens) = waiting.get(&*counts.name).copied().unwrap_or_default();
        series.counter_of(names::CLASS_REFUSALS, label(), counts.refused());
        series.gauge_of(names::CLASS_WAITING, Some(label()), tasks as f64);
        series.gauge_of(names::CLASS_WAITING_TOKENS, Some(label()), tokens as f64);
        if let Some(served) = counts.served() {
            series.counter_of(names::CLASS_SERVED, label(), served);
        }
    }
}
