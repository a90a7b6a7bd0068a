//! How long a request is in flight.

use super::body::HeldBody;

/// Attaches the grant to the response, or drops it.
///
/// Implement this trait for responses that end neither with their head nor with their body.
pub trait Hold<Response, Pass> {
    /// The response of the limited service.
    type Response;

    /// Called when the head of `response` is available. `pass` is `None` for the response to a refusal.
    fn hold(&self, response: Response, pass: Option<Pass>) -> Self::Response;
}

/// Keeps the request in flight until the response's body has yielded its last frame, has failed, or is dropped.
///
/// The response that upgrades a connection ends with the upgrade.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToBody;

impl<Body: http_body::Body, Pass> Hold<http::Response<Body>, Pass> for ToBody {
    type Response = http::Response<HeldBody<Body, Pass>>;

    fn hold(&self, response: http::Response<Body>, pass: Option<Pass>) -> Self::Response {
        response.map(|body| HeldBody::new(body, pass))
    }
}

/// Keeps the request in flight until the inner service has responded. Works with responses of any kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToHead;

impl<Response, Pass> Hold<Response, Pass> for ToHead {
    type Response = Response;

    fn hold(&self, response: Response, _landed: Option<Pass>) -> Response {
        response
    }
}
