//! A span for each decision, for an OpenTelemetry collector.

use crate::answer::{Answer, Invalid};
use crate::proto::RateLimitRequest;
use crate::service::Service;
use http::HeaderMap;

#[cfg(feature = "otlp")]
pub use exported::{layer, shut_down};

/// Decides on a request. If spans are exported, the decision is a span, and a child of that which the request names.
#[cfg_attr(not(feature = "otlp"), allow(unused_variables, reason = "only spans have parents"))]
pub(crate) async fn decide(
    service: &Service,
    request: &RateLimitRequest,
    headers: &HeaderMap,
) -> Result<Answer, Invalid> {
    let decision = service.decide(request);
    #[cfg(feature = "otlp")]
    let decision = exported::in_span(decision, request, headers);
    decision.await
}

#[cfg(feature = "otlp")]
mod exported {
    use super::{Answer, HeaderMap, Invalid, RateLimitRequest};
    use opentelemetry::propagation::TextMapPropagator;
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_http::HeaderExtractor;
    use opentelemetry_otlp::SpanExporter;
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use std::sync::OnceLock;
    use tracing::field::Empty;
    use tracing::{Instrument, Subscriber};
    use tracing_opentelemetry::OpenTelemetrySpanExt;
    use tracing_subscriber::Layer;
    use tracing_subscriber::filter::filter_fn;
    use tracing_subscriber::registry::LookupSpan;

    const TARGET: &str = "decision";
    static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

    pub(super) async fn in_span(
        decision: impl Future<Output = Result<Answer, Invalid>>,
        request: &RateLimitRequest,
        headers: &HeaderMap,
    ) -> Result<Answer, Invalid> {
        let span = tracing::trace_span!(target: TARGET, "ShouldRateLimit", domain = request.domain, passes = Empty);
        if !span.is_disabled() {
            // A request without a span begins one of its own.
            let _ = span.set_parent(TraceContextPropagator::new().extract(&HeaderExtractor(headers)));
        }
        let answer = decision.instrument(span.clone()).await;
        span.record("passes", answer.as_ref().is_ok_and(Answer::passes));
        answer
    }

    /// Returns the layer that exports spans over gRPC, as the variables `OTEL_*` say.
    ///
    /// # Errors
    ///
    /// Returns one line if a variable is not valid.
    pub fn layer<S>() -> Result<impl Layer<S>, String>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let exporter = SpanExporter::builder().with_tonic().build();
        let exporter = exporter.map_err(|error| format!("spans cannot be exported: {error}"))?;
        let resource = Resource::builder().with_service_name(env!("CARGO_PKG_NAME")).build();
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer(TARGET));
        // One process has one layer.
        let _ = PROVIDER.set(provider);
        Ok(layer.with_filter(filter_fn(|metadata| metadata.target() == TARGET)))
    }

    /// Exports what is left.
    pub fn shut_down() {
        // The collector may be away.
        PROVIDER.get().into_iter().for_each(|provider| drop(provider.shutdown()));
    }
}
