//! When the tokens of a request stop being in flight.

use super::*;

use axum::body::Bytes;
use http_body::{Body as _, Frame};
use http_body_util::{Empty, Full, StreamBody};

fn capped() -> Limiter {
    built(Limiter::builder().quota(Quota::per_second(1_000)).max_in_flight(3)).0
}

fn in_flight(limiter: &Limiter) -> u64 {
    limiter.snapshot().in_flight.unwrap()
}

/// The response to a request of cost 2 that a service answers with `body`.
fn response<B: http_body::Body>(
    limiter: &Limiter,
    body: B,
) -> Response<tollgate_tower::HeldBody<B, tollgate::OwnedGrant>> {
    let body = std::sync::Arc::new(std::sync::Mutex::new(Some(body)));
    let inner = service_fn(move |_: Request<()>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(body.lock().unwrap().take().unwrap())))
    });
    let service = LimitLayer::new(limiter).cost(|_: &Request<()>| 2).layer(inner);
    assert_ready!(spawn(service.oneshot(Request::new(()))).poll()).unwrap()
}

#[test]
fn a_body_holds_to_its_last_frame() {
    let limiter = capped();
    let (send, receive) = futures::channel::mpsc::unbounded::<Result<Frame<Bytes>, Infallible>>();
    let mut body = response(&limiter, StreamBody::new(receive)).into_body();
    assert_eq!(in_flight(&limiter), 2);
    assert_pending!(spawn(body.frame()).poll());
    for frame in [Frame::data(Bytes::from("a")), Frame::trailers(http::HeaderMap::new())] {
        send.unbounded_send(Ok(frame)).unwrap();
        assert!(assert_ready!(spawn(body.frame()).poll()).unwrap().is_ok());
        assert_eq!((in_flight(&limiter), body.is_end_stream()), (2, false));
    }
    drop(send);
    assert!(assert_ready!(spawn(body.frame()).poll()).is_none());
    assert_eq!((in_flight(&limiter), body.pass().is_none()), (0, true), "the body still exists");
}

#[test]
fn a_body_of_known_length_releases_its_tokens_with_its_last_frame() {
    let limiter = capped();
    let mut body = response(&limiter, Full::new(Bytes::from("all of it"))).into_body();
    assert_eq!((in_flight(&limiter), body.size_hint().exact()), (2, Some(9)));
    assert!(assert_ready!(spawn(body.frame()).poll()).unwrap().is_ok());
    assert_eq!((in_flight(&limiter), body.is_end_stream()), (0, true));
    let empty = response(&limiter, Empty::<Bytes>::new());
    assert_eq!(in_flight(&limiter), 0);
    drop(empty);
}

#[test]
fn a_body_that_is_dropped_or_fails_releases_its_tokens() {
    let limiter = capped();
    let first = response(&limiter, Full::new(Bytes::from("a")));
    assert_eq!(in_flight(&limiter), 2);
    drop(first);
    assert_eq!(in_flight(&limiter), 0);

    let failing = Body::from_stream(futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("broken"))]));
    let mut body = response(&limiter, failing).into_body();
    assert_eq!(in_flight(&limiter), 2);
    assert!(assert_ready!(spawn(body.frame()).poll()).unwrap().is_err());
    assert_eq!(in_flight(&limiter), 0);
}

#[test]
fn the_real_cost_can_be_settled_while_the_body_holds() {
    let limiter = capped();
    let mut body = response(&limiter, Full::new(Bytes::from("a"))).into_body();
    body.pass_mut().as_mut().unwrap().settle(1);
    assert_eq!((in_flight(&limiter), paid(&limiter)), (1, 1));
    let (_body, pass) = body.into_parts();
    assert_eq!(in_flight(&limiter), 1);
    drop(pass);
    assert_eq!(in_flight(&limiter), 0);
}

#[test]
fn with_release_at_the_head_tokens_are_in_flight_while_the_service_works() {
    let limiter = capped();
    let inner = service_fn(async |_: Request<()>| {
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("a"))))
    });
    let service = LimitLayer::new(&limiter).release_at_head().layer(inner);
    let mut call = spawn(service.clone().oneshot(Request::new(())));
    assert_pending!(call.poll());
    assert_eq!(in_flight(&limiter), 1);
    let _response: Response<Full<Bytes>> = assert_ready!(call.poll()).unwrap();
    assert_eq!(in_flight(&limiter), 0);
    // Or when the future is dropped.
    let mut call = spawn(service.oneshot(Request::new(())));
    assert_pending!(call.poll());
    assert_eq!(in_flight(&limiter), 1);
    drop(call);
    assert_eq!(in_flight(&limiter), 0);
}

#[test]
fn a_service_that_fails_releases_its_tokens() {
    let limiter = capped();
    let inner = service_fn(async |_: Request<()>| Err::<Response<Full<Bytes>>, _>(std::io::Error::other("no")));
    let service = LimitLayer::new(&limiter).layer(inner);
    let mut call = spawn(service.oneshot(Request::new(())));
    assert!(assert_ready!(call.poll()).is_err());
    assert_eq!((in_flight(&limiter), paid(&limiter)), (0, 1));
}
