//! Envoy's rate limit service over gRPC.

use crate::answer::Invalid;
use crate::proto::{RateLimitRequest, RateLimitResponse};
use crate::service::Service;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// The largest request, in bytes. Envoy sends some hundred.
pub const MOST_BYTES: usize = 1 << 20;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The service `envoy.service.ratelimit.v3.RateLimitService`.
#[derive(Clone, Debug)]
pub struct RateLimitServer {
    service: Arc<Service>,
}

impl RateLimitServer {
    /// Creates a server of this service.
    pub fn new(service: Arc<Service>) -> Self {
        Self { service }
    }
}

impl NamedService for RateLimitServer {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl tower_service::Service<http::Request<Body>> for RateLimitServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Boxed<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" {
            let status = Status::unimplemented("the service has one method: ShouldRateLimit");
            return Box::pin(async move { Ok(status.into_http()) });
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
            match service.decide(request.get_ref()).await {
                Ok(answer) => Ok(Response::new(answer.response)),
                Err(invalid) => Err(status_of(invalid)),
            }
        })
    }
}

fn status_of(invalid: Invalid) -> Status {
    Status::invalid_argument(invalid.to_string())
}
