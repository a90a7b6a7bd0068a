//! Exports metrics and spans to a collector, by OTLP over HTTP.

use crate::OtelRecorder;
use opentelemetry::metrics::MeterProvider;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::error::Error;
use std::time::Duration;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// What must be shut down so that the last values and spans arrive.
pub struct Telemetry {
    metrics: SdkMeterProvider,
    spans: SdkTracerProvider,
}

impl Telemetry {
    /// Installs the recorder of metrics and the subscriber of spans of this process. `endpoint` is a collector, for
    /// example `http://localhost:4318`.
    pub fn install(service: &'static str, endpoint: &str) -> Result<Self, Box<dyn Error>> {
        let resource = Resource::builder().with_service_name(service).build();

        let exporter = MetricExporter::builder().with_http().with_endpoint(format!("{endpoint}/v1/metrics")).build()?;
        let reader = PeriodicReader::builder(exporter).with_interval(Duration::from_secs(10)).build();
        let metrics = SdkMeterProvider::builder().with_resource(resource.clone()).with_reader(reader).build();
        metrics::set_global_recorder(OtelRecorder::new(&metrics.meter("tollgate")))?;

        let exporter = SpanExporter::builder().with_http().with_endpoint(format!("{endpoint}/v1/traces")).build()?;
        let spans = SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build();
        // Refusals are events of level DEBUG. Spans of the HTTP client of the exporter would cause further exports.
        let exported =
            Targets::new().with_target("tollgate", LevelFilter::DEBUG).with_target(service, LevelFilter::INFO);
        let layer = OpenTelemetryLayer::new(spans.tracer(service));
        let layer = layer.with_location(false).with_threads(false).with_tracked_inactivity(false);
        tracing_subscriber::registry().with(layer.with_filter(exported)).try_init()?;

        Ok(Self { metrics, spans })
    }

    /// Exports what is left. It blocks until the collector has answered.
    pub fn shutdown(self) -> OTelSdkResult {
        self.spans.shutdown().and(self.metrics.shutdown())
    }
}
