//! A recorder of the `metrics` facade that passes tollgate's series to OpenTelemetry, under the names, units and
//! attributes that follow its conventions. Series of other crates are left out.

use metrics::{Counter, Gauge, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_util::registry::{AtomicStorage, Registry};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tollgate::metrics::{INSTRUMENTS, Instrument, InstrumentKind};

/// Boundaries in seconds: those of `aspnetcore.rate_limiting.request.time_in_queue` in the conventions.
const BOUNDARIES: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Counters and gauges keep their last value, which OpenTelemetry reads at each export. Waits are recorded as they end.
pub struct OtelRecorder {
    last: Arc<Registry<Key, AtomicStorage>>,
    histograms: HashMap<&'static str, (&'static Instrument, Histogram<f64>)>,
}

impl OtelRecorder {
    /// Creates a recorder with all instruments of tollgate.
    pub fn new(meter: &Meter) -> Self {
        let last = Arc::new(Registry::atomic());
        let mut histograms = HashMap::new();
        for instrument in INSTRUMENTS {
            if instrument.kind == InstrumentKind::Histogram {
                let histogram = meter
                    .f64_histogram(instrument.otel_name)
                    .with_unit(instrument.unit)
                    .with_description(instrument.description)
                    .with_boundaries(BOUNDARIES.to_vec())
                    .build();
                histograms.insert(instrument.name, (instrument, histogram));
            } else {
                observe(meter, instrument, Arc::clone(&last));
            }
        }
        Self { last, histograms }
    }
}

/// Has OpenTelemetry read the last value of each series of `instrument`.
fn observe(meter: &Meter, instrument: &'static Instrument, last: Arc<Registry<Key, AtomicStorage>>) {
    macro_rules! build {
        ($builder:ident, $visit:ident, $read:expr) => {
            meter
                .$builder(instrument.otel_name)
                .with_unit(instrument.unit)
                .with_description(instrument.description)
                .with_callback(move |observer| {
                    last.$visit(|key, value| {
                        if key.name() == instrument.name {
                            observer.observe($read(value.load(Ordering::Relaxed)), &attributes(instrument, key));
                        }
                    });
                })
                .build()
        };
    }
    match instrument.kind {
        InstrumentKind::Counter => drop(build!(u64_observable_counter, visit_counters, u64::from)),
        InstrumentKind::UpDownCounter => drop(build!(f64_observable_up_down_counter, visit_gauges, f64::from_bits)),
        _ => drop(build!(f64_observable_gauge, visit_gauges, f64::from_bits)),
    }
}

fn attributes(instrument: &Instrument, key: &Key) -> Vec<KeyValue> {
    let attribute =
        |label: &metrics::Label| KeyValue::new(instrument.attribute(label.key()).to_owned(), label.value().to_owned());
    key.labels().map(attribute).collect()
}

impl Recorder for OtelRecorder {
    // The instruments describe themselves.
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.last.get_or_create_counter(key, |last| Counter::from_arc(Arc::clone(last)))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.last.get_or_create_gauge(key, |last| Gauge::from_arc(Arc::clone(last)))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        let Some((instrument, histogram)) = self.histograms.get(key.name()) else {
            return metrics::Histogram::noop();
        };
        let series = Waits { histogram: histogram.clone(), attributes: attributes(instrument, key) };
        metrics::Histogram::from_arc(Arc::new(series))
    }
}

/// One series of a histogram.
struct Waits {
    histogram: Histogram<f64>,
    attributes: Vec<KeyValue>,
}

impl HistogramFn for Waits {
    fn record(&self, seconds: f64) {
        self.histogram.record(seconds, &self.attributes);
    }
}
