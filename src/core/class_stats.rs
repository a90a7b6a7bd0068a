//! Statistics of the classes that users make: recent shares, and a histogram of waits.
//!
//! A class is counted from when a user makes it until it is removed. Everything is in fixed memory, protected by the
//! limiter's lock, and read by snapshots and meters. What each grant counts is in the class itself, as [`Counts`].

mod wait_histogram;
mod window;

use crate::core::classes::{ClassId, ROOT};
use crate::observe::ClassLabel;
use std::sync::Arc;
use std::time::Duration;
use wait_histogram::{LastWaits, WaitHistogram};
pub(crate) use window::Window;

#[derive(Debug, Default)]
pub(crate) struct ClassStats {
    /// Classes by number; `None` for those that are not counted.
    classes: Vec<Option<ClassCount>>,
    /// The sum of the weights of the counted classes in the limiter itself.
    weights: u64,
}

/// What each grant counts in its class.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// What the class and the classes in it received lately.
    pub(crate) recently: Window,
    last_waits: LastWaits,
}

#[derive(Debug)]
struct ClassCount {
    parent: ClassId,
    weight: u64,
    /// The sum of the weights of the counted classes in it.
    weights: u64,
    waits: WaitHistogram,
    label: Arc<ClassLabel>,
}

/// The counts of a class at one instant.
#[derive(Debug, Default)]
pub(crate) struct ClassReading {
    pub(crate) window: Duration,
    pub(crate) served: u64,
    pub(crate) served_to_parent: u64,
    pub(crate) weights: u64,
    pub(crate) median_wait: Option<Duration>,
    pub(crate) p99_wait: Option<Duration>,
}

impl ClassStats {
    /// Counts a class from now on.
    pub(crate) fn add(&mut self, class: ClassId, parent: ClassId, weight: u64, label: Arc<ClassLabel>) {
        let slot = class as usize;
        if self.classes.len() <= slot {
            self.classes.resize_with(slot + 1, || None);
        }
        let waits = WaitHistogram::default();
        self.classes[slot] = Some(ClassCount { parent, weight, weights: 0, waits, label });
        self.change_weights(parent, |weights| weights + weight);
    }

    /// Ends the counting of a class. Its number may be given to another class.
    pub(crate) fn remove(&mut self, class: ClassId) {
        if let Some(count) = self.classes.get_mut(class as usize).and_then(Option::take) {
            self.change_weights(count.parent, |weights| weights - count.weight);
        }
    }

    pub(crate) fn set_weight(&mut self, class: ClassId, weight: u64) {
        if let Some(count) = self.class_mut(class) {
            let (parent, before) = (count.parent, std::mem::replace(&mut count.weight, weight));
            self.change_weights(parent, |weights| weights - before + weight);
        }
    }

    fn change_weights(&mut self, parent: ClassId, change: impl FnOnce(u64) -> u64) {
        if parent == ROOT {
            self.weights = change(self.weights);
        } else if let Some(count) = self.class_mut(parent) {
            count.weights = change(count.weights);
        }
    }

    fn class_mut(&mut self, class: ClassId) -> Option<&mut ClassCount> {
        self.classes.get_mut(class as usize)?.as_mut()
    }

    /// Counts a claim that was granted in the class itself after a wait of `nanos`.
    #[inline]
    pub(crate) fn count_wait(&mut self, class: ClassId, counts: &mut Counts, nanos: u64) {
        if counts.last_waits.add(nanos) {
            self.flush(class, &std::mem::take(&mut counts.last_waits));
        }
    }

    #[cold]
    fn flush(&mut self, class: ClassId, waits: &LastWaits) {
        if let Some(count) = self.class_mut(class) {
            count.waits.add(waits);
        }
    }

    /// Reads what is counted of a class. All zero if it is not counted any more. `counts` are those of a class.
    pub(crate) fn read<'a>(&self, class: ClassId, counts: impl Fn(ClassId) -> &'a Counts, now: u64) -> ClassReading {
        let count = |class: ClassId| self.classes.get(class as usize).and_then(Option::as_ref);
        let Some(counted) = count(class) else { return ClassReading::default() };
        let parent = counted.parent;
        let weights = if parent == ROOT { Some(self.weights) } else { count(parent).map(|parent| parent.weights) };
        let mut waits = counted.waits.clone();
        waits.add(&counts(class).last_waits);
        ClassReading {
            window: Window::span(now),
            served: counts(class).recently.sum(now),
            served_to_parent: weights.map_or(0, |_| counts(parent).recently.sum(now)),
            weights: weights.unwrap_or(0),
            median_wait: waits.percentile(50),
            p99_wait: waits.percentile(99),
        }
    }

    /// The classes that are counted, in the order of their numbers.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (ClassId, &Arc<ClassLabel>)> {
        (0..).zip(&self.classes).filter_map(|(class, count)| Some((class, &count.as_ref()?.label)))
    }
}
