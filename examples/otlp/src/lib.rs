//! Metrics and spans of tollgate in an OpenTelemetry collector, over OTLP.
//!
//! `recorder.rs` and `telemetry.rs` are to be copied. `collector.rs` is only a stand-in for a collector.

mod collector;
mod recorder;
mod telemetry;

pub use collector::{Collector, Point, line_of};
pub use recorder::OtelRecorder;
pub use telemetry::Telemetry;
