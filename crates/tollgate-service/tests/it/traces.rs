//! Decisions as spans of OpenTelemetry, by the program itself and a collector of the test.

use crate::process::{File, program, start};
use futures::future::{Ready, ready};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use std::convert::Infallible;
use std::process::Command;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, body::Body};
use tonic_prost::ProstCodec;
use tower::service_fn;

#[derive(Clone)]
struct Collector(UnboundedSender<ExportTraceServiceRequest>);

impl NamedService for Collector {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

impl UnaryService<ExportTraceServiceRequest> for Collector {
    type Response = ExportTraceServiceResponse;
    type Future = Ready<Result<Response<ExportTraceServiceResponse>, Status>>;

    fn call(&mut self, request: Request<ExportTraceServiceRequest>) -> Self::Future {
        self.0.send(request.into_inner()).unwrap();
        ready(Ok(Response::new(ExportTraceServiceResponse::default())))
    }
}

#[tokio::test]
async fn a_decision_is_a_span_in_the_trace_of_its_request() {
    let (sender, mut exported) = unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let collector = Collector(sender);
    let service = service_fn(move |request: http::Request<Body>| {
        let collector = collector.clone();
        async move {
            let codec = ProstCodec::default();
            Ok::<_, Infallible>(Grpc::new(codec).unary(collector, request).await)
        }
    });
    tokio::spawn(Server::builder().serve_with_incoming(service, TcpIncoming::from(listener)));
    let file = File::new(
        "traced.yaml",
        "domain: d\nhttp: [{k: header X-K}]\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
    );
    let (child, url) = start(program().arg(&file.0).env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint));
    let trace = "0af7651916cd43dd8448eb211c80319c";
    for expected in [200, 429] {
        let request = reqwest::Client::new().get(format!("{url}/check")).header("X-K", "v");
        let answer = request.header("traceparent", format!("00-{trace}-b7ad6b7169203331-01")).send().await.unwrap();
        assert_eq!(answer.status(), expected);
    }
    // What is left is exported at the end.
    assert!(Command::new("kill").arg(child.0.id().to_string()).status().unwrap().success());
    let mut spans = Vec::new();
    while spans.len() < 2 {
        let request = tokio::time::timeout(Duration::from_secs(60), exported.recv()).await.expect("no span came");
        let resources = request.unwrap().resource_spans;
        spans.extend(resources.into_iter().flat_map(|it| it.scope_spans).flat_map(|it| it.spans));
    }
    for (span, passes) in spans.iter().zip(["true", "false"]) {
        let trace_id: String = span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((&*trace_id, &*span.name, span.parent_span_id[0]), (trace, "ShouldRateLimit", 0xb7));
        let attributes = format!("{:?}", span.attributes);
        assert!(
            attributes.contains("\"passes\"") && attributes.contains(&format!("BoolValue({passes})")),
            "{attributes}"
        );
    }
}
