//! The server's layer, its options and its bodies.

use super::*;

use http_body::Body as _;
use http_body_util::Full;
use tollgate::Share;
use tollgate_tower::http::{Advertise, HttpLimitLayer, LimitBody};
use tollgate_tower::{Admission, Gate, Hold, MaxWait};

type Text = Full<axum::body::Bytes>;

/// A service with a fixed response.
fn hello() -> impl Service<Request<()>, Response = Response<Text>, Error = Infallible, Future: Unpin> + Clone {
    service_fn(|_: Request<()>| std::future::ready(Ok(Response::new(Text::from("hello")))))
}

fn text<B: http_body::Body<Data = axum::body::Bytes, Error = Infallible>>(response: Response<B>) -> String {
    let body = assert_ready!(spawn(Box::pin(response.into_body().collect())).poll()).unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

fn names(headers: &HeaderMap) -> Vec<&str> {
    headers.keys().map(|name| name.as_str()).collect()
}

#[test]
fn a_refusal_is_a_response_with_the_fields_of_the_draft() {
    let (limiter, _clock) = built(Limiter::builder().quota_named("burst", Quota::per_minute(1)));
    let service = LimitLayer::new(&limiter).refuse().respond().layer(hello());
    let granted = call(&service, Request::new(()));
    assert_eq!((granted.status(), granted.headers().len()), (StatusCode::OK, 0));
    assert_eq!(text(granted), "hello");
    let refused = call(&service, Request::new(()));
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(names(refused.headers()), ["content-type", "retry-after", "ratelimit-policy", "ratelimit"]);
    let fields =
        ["content-type", "retry-after", "ratelimit-policy", "ratelimit"].map(|name| field(refused.headers(), name));
    assert_eq!(fields, ["text/plain; charset=utf-8", "60", r#""burst";q=1;w=60"#, r#""burst";r=0;t=60"#]);
    assert_eq!(refused.body().size_hint().exact(), Some(33));
    assert_eq!(text(refused), "Quota Exceeded: retry after 60 s\n".to_owned());
}

#[test]
fn every_response_has_the_fields_on_request() {
    let (limiter, clock) = by_hand(Quota::new(1, 2 * SECOND).burst(3));
    let layer = LimitLayer::new(&limiter).refuse().respond().on_every_response().name("api").problem_json();
    let service = layer.formats([Format::Draft11, Format::XRateLimit]).layer(hello());
    for (left, wait) in [(2, 2), (1, 2), (0, 2)] {
        let response = call(&service, Request::new(()));
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(field(response.headers(), "ratelimit-policy"), r#""api";q=1;w=2;tollgate-burst=3"#);
        assert_eq!(field(response.headers(), "ratelimit"), format!(r#""api";r={left};t={wait}"#));
        let older =
            ["limit", "remaining", "reset"].map(|name| field(response.headers(), &format!("x-ratelimit-{name}")));
        assert_eq!(older, ["1".to_owned(), left.min(1).to_string(), wait.to_string()]);
    }
    clock.advance(SECOND);
    let refused = call(&service, Request::new(()));
    let fields = ["content-type", "retry-after", "x-ratelimit-reset"].map(|name| field(refused.headers(), name));
    assert_eq!(fields, ["application/problem+json", "1", "1"]);
    let body: serde_json::Value = serde_json::from_str(&text(refused)).unwrap();
    assert_eq!(body["violated-policies"], serde_json::json!(["api"]));
}

#[test]
fn formats_are_a_choice() {
    let (limiter, _clock) = by_hand(Quota::per_minute(1).initial(0));
    let refused = |layer: HttpLimitLayer| call(&layer.layer(hello()), Request::new(()));
    let layer = LimitLayer::new(&limiter).refuse().respond();
    let older = refused(layer.clone().format(Format::XRateLimit));
    let expected = ["content-type", "retry-after", "x-ratelimit-remaining", "x-ratelimit-limit", "x-ratelimit-reset"];
    assert_eq!(names(older.headers()), expected);
    assert_eq!(names(refused(layer.clone().formats([])).headers()), ["content-type", "retry-after"]);
    let bytes = refused(layer.unit(Unit::ContentBytes));
    assert_eq!(field(bytes.headers(), "ratelimit-policy"), r#""default";q=1;qu="content-bytes";w=60"#);
}

#[test]
fn the_partition_key_is_the_request_s() {
    let (limiter, _clock) = by_hand(Quota::per_minute(1));
    let key = |request: &Request<()>| request.uri().path().as_bytes().to_vec();
    let layer = LimitLayer::new(&limiter).refuse().respond().on_every_response().partition_key(key);
    let response = call(&layer.layer(hello()), Request::get("/a").body(()).unwrap());
    assert_eq!(field(response.headers(), "ratelimit-policy"), r#""default";q=1;w=60;pk=:L2E=:"#);
    assert_eq!(field(response.headers(), "ratelimit"), r#""default";r=0;t=60;pk=:L2E=:"#);
}

#[test]
fn the_response_reports_the_cost_and_the_limiter_of_the_request() {
    let ((small, _), (large, _)) = (by_hand(Quota::per_minute(3)), by_hand(Quota::per_minute(30)));
    let chosen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&chosen);
    let choose = move |request: &Request<()>| {
        count.fetch_add(1, Ordering::Relaxed);
        (if request.uri().path() == "/large" { large.clone() } else { small.clone() }, 2)
    };
    let service = LimitLayer::by(choose).refuse().respond().on_every_response().layer(hello());
    let left = |path| field(call(&service, Request::get(path).body(()).unwrap()).headers(), "ratelimit");
    assert_eq!(left("/large"), r#""default";r=28;t=2"#);
    assert_eq!(left("/small"), r#""default";r=1;t=20"#);
    assert_eq!(left("/small"), r#""default";r=1;t=20"#);
    assert_eq!(left("/large"), r#""default";r=26;t=2"#);
    assert_eq!(chosen.load(Ordering::Relaxed), 4, "called once for each request");

    let (limiter, _clock) = by_hand(Quota::per_minute(30));
    let service =
        LimitLayer::new(&limiter).cost(|_: &Request<()>| 7).refuse().respond().on_every_response().layer(hello());
    assert_eq!(field(call(&service, Request::new(())).headers(), "ratelimit"), r#""default";r=23;t=2"#);
}

/// Two limits, one inside the other: their lists are joined, and of single values the tighter one stays.
#[test]
fn nested_layers_report_both_limits() {
    let ((user, _), (all, _)) = (by_hand(Quota::per_minute(3)), by_hand(Quota::per_minute(30)));
    let formats = [Format::Draft11, Format::XRateLimit];
    let layer = |limiter, name: &str| {
        LimitLayer::new(limiter).refuse().respond().on_every_response().name(name).formats(formats)
    };
    let service = layer(&user, "user").layer(layer(&all, "all").layer(hello()));
    let response = call(&service, Request::new(()));
    assert_eq!(field(response.headers(), "ratelimit"), r#""all";r=29;t=2, "user";r=2;t=20"#);
    assert_eq!(field(response.headers(), "ratelimit-policy"), r#""all";q=30;w=60, "user";q=3;w=60"#);
    assert_eq!(field(response.headers(), "x-ratelimit-remaining"), "2");
    take(&all, 29);
    let response = call(&service, Request::new(()));
    assert_eq!((response.status().as_u16(), field(response.headers(), "retry-after").as_str()), (429, "2"));
    assert_eq!(field(response.headers(), "ratelimit"), r#""all";r=0;t=2, "user";r=1;t=20"#);
    assert_eq!(field(response.headers(), "x-ratelimit-remaining"), "0");
}

#[test]
fn a_body_holds_its_slot_to_its_end_and_a_refusal_holds_none() {
    let (limiter, _clock) = built(Limiter::builder().quota(Quota::per_second(1_000)).max_in_flight(1));
    let layer = LimitLayer::new(&limiter).refuse().respond().on_every_response().tell_in_flight();
    let service = layer.or_retry_after(2_500 * MILLI).layer(hello());
    let in_flight = || limiter.snapshot().in_flight.unwrap();
    let mut held = call(&service, Request::new(()));
    assert_eq!((held.body().is_end_stream(), held.body().size_hint().exact()), (false, Some(5)));
    let refused = call(&service, Request::new(()));
    assert_eq!((refused.status().as_u16(), field(refused.headers(), "retry-after").as_str()), (429, "3"));
    assert_eq!(field(refused.headers(), "ratelimit"), r#""default";r=999;t=1, "in-flight";r=0"#);
    drop(refused);
    assert_eq!(in_flight(), 1);
    assert!(assert_ready!(spawn(held.body_mut().frame()).poll()).unwrap().is_ok());
    assert_eq!((in_flight(), held.body().is_end_stream()), (0, true));

    let held = call(&service, Request::new(()));
    assert_eq!(in_flight(), 1);
    drop(held);
    assert_eq!(in_flight(), 0);

    let early = LimitLayer::new(&limiter).release_at_head().refuse().respond().layer(hello());
    let _landed: Response<LimitBody<Text>> = call(&early, Request::new(()));
    assert_eq!(in_flight(), 0);
}

#[test]
fn a_refusal_s_body_is_one_frame_and_its_end() {
    let (limiter, _clock) = by_hand(Quota::per_second(1).initial(0));
    let service = LimitLayer::new(&limiter).refuse().respond().layer(hello());
    let mut body = call(&service, Request::new(())).into_body();
    assert!(!body.is_end_stream());
    let frame = assert_ready!(spawn(body.frame()).poll()).unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "Quota Exceeded: retry after 1 s\n");
    assert_eq!((body.is_end_stream(), body.size_hint().exact()), (true, Some(0)));
    assert!(assert_ready!(spawn(body.frame()).poll()).is_none());
}

#[test]
fn errors_are_the_inner_service_s_and_waiting_goes_on_as_before() {
    let (limiter, clock) = by_hand(Quota::per_second(1).initial(0));
    let broken = service_fn(async |_: Request<()>| Err::<Response<Text>, _>(std::io::Error::other("broken")));
    let service = LimitLayer::new(&limiter).within(2 * SECOND).respond().layer(broken);
    let mut first = spawn(service.clone().oneshot(Request::new(())));
    let mut second = spawn(service.clone().oneshot(Request::new(())));
    let mut third = spawn(service.oneshot(Request::new(())));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    let refused = assert_ready!(third.poll()).unwrap();
    // It was too late by 1 s: the queue is served in 2 s, and one more token is available in 3.
    assert_eq!((refused.status().as_u16(), field(refused.headers(), "retry-after").as_str()), (429, "3"));
    clock.advance(SECOND);
    limiter.tick();
    let error: std::io::Error = assert_ready!(first.poll()).unwrap_err();
    assert_eq!(error.to_string(), "broken");
    drop(second);
    assert_eq!(limiter.snapshot().waiting_tasks, 0);
}

/// A user's gate names the limiter to report.
#[derive(Clone)]
struct Odd(Limiter);

impl Gate<Request<()>> for Odd {
    type Pass = tollgate::OwnedGrant;
    type Admission = Admission;

    fn admit(&self, _: &Request<()>, max_wait: MaxWait) -> Admission {
        Admission::new(self.0.clone(), 3, max_wait)
    }
}

impl Advertise<Request<()>> for Odd {
    type View = Limiter;

    fn admit_in_view(&self, request: &Request<()>, max_wait: MaxWait) -> (Admission, Limiter) {
        (self.admit(request, max_wait), self.0.clone())
    }
}

/// Keeps the grant beside the response.
#[derive(Clone, Copy)]
struct Beside;

impl<Response, Pass> Hold<Response, Pass> for Beside {
    type Response = (Response, Option<Pass>);

    fn hold(&self, response: Response, pass: Option<Pass>) -> Self::Response {
        (response, pass)
    }
}

#[test]
fn a_user_gate_is_reported_too_and_what_it_grants_can_be_kept_elsewhere() {
    let (limiter, _clock) = by_hand(Quota::per_minute(30));
    let service = LimitLayer::through(Odd(limiter.clone())).refuse().respond().on_every_response().layer(hello());
    assert_eq!(field(call(&service, Request::new(())).headers(), "ratelimit"), r#""default";r=27;t=2"#);
    let service = LimitLayer::through(Odd(limiter.clone())).hold(Beside).layer(hello());
    let (_, pass) = assert_ready!(spawn(service.oneshot(Request::new(()))).poll()).unwrap();
    assert_eq!((pass.unwrap().cost(), limiter.available()), (3, 24));
}

#[test]
fn the_limits_of_a_class_are_those_of_its_limiter() {
    let (limiter, _clock) = built(Limiter::builder().quota_named("burst", Quota::per_minute(1)).classes());
    let class = limiter.class("batch", Share::weight(1)).unwrap();
    let service = LimitLayer::new(&class).refuse().respond().on_every_response().layer(hello());
    let granted = call(&service, Request::new(()));
    assert_eq!(
        (granted.status(), field(granted.headers(), "ratelimit")),
        (StatusCode::OK, r#""burst";r=0;t=60"#.into())
    );
    let refused = call(&service, Request::new(()));
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(refused.headers(), "retry-after"), "60");
    let service = LimitLayer::by(move |_: &Request<()>| (class.clone(), 1)).refuse().respond().layer(hello());
    assert_eq!(field(call(&service, Request::new(())).headers(), "ratelimit"), r#""burst";r=0;t=60"#);
}

#[test]
fn grpc_and_grpc_web_get_the_refusal_as_a_status_without_a_body() {
    let (limiter, _clock) = built(Limiter::builder().quota(Quota::per_second(10).burst(1)));
    let service = LimitLayer::new(&limiter).refuse().respond().layer(hello());
    let _taken = limiter.try_acquire(1).unwrap();
    let observed = |kind: &str| {
        let response = call(&service, Request::builder().header("content-type", kind).body(()).unwrap());
        let of = |name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let observed = (response.status().as_u16(), of("content-type").unwrap(), of("grpc-status"));
        (observed, of("grpc-retry-pushback-ms"), text(response).is_empty())
    };
    for (kind, expected) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc+proto", "application/grpc"),
        ("application/grpc-web", "application/grpc-web"),
        ("application/grpc-web+proto", "application/grpc-web+proto"),
        ("application/grpc-web-text", "application/grpc-web-text"),
        ("application/grpc-web-text+proto", "application/grpc-web-text+proto"),
    ] {
        let status = (200, expected.to_owned(), Some("8".to_owned()));
        assert_eq!(observed(kind), (status, Some("100".to_owned()), true), "{kind}");
    }
    for kind in ["application/json", "application/grpcx", "application/grpc-website"] {
        assert_eq!(observed(kind).0.0, 429, "{kind}");
    }
}
