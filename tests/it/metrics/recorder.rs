//! A recorder, and the values it received.

use std::collections::HashMap;

use metrics::with_local_recorder;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// A recorder, and the values it received.
pub(crate) struct TestRecorder {
    pub(crate) inner: DebuggingRecorder,
    pub(crate) snapshotter: Snapshotter,
}

impl TestRecorder {
    pub(crate) fn new() -> Self {
        let recorder = DebuggingRecorder::new();
        Self { snapshotter: recorder.snapshotter(), inner: recorder }
    }

    /// Takes the values received since the last call.
    pub(crate) fn read(&self) -> Values {
        let series = self.snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| {
            let (_, key) = key.into_parts();
            let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            (format!("{}{{{}}}", key.name(), labels.join(",")), value)
        });
        Values(series.collect())
    }
}

/// What one scrape publishes.
pub(crate) fn scrape(publish: impl FnOnce()) -> Values {
    let recorder = TestRecorder::new();
    with_local_recorder(&recorder.inner, publish);
    recorder.read()
}

/// Each series by its name and labels, without the prefix.
#[derive(Debug)]
pub(crate) struct Values(pub(crate) HashMap<String, DebugValue>);

impl Values {
    pub(crate) fn get(&self, series: &str) -> Option<&DebugValue> {
        self.0.get(&format!("rate_limit_{series}"))
    }

    pub(crate) fn counter(&self, series: &str) -> u64 {
        let Some(DebugValue::Counter(value)) = self.get(series) else { panic!("no counter {series} in {self:#?}") };
        *value
    }

    pub(crate) fn gauge(&self, series: &str) -> f64 {
        let Some(DebugValue::Gauge(value)) = self.get(series) else { panic!("no gauge {series} in {self:#?}") };
        value.0
    }

    /// In nanoseconds; empty for a series that was never recorded.
    pub(crate) fn waits(&self, result: &str) -> Vec<u64> {
        match self.get(&format!("acquire_duration_seconds{{key=api,result={result}}}")) {
            Some(DebugValue::Histogram(values)) => values.iter().map(|value| (value.0 * 1e9).round() as u64).collect(),
            None => Vec::new(),
            other => panic!("{other:?}"),
        }
    }

    /// The refused calls of `api` by reason, without the reasons that have none: `quota 2, too_large 1`.
    pub(crate) fn refusals(&self) -> String {
        let of_reason = |(series, value): (&String, &DebugValue)| {
            let DebugValue::Counter(calls @ 1..) = value else { return None };
            let reason = series.strip_prefix("rate_limit_refusals_total{key=api,reason=")?.strip_suffix('}')?;
            Some(format!("{reason} {calls}"))
        };
        let mut refusals: Vec<_> = self.0.iter().filter_map(of_reason).collect();
        refusals.sort_unstable();
        refusals.join(", ")
    }
}
