//! The service that answers the requests of a connection.

use std::convert::Infallible;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, Response};
use tower::{BoxError, Service};

/// The largest head, and the most that is read ahead of a body.
pub(super) const MAX_READ: usize = 64 << 10;

/// The service of a connection. It never fails.
pub(crate) trait HttpService:
    Service<Request<Body>, Response = Response<<Self as HttpService>::Body>, Error = Infallible, Future: Send + 'static>
    + Clone
    + Send
    + 'static
{
    type Body: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
}

impl<S, B> HttpService for S
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible, Future: Send + 'static>,
    S: Clone + Send + 'static,
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = B;
}
