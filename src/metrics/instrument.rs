//! The description of a series, in the terms of the `metrics` facade and of OpenTelemetry.

use metrics::Unit;

/// The description of a series: its names, its unit and its attributes.
///
/// [`INSTRUMENTS`](super::INSTRUMENTS) has one for each series. The names and units for OpenTelemetry follow its
/// semantic conventions; an exporter to Prometheus, which replaces dots and appends units and `_total`, makes
/// [`name`](Self::name) of [`otel_name`](Self::otel_name).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Instrument {
    /// The name for recorders of the facade, for example `rate_limit_acquire_duration_seconds`.
    pub name: &'static str,
    /// The name for OpenTelemetry, for example `rate_limit.acquire.duration`.
    pub otel_name: &'static str,
    /// The kind of values it takes.
    pub kind: InstrumentKind,
    /// The unit of the values in the Unified Code for Units of Measure, for example `s` or `{token}`.
    pub unit: &'static str,
    /// A sentence about the values.
    pub description: &'static str,
}

/// The kind of an [`Instrument`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstrumentKind {
    /// A sum that only grows.
    Counter,
    /// A sum that grows and shrinks, and that makes sense added up over limiters and machines. A gauge of the facade.
    UpDownCounter,
    /// A value that has no meaningful sum over limiters or machines.
    Gauge,
    /// The distribution of single values.
    Histogram,
}

impl Instrument {
    /// Returns the OpenTelemetry attribute that stands for one of its labels.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::metrics::INSTRUMENTS;
    ///
    /// let refusals = INSTRUMENTS.iter().find(|series| series.name == "rate_limit_refusals_total").unwrap();
    /// assert_eq!(refusals.attribute("key"), "rate_limit.limiter.name");
    /// assert_eq!(refusals.attribute("reason"), "error.type");
    /// ```
    pub fn attribute<'a>(&self, label: &'a str) -> &'a str {
        match label {
            "key" => "rate_limit.limiter.name",
            "quota" => "rate_limit.quota.name",
            "class" => "rate_limit.class.name",
            "name" => "rate_limit.key.name",
            "result" => "rate_limit.result",
            // The kind of an error. A dry run refuses nothing, and a change of a rate is no error.
            "reason" if self.otel_name == "rate_limit.refusals" => "error.type",
            "kind" => "error.type",
            "state" => "rate_limit.circuit.state",
            "reason" => "rate_limit.reason",
            other => other,
        }
    }

    /// The unit in the terms of the facade, which knows no tokens.
    pub(super) fn facade_unit(&self) -> Unit {
        match self.unit {
            "s" => Unit::Seconds,
            "{token}/s" => Unit::CountPerSecond,
            _ => Unit::Count,
        }
    }
}
