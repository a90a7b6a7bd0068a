//! Envoy's rate limit service over gRPC.

use crate::proto::{RateLimitRequest, RateLimitResponse};
use crate::service::Service;
use crate::traces;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// The largest request, in bytes. Envoy sends some hundred.
pub const MOST_BYTES: usize = 1 << 20;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The name of Envoy's service.
pub const NAME: &str = "envoy.service.ratelimit.v3.RateLimitService";
const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The services of the gRPC port: [`NAME`], and others. A request for a decision passes no router, which takes longer
/// than the decision.
#[derive(Clone, Debug)]
pub struct GrpcServer {
    service: Arc<Service>,
    others: Routes,
}

impl GrpcServer {
    /// Creates a server of this service and of the others.
    pub fn new(service: Arc<Service>, others: Routes) -> Self {
        Self { service, others }
    }
}

impl tower_service::Service<http::Request<Body>> for GrpcServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Boxed<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != METHOD {
            return Box::pin(self.others.call(request));
        }
        let method = ShouldRateLimit(Arc::clone(&self.service));
        Box::pin(async move {
            let codec = ProstCodec::default();
            let mut grpc = Grpc::new(codec).max_decoding_message_size(MOST_BYTES);
            Ok(grpc.unary(method, request).await)
        })
    }
}

struct ShouldRateLimit(Arc<Service>);

impl UnaryService<RateLimitRequest> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future = Boxed<Result<Response<RateLimitResponse>, Status>>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        let service = Arc::clone(&self.0);
        Box::pin(async move {
            match traces::decide(&service, request.get_ref(), request.metadata().as_ref()).await {
                Ok(answer) => Ok(Response::new(answer.response)),
                Err(invalid) => Err(Status::invalid_argument(invalid.to_string())),
            }
        })
    }
}
