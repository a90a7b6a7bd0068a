//! A stand-in for a collector: it decodes what arrives and keeps it.

use axum::Router;
use axum::body::Bytes;
use axum::http;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric::Data, number_data_point::Value as Number};
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use prost::Message;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;

/// A collector on a free port of the loopback interface, until the runtime ends.
pub struct Collector {
    /// Where it listens, for example `http://127.0.0.1:40001`.
    pub endpoint: String,
    points: Arc<Mutex<BTreeMap<String, Point>>>,
    spans: Arc<Mutex<Vec<Span>>>,
}

/// The last value of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// `counter`, `up-down counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    pub unit: String,
    /// The value; for a histogram, the sum of its values.
    pub value: f64,
    /// The number of values of a histogram; otherwise 0.
    pub count: u64,
}

impl Collector {
    pub async fn start() -> io::Result<Self> {
        let (points, spans) = <(Arc<Mutex<BTreeMap<_, _>>>, Arc<Mutex<Vec<_>>>)>::default();
        let (to_points, to_spans) = (Arc::clone(&points), Arc::clone(&spans));
        let metrics = async move |body: Bytes| {
            let request = ExportMetricsServiceRequest::decode(body).map_err(|_| http::StatusCode::BAD_REQUEST)?;
            let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
            let read = scopes.flat_map(|scope| scope.metrics).flat_map(points_of);
            to_points.lock().unwrap_or_else(PoisonError::into_inner).extend(read);
            Ok::<_, http::StatusCode>(())
        };
        let traces = async move |body: Bytes| {
            let request = ExportTraceServiceRequest::decode(body).map_err(|_| http::StatusCode::BAD_REQUEST)?;
            let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
            to_spans.lock().unwrap_or_else(PoisonError::into_inner).extend(scopes.flat_map(|scope| scope.spans));
            Ok::<_, http::StatusCode>(())
        };
        let app = Router::new().route("/v1/metrics", post(metrics)).route("/v1/traces", post(traces));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { endpoint, points, spans })
    }

    /// Returns the series, as `name{attribute=value,..}`, with the attributes sorted.
    pub fn points(&self) -> BTreeMap<String, Point> {
        self.points.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the spans in the order in which they ended.
    pub fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn points_of(metric: Metric) -> Vec<(String, Point)> {
    let Metric { name, unit, data, .. } = metric;
    let point = |kind, attributes: Vec<_>, value, count| {
        (format!("{name}{{{}}}", text(&attributes)), Point { kind, unit: unit.clone(), value, count })
    };
    match data {
        Some(Data::Sum(sum)) => {
            let kind = if sum.is_monotonic { "counter" } else { "up-down counter" };
            sum.data_points.into_iter().map(|read| point(kind, read.attributes, number(read.value), 0)).collect()
        }
        Some(Data::Gauge(gauge)) => {
            gauge.data_points.into_iter().map(|read| point("gauge", read.attributes, number(read.value), 0)).collect()
        }
        Some(Data::Histogram(histogram)) => {
            let read = histogram.data_points.into_iter();
            read.map(|read| point("histogram", read.attributes, read.sum.unwrap_or(0.0), read.count)).collect()
        }
        _ => Vec::new(),
    }
}

fn number(value: Option<Number>) -> f64 {
    match value {
        Some(Number::AsInt(value)) => value as f64,
        Some(Number::AsDouble(value)) => value,
        None => f64::NAN,
    }
}

/// Returns a span as a line: its name, duration, attributes, status and events.
pub fn line_of(span: &Span) -> String {
    let took = Duration::from_nanos(span.end_time_unix_nano - span.start_time_unix_nano);
    let status = span.status.as_ref().filter(|status| status.code() == StatusCode::Error);
    let status = status.map_or_else(String::new, |status| format!(", error: {}", status.message));
    let events: String = span.events.iter().map(|event| format!(", event: {}", event.name)).collect();
    format!("{} of {took:.0?} {{{}}}{status}{events}", span.name, text(&span.attributes))
}

/// Returns attributes as `name=value,..`, sorted.
fn text(attributes: &[KeyValue]) -> String {
    let mut texts: Vec<_> =
        attributes.iter().map(|KeyValue { key, value, .. }| format!("{key}={}", plain(value))).collect();
    texts.sort();
    texts.join(",")
}

fn plain(value: &Option<AnyValue>) -> String {
    match value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(value)) => value.clone(),
        Some(Value::IntValue(value)) => value.to_string(),
        Some(Value::DoubleValue(value)) => value.to_string(),
        other => format!("{other:?}"),
    }
}
