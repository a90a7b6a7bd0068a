//! Passes the series of one meter to the recorder.

use super::names::METADATA;
use metrics::{Key, Label, SharedString, with_recorder};
use std::time::Duration;

/// Sets series that all have the label `key`, on the recorder that is installed at that moment.
#[derive(Debug)]
pub struct Series<'a> {
    /// The name of the meter.
    key: &'a SharedString,
}

impl<'a> Series<'a> {
    pub(super) fn of(key: &'a SharedString) -> Self {
        Self { key }
    }

    fn key(&self, name: &'static str, label: Option<(&'static str, SharedString)>) -> Key {
        let mut labels = vec![Label::new("key", self.key.clone())];
        labels.extend(label.map(|(name, value)| Label::new(name, value)));
        Key::from_parts(name, labels)
    }

    pub(super) fn counter(&self, name: &'static str, label: Option<(&'static str, &'static str)>, total: u64) {
        let label = label.map(|(name, value)| (name, SharedString::const_str(value)));
        self.set_counter(&self.key(name, label), total);
    }

    pub(super) fn counter_of(&self, name: &'static str, label: (&'static str, SharedString), total: u64) {
        self.set_counter(&self.key(name, Some(label)), total);
    }

    fn set_counter(&self, key: &Key, total: u64) {
        with_recorder(|recorder| recorder.register_counter(key, &METADATA)).absolute(total);
    }

    pub(super) fn gauge(&self, name: &'static str, value: f64) {
        self.gauge_of(name, None, value);
    }

    pub(super) fn gauge_of(&self, name: &'static str, label: Option<(&'static str, SharedString)>, value: f64) {
        let key = self.key(name, label);
        with_recorder(|recorder| recorder.register_gauge(&key, &METADATA)).set(value);
    }

    pub(super) fn seconds(&self, name: &'static str, value: Duration) {
        self.gauge(name, value.as_secs_f64());
    }
}
