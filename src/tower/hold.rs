//! Until when a request is in flight.

use super::body::HeldBody;

/// Takes the proof of admission along with the response, or lets go of it.
///
/// Implement it for responses of other kinds, whose end is elsewhere.
pub trait Hold<Response, Pass> {
    /// What the limited service responds with.
    type Response;

    /// The head of `response` is there. `pass` is `None` if it answers a refusal.
    fn hold(&self, response: Response, pass: Option<Pass>) -> Self::Response;
}

/// In flight to the end of the response's body: until it has yielded its last frame, has failed, or is dropped.
///
/// A connection that is upgraded has come to the end of its response.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToBody;

impl<Body: http_body::Body, Pass> Hold<http::Response<Body>, Pass> for ToBody {
    type Response = http::Response<HeldBody<Body, Pass>>;

    fn hold(&self, response: http::Response<Body>, pass: Option<Pass>) -> Self::Response {
        response.map(|body| HeldBody::new(body, pass))
    }
}

/// In flight until the inner service has responded. For responses of any kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToHead;

impl<Response, Pass> Hold<Response, Pass> for ToHead {
    type Response = Response;

    fn hold(&self, response: Response, _landed: Option<Pass>) -> Response {
        response
    }
}
