//! A client that follows, and a server that reports, in paused time.

use super::*;

use std::sync::Mutex;
use tollgate_tower::http::{Heeded, HttpLimit};
use tower::ServiceBuilder;
use tower::util::BoxCloneService;

type Text = http_body_util::Full<axum::body::Bytes>;
type Answered = Arc<Mutex<Vec<(Duration, StatusCode)>>>;
type Wire = BoxCloneService<Request<()>, Response<()>, Infallible>;

/// A server some 5 ms away, with the status and the instant of each response.
fn server(limiter: &Limiter, every: bool) -> (Wire, Answered) {
    server_at(limiter, every, || 5 * MILLI)
}

/// A server at the given distance, with the status and the instant of each response.
fn server_at(
    limiter: &Limiter,
    every: bool,
    distance: impl Fn() -> Duration + Clone + Send + 'static,
) -> (Wire, Answered) {
    let start = Instant::now();
    let answered = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&answered);
    let layer = LimitLayer::new(limiter).refuse().respond();
    let layer = if every { layer.on_every_response() } else { layer };
    let inner = layer.layer(service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(Text::default()))));
    let wire = service_fn(move |request: Request<()>| {
        let (inner, seen): (HttpLimit<_>, _) = (inner.clone(), Arc::clone(&seen));
        let (there, back) = (distance(), distance());
        async move {
            sleep(there).await;
            let response = inner.oneshot(request).await?;
            seen.lock().unwrap().push((start.elapsed(), response.status()));
            sleep(back).await;
            Ok(response.map(drop))
        }
    });
    (BoxCloneService::new(wire), answered)
}

fn count(answered: &Answered, status: StatusCode) -> usize {
    answered.lock().unwrap().iter().filter(|(_, seen)| *seen == status).count()
}

#[tokio::test(start_paused = true)]
async fn after_one_refusal_there_is_no_second() {
    for every in [false, true] {
        for quota in [Quota::per_second(2), Quota::per_second(2).burst(1), Quota::new(3, 7 * SECOND).burst(2)] {
            let theirs = Limiter::new(quota).unwrap();
            let (wire, answered) = server(&theirs, every);
            // As if it had never received a limit.
            let own = Limiter::new(Quota::per_second(1_000)).unwrap();
            let client: Heeded<Wire> = HeedLayer::new(&own).follow(0).unwrap().layer(wire);
            let client = LimitLayer::new(&own).wait_without_limit().release_at_head().layer(client);
            // One request too many, one after the other: the last one is refused, or delayed with `every`.
            for _ in 0..=quota.capacity() {
                client.clone().oneshot(Request::new(())).await.unwrap();
            }
            assert_eq!(count(&answered, StatusCode::TOO_MANY_REQUESTS), usize::from(!every), "{quota}");
            // From now on many at once.
            let many = (0..50).map(|_| client.clone().oneshot(Request::new(())));
            for response in futures::future::join_all(many).await {
                assert_eq!(response.unwrap().status(), StatusCode::OK);
            }
            assert_eq!(count(&answered, StatusCode::TOO_MANY_REQUESTS), usize::from(!every), "{quota}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_client_then_keeps_the_rate_of_the_server() {
    let theirs = Limiter::new(Quota::per_second(2).burst(1)).unwrap();
    let (wire, answered) = server(&theirs, false);
    let own = Limiter::new(Quota::per_second(1_000)).unwrap();
    let client = ServiceBuilder::new().layer(LimitLayer::new(&own).release_at_head());
    let client = client.layer(HeedLayer::new(&own).follow(0).unwrap()).service(wire);
    for _ in 0..2 {
        client.clone().oneshot(Request::new(())).await.unwrap();
    }
    for response in futures::future::join_all((0..20).map(|_| client.clone().oneshot(Request::new(())))).await {
        assert_eq!(response.unwrap().status(), StatusCode::OK);
    }
    let answered = answered.lock().unwrap();
    // Granted at once, refused 10 ms later, and told at 20 ms to retry after a second, when the client's own bucket has
    // its token back; then a tenth slower than one each half second.
    assert_eq!(answered[..2], [(5 * MILLI, StatusCode::OK), (15 * MILLI, StatusCode::TOO_MANY_REQUESTS)]);
    for (index, (at, status)) in answered[2..].iter().enumerate() {
        // Tokio's timers have a resolution of a millisecond, and each may be late by one.
        let due = 1_025 * MILLI + index as u32 * 550 * MILLI;
        assert!(*at >= due && *at <= due + 2 * MILLI, "{index}: {at:?}");
        assert_eq!(*status, StatusCode::OK);
    }
}

/// Requests with a varying latency arrive in groups.
#[tokio::test(start_paused = true)]
async fn a_network_with_jitter_causes_no_second_refusal() {
    // As far apart as the slack: a tenth of the half second, or a token's time.
    for (quota, most) in [(Quota::per_second(2).burst(1), 45), (Quota::per_second(2).burst(3), 450)] {
        let theirs = Limiter::new(quota).unwrap();
        let (wire, answered) = server_at(&theirs, false, move || fastrand::u64(..most) as u32 * MILLI);
        let own = Limiter::new(Quota::per_second(1_000)).unwrap();
        let client = HeedLayer::new(&own).follow(0).unwrap().layer(wire);
        let client = LimitLayer::new(&own).release_at_head().layer(client);
        let one_too_many = (0..=quota.capacity()).map(|_| client.clone().oneshot(Request::new(())));
        futures::future::join_all(one_too_many).await;
        assert_eq!(count(&answered, StatusCode::TOO_MANY_REQUESTS), 1, "{quota}");
        // A client that waits for each answer never has many requests open; the other one has.
        for _ in 0..100 {
            client.clone().oneshot(Request::new(())).await.unwrap();
        }
        futures::future::join_all((0..100).map(|_| client.clone().oneshot(Request::new(())))).await;
        assert_eq!(count(&answered, StatusCode::TOO_MANY_REQUESTS), 1, "{quota}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_follows_no_policy_still_waits_for_retry_after() {
    let theirs = Limiter::new(Quota::new(1, 5 * SECOND)).unwrap();
    let (wire, answered) = server(&theirs, false);
    let own = Limiter::new(Quota::per_second(1_000)).unwrap();
    let client = LimitLayer::new(&own).release_at_head().layer(HeedLayer::new(&own).layer(wire));
    let start = Instant::now();
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(client.clone().oneshot(Request::new(())).await.unwrap().status().as_u16());
    }
    // Each refusal costs one pause, and the request that waited for it passes.
    assert_eq!(statuses, [200, 429, 200, 429, 200, 429]);
    let at: Vec<_> = answered.lock().unwrap().iter().map(|(at, _)| at.as_secs()).collect();
    assert_eq!(at, [0, 0, 5, 5, 10, 10]);
    assert!(start.elapsed() < 11 * SECOND);
}

/// One limiter per host, and one server per host: a pause of one host does not delay the other.
#[tokio::test(start_paused = true)]
async fn each_host_has_its_own_limiter() {
    let [one, other] = [(); 2].map(|()| Limiter::new(Quota::per_second(100)).unwrap());
    let asked = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&asked);
    let wire = service_fn(move |_: Request<()>| {
        seen.fetch_add(1, Ordering::Relaxed);
        let response = Response::builder().status(429).header("retry-after", "1000");
        std::future::ready(response.body(()))
    });
    let (a, b) = (one.clone(), other.clone());
    let choose = move |request: &Request<()>| if request.uri().host() == Some("one") { a.clone() } else { b.clone() };
    let heeded = HeedLayer::by(choose).with(Heed::default().at_most(60 * SECOND)).layer(wire);
    heeded.clone().oneshot(Request::get("http://one/").body(()).unwrap()).await.unwrap();
    assert_eq!([&one, &other].map(|limiter| limiter.snapshot().paused_for), [Some(60 * SECOND), None]);
    heeded.oneshot(Request::get("http://other/").body(()).unwrap()).await.unwrap();
    assert_eq!([&one, &other].map(|limiter| limiter.snapshot().paused_for), [Some(60 * SECOND); 2]);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}
