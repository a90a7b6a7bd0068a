//! What `respond()` of tollgate-tower costs a request that passes: without it, with it, and with fields on every
//! response, for one limiter and for a keyed one.

use crate::rounds::{Contender, Extent, measure};
use futures::FutureExt;
use http::{Request, Response};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use tollgate::{KeyedLimiter, Limiter, Quota};
use tollgate_tower::LimitLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

fn answer(_: Request<String>) -> Ready<Result<Response<String>, Infallible>> {
    ready(Ok(Response::new(String::new())))
}

fn contender<S: Service<Request<String>> + Clone + Sync + 'static>(name: &'static str, service: S) -> Contender
where
    S::Error: std::fmt::Debug,
{
    Contender::new(name, move |calls| {
        for _ in 0..calls {
            let request = Request::get("/").header("x-api-key", "ann").body(String::new()).expect("it is valid");
            let response = service.clone().oneshot(request).now_or_never().expect("no call waits");
            black_box(response.is_ok());
        }
    })
}

pub fn run(extent: Extent) {
    // No call is delayed.
    let quota = Quota::per_second(1_000_000_000);
    let one = Limiter::new(quota).expect("valid");
    let clients = KeyedLimiter::new(quota).expect("valid");
    let key = |request: &Request<String>| (request.headers()["x-api-key"].to_str().unwrap_or_default().to_owned(), 1);
    let (single, keyed) = (|| LimitLayer::new(&one), || LimitLayer::keyed(&clients, key));
    let service = || service_fn(answer);
    let contenders = [
        contender("one limiter", single().layer(service())),
        contender("one limiter, `respond()`", single().respond().layer(service())),
        contender(
            "one limiter, `respond().on_every_response()`",
            single().respond().on_every_response().layer(service()),
        ),
        contender("keyed", keyed().layer(service())),
        contender("keyed, `respond()`", keyed().respond().layer(service())),
        contender("keyed, `respond().on_every_response()`", keyed().respond().on_every_response().layer(service())),
    ];
    measure("respond", &contenders, 1, extent);
}
