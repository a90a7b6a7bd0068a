//! Turns refusals into errors or responses.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use tollgate::Refused;

type BoxError = Box<dyn Error + Send + Sync>;

/// The error of a limited service: the limiter refused, or the inner service failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError<E> {
    /// The limiter refused; the inner service did not see the request.
    #[error("refused: {0}")]
    Refused(#[source] Refused),
    /// The inner service failed.
    #[error(transparent)]
    Inner(E),
}

/// What a refusal would have to be where services do not fail with `E`. No type implements this trait: it makes the
/// compiler say what is missing in front of axum's router, which requires `Infallible: From<LimitError<E>>`.
///
/// ```compile_fail,E0277
/// use axum::{Router, routing::get};
/// use tollgate::{Limiter, Quota};
/// use tollgate_tower::LimitLayer;
/// let limiter = Limiter::new(Quota::per_second(100)).unwrap();
/// let app: Router = Router::new().route("/", get(async || "hello")).layer(LimitLayer::new(&limiter).refuse());
/// ```
#[diagnostic::on_unimplemented(
    message = "the refusals of this `LimitLayer` are errors, but it is behind a server that accepts no errors",
    label = "end the layer with `.respond()` (feature `http` of tollgate-tower) or `.on_refusal(..)`",
    note = "`.respond()` answers refusals with 429 and `Retry-After`, `.on_refusal(..)` with a response of your own"
)]
pub trait Answered<E> {
    /// Is never called.
    fn answered(error: LimitError<E>) -> Infallible;
}

// Never applies, but its bound is what the compiler reports as missing.
#[doc(hidden)]
impl<E> From<LimitError<E>> for Infallible
where
    Refused: Answered<E>,
{
    fn from(error: LimitError<E>) -> Infallible {
        Refused::answered(error)
    }
}

/// Turns refusals and inner errors into the result of the limited service. The only implementations are [`AsError`],
/// [`AsBoxError`], [`AsResponse`], [`AsGrpc`](super::AsGrpc), and `http::AsHttp` of the feature `http`.
pub trait Answer<Response, E>: sealed::Sealed {
    /// The response of the limited service, before it is [held](super::Hold).
    type Response;
    /// The error of the limited service.
    type Error;

    /// Converts a response of the inner service.
    fn granted(&self, response: Response) -> Self::Response;

    /// Converts a refusal.
    fn refused(&self, refused: Refused) -> Result<Self::Response, Self::Error>;

    /// Converts an error of the inner service.
    fn failed(error: E) -> Self::Error;
}

/// Refusals and inner errors are the two variants of a [`LimitError`].
#[derive(Clone, Copy, Debug, Default)]
pub struct AsError;

impl<Response, E> Answer<Response, E> for AsError {
    type Response = Response;
    type Error = LimitError<E>;

    fn granted(&self, response: Response) -> Response {
        response
    }

    fn refused(&self, refused: Refused) -> Result<Response, LimitError<E>> {
        Err(LimitError::Refused(refused))
    }

    fn failed(error: E) -> LimitError<E> {
        LimitError::Inner(error)
    }
}

/// Refusals and inner errors are boxed unchanged; see [`LimitLayer::box_errors`](super::LimitLayer::box_errors).
#[derive(Clone, Copy, Debug, Default)]
pub struct AsBoxError;

impl<Response, E: Into<BoxError>> Answer<Response, E> for AsBoxError {
    type Response = Response;
    type Error = BoxError;

    fn granted(&self, response: Response) -> Response {
        response
    }

    fn refused(&self, refused: Refused) -> Result<Response, BoxError> {
        Err(refused.into())
    }

    fn failed(error: E) -> BoxError {
        error.into()
    }
}

/// Refusals become responses; see [`LimitLayer::on_refusal`](super::LimitLayer::on_refusal).
pub struct AsResponse<F> {
    respond: Arc<F>,
}

impl<F> AsResponse<F> {
    pub(super) fn new(respond: F) -> Self {
        Self { respond: Arc::new(respond) }
    }
}

impl<Response, E, F: Fn(Refused) -> Response> Answer<Response, E> for AsResponse<F> {
    type Response = Response;
    type Error = E;

    fn granted(&self, response: Response) -> Response {
        response
    }

    fn refused(&self, refused: Refused) -> Result<Response, E> {
        Ok((self.respond)(refused))
    }

    fn failed(error: E) -> E {
        error
    }
}

impl<F> Clone for AsResponse<F> {
    fn clone(&self) -> Self {
        Self { respond: Arc::clone(&self.respond) }
    }
}

impl<F> fmt::Debug for AsResponse<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsResponse").finish_non_exhaustive()
    }
}

pub(crate) mod sealed {
    pub trait Sealed {}

    impl Sealed for super::AsError {}
    impl Sealed for super::AsBoxError {}
    impl<F> Sealed for super::AsResponse<F> {}
}
