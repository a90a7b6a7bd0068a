//! Metrics and spans of tollgate limiters in OpenTelemetry, over OTLP.

mod recorder;
mod telemetry;

pub use recorder::OtelRecorder;
pub use telemetry::Telemetry;
