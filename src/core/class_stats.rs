//! Statistics of the classes that users make: recent shares, and a histogram of waits.
//!
//! A class is counted from when a user makes it until it is removed. Everything is in fixed memory, protected by the
//! limiter's lock, and read by snapshots and meters.

mod wait_histogram;
mod window;

use crate::core::classes::{ClassId, ROOT};
use crate::observe::ClassLabel;
use std::sync::Arc;
use std::time::Duration;
use wait_histogram::WaitHistogram;
use window::Window;

#[derive(Debug, Default)]
pub(crate) struct ClassStats {
    /// Classes by number; `None` for those that are not counted.
    classes: Vec<Option<Box<ClassCount>>>,
    /// Tokens that the limiter itself and all its classes received.
    root: Received,
}

/// The field order, fixed by `repr(C)`, puts first the fields that each wait reads and writes, as in the tree's nodes.
#[derive(Debug)]
#[repr(C)]
struct ClassCount {
    parent: ClassId,
    received: Received,
    waits: WaitHistogram,
    weight: u64,
    label: Arc<ClassLabel>,
}

/// Tokens that a class and the classes in it received lately.
#[derive(Debug, Default)]
struct Received {
    recently: Window,
    /// The sum of the weights of the counted classes in it.
    weights: u64,
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
        let (received, waits) = (Received::default(), WaitHistogram::default());
        self.classes[slot] = Some(Box::new(ClassCount { label, parent, weight, received, waits }));
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
        if let Some(received) = self.received_mut(parent) {
            received.weights = change(received.weights);
        }
    }

    fn class_mut(&mut self, class: ClassId) -> Option<&mut ClassCount> {
        self.classes.get_mut(class as usize)?.as_deref_mut()
    }

    fn received_mut(&mut self, class: ClassId) -> Option<&mut Received> {
        if class == ROOT { Some(&mut self.root) } else { self.class_mut(class).map(|count| &mut count.received) }
    }

    /// Counts an installment of `tokens` for the class itself, and for the classes around it.
    pub(crate) fn count_served(&mut self, class: ClassId, tokens: u64, now: u64) {
        let mut class = class;
        while class != ROOT {
            let Some(count) = self.class_mut(class) else { return };
            count.received.recently.add(tokens, now);
            class = count.parent;
        }
        self.root.recently.add(tokens, now);
    }

    /// Counts a claim that was granted in the class itself after a wait of `nanos`.
    pub(crate) fn count_wait(&mut self, class: ClassId, nanos: u64) {
        if let Some(count) = self.class_mut(class) {
            count.waits.add(nanos);
        }
    }

    /// Reads the counts of a class. All of them are zero if the class is not counted any more.
    pub(crate) fn read(&self, class: ClassId, now: u64) -> ClassReading {
        let count = |class: ClassId| self.classes.get(class as usize).and_then(Option::as_deref);
        let Some(class) = count(class) else { return ClassReading::default() };
        let parent = if class.parent == ROOT { Some(&self.root) } else { count(class.parent).map(|it| &it.received) };
        ClassReading {
            window: Window::span(now),
            served: class.received.recently.sum(now),
            served_to_parent: parent.map_or(0, |parent| parent.recently.sum(now)),
            weights: parent.map_or(0, |parent| parent.weights),
            median_wait: class.waits.percentile(50),
            p99_wait: class.waits.percentile(99),
        }
    }

    /// The classes that are counted, in the order of their numbers.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (ClassId, &Arc<ClassLabel>)> {
        (0..).zip(&self.classes).filter_map(|(class, count)| Some((class, &count.as_ref()?.label)))
    }
}
