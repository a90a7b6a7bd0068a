//! Clients of servers that refuse, in paused time: no request is made during a pause.

use super::*;

use http::{Request, Response, StatusCode};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::{Instant, sleep};
#[cfg(feature = "keyed")]
use tollgate::KeyedLimiter;
use tollgate_tower::LimitLayer;
use tollgate_tower::http::{Heed, HeedLayer};
use tower::util::BoxCloneService;
use tower::{ServiceBuilder, ServiceExt, service_fn};

const CALLS: usize = 120;

type Wire = BoxCloneService<Request<()>, Response<()>, Infallible>;
type Shared = Arc<Mutex<Server>>;

/// A server that grants so many requests in each window, and then none during a pause.
#[derive(Debug)]
struct Server {
    limit: u64,
    window: Duration,
    /// The beginning of the window.
    began: Instant,
    used: u64,
    paused_until: Instant,
    refused: usize,
    during_a_pause: usize,
}

impl Server {
    /// Some 5 ms away. `answer` makes the response from the units that are left: `None` for a refusal.
    fn new(limit: u64, window: Duration, answer: fn(&mut Self, Option<u64>) -> Response<()>) -> (Wire, Shared) {
        let now = Instant::now();
        let (used, refused, during_a_pause) = (0, 0, 0);
        let server = Self { limit, window, began: now, used, paused_until: now, refused, during_a_pause };
        let server = Arc::new(Mutex::new(server));
        let shared = Arc::clone(&server);
        let wire = service_fn(move |_: Request<()>| {
            let server = Arc::clone(&server);
            async move {
                sleep(5 * MILLI).await;
                let response = {
                    let mut server = server.lock().unwrap();
                    let left = server.enter();
                    answer(&mut server, left)
                };
                sleep(5 * MILLI).await;
                Ok(response)
            }
        });
        (BoxCloneService::new(wire), shared)
    }

    fn enter(&mut self) -> Option<u64> {
        let now = Instant::now();
        while now >= self.began + self.window {
            self.began += self.window;
            self.used = 0;
        }
        self.during_a_pause += usize::from(now < self.paused_until);
        if now < self.paused_until || self.used == self.limit {
            self.refused += 1;
            return None;
        }
        self.used += 1;
        Some(self.limit - self.used)
    }

    /// The time to the next window.
    fn reset(&self) -> Duration {
        self.began + self.window - Instant::now()
    }

    fn pause_for(&mut self, pause: Duration) {
        self.paused_until = self.paused_until.max(Instant::now() + pause);
    }
}

/// The time of a server whose clock is wrong.
fn clock() -> SystemTime {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    UNIX_EPOCH + Duration::from_millis(1_661_784_133_250) + START.get_or_init(Instant::now).elapsed()
}

fn response(status: u16, fields: &[(&str, &str)]) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    *response.headers_mut() = headers(fields);
    response.headers_mut().insert("date", httpdate::fmt_http_date(clock()).parse().unwrap());
    response
}

/// Makes the calls, one after the other, and returns how many were refused and how many were made during a pause.
async fn called(
    client: impl tower::Service<Request<()>, Response = Response<()>> + Clone,
    server: &Shared,
) -> (usize, usize) {
    for _ in 0..CALLS {
        assert!(client.clone().oneshot(Request::new(())).await.is_ok());
    }
    let server = server.lock().unwrap();
    (server.refused, server.during_a_pause)
}

fn client(
    limiter: &Limiter,
    heed: Heed,
    wire: Wire,
) -> impl tower::Service<Request<()>, Response = Response<()>> + Clone {
    let limit = LimitLayer::new(limiter).wait_without_limit().release_at_head();
    ServiceBuilder::new().layer(limit).layer(HeedLayer::new(limiter).with(heed)).service(wire)
}

/// A host that says nothing until it refuses, and then names a time with a fraction.
#[cfg(feature = "keyed")]
#[tokio::test(start_paused = true)]
async fn a_crawler_makes_no_request_during_a_pause() {
    let (wire, server) = Server::new(20, 60 * SECOND, |server, left| {
        if left.is_some() {
            return response(200, &[]);
        }
        let pause = server.reset();
        server.pause_for(pause);
        response(429, &[("retry-after", &format!("{:.3}", pause.as_secs_f64() + 0.001))])
    });
    let hosts = KeyedLimiter::new(Quota::per_second(10)).unwrap();
    let limit = LimitLayer::keyed(&hosts, |_: &Request<()>| ("a.example", 1)).wait_without_limit().release_at_head();
    let client = ServiceBuilder::new().layer(limit).layer(HeedLayer::keyed(&hosts, |_: &Request<()>| "a.example"));
    let (refused, during_a_pause) = called(client.service(wire), &server).await;
    assert_eq!((refused, during_a_pause), (5, 0));
}

/// Each response says what is left, and when the window ends.
#[tokio::test(start_paused = true)]
async fn a_client_of_a_server_like_discord_is_never_refused() {
    let (wire, server) = Server::new(5, 5_250 * MILLI, |server, left| {
        let (after, at) = (server.reset(), clock().duration_since(UNIX_EPOCH).unwrap() + server.reset());
        let (after, at) = (format!("{:.3}", after.as_secs_f64()), format!("{:.3}", at.as_secs_f64()));
        let limits = [("x-ratelimit-limit", "5"), ("x-ratelimit-reset", &at), ("x-ratelimit-reset-after", &after)];
        match left {
            Some(left) => {
                if left == 0 {
                    server.pause_for(server.reset());
                }
                response(200, &[&limits[..], &[("x-ratelimit-remaining", &left.to_string())]].concat())
            }
            None => response(429, &[&limits[..], &[("x-ratelimit-remaining", "0"), ("retry-after", &after)]].concat()),
        }
    });
    let limiter = Limiter::new(Quota::per_second(50)).unwrap();
    assert_eq!(called(client(&limiter, Heed::default(), wire), &server).await, (0, 0));
}

/// A secondary limit: the refusal names no time, and units of the primary limit are left.
#[tokio::test(start_paused = true)]
async fn a_client_of_a_server_like_github_makes_no_request_during_a_pause() {
    let (wire, server) = Server::new(40, 60 * SECOND, |server, left| {
        if left.is_none() {
            server.pause_for(60 * SECOND);
        }
        let fields =
            [("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "4290"), ("x-ratelimit-reset", "1661787000")];
        response(if left.is_some() { 200 } else { 403 }, &fields)
    });
    let limiter = Limiter::new(Quota::per_second(50)).unwrap();
    let heed = Heed::default().fallback(60 * SECOND).refusals(|status, headers| {
        matches!(status.as_u16(), 429 | 503) || status == 403 && headers.contains_key("x-ratelimit-limit")
    });
    assert_eq!(called(client(&limiter, heed, wire), &server).await, (2, 0));
}

/// A restart of the server must not cost a day's quota.
#[tokio::test(start_paused = true)]
async fn one_refusal_costs_a_pause_and_no_tokens() {
    for (status, fields) in [(503, &[][..]), (429, &[]), (429, &[("retry-after", "1")])] {
        let limiter = Limiter::new(Quota::per_day(1_000)).unwrap();
        let heed = Heed::default();
        heed.heed(&limiter, StatusCode::from_u16(status).unwrap(), &headers(fields));
        let ok = headers(&[("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "4996")]);
        heed.heed(&limiter, StatusCode::OK, &ok);
        let start = Instant::now();
        for _ in 0..20 {
            limiter.wait(1).await.unwrap();
        }
        assert_eq!(start.elapsed(), SECOND, "{status} {fields:?}");
    }
}

/// The pauses after these refusals, each of which arrives at the end of the pause before.
async fn pauses(heed: &Heed, limiter: &Limiter, count: usize) -> Vec<u64> {
    let mut pauses = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        // Two more arrive during the pause.
        for _ in 0..3 {
            heed.heed(limiter, StatusCode::TOO_MANY_REQUESTS, &headers(&[]));
            sleep(100 * MILLI).await;
        }
        limiter.wait(0).await.unwrap();
        while limiter.snapshot().paused_for.is_some() {
            sleep(100 * MILLI).await;
        }
        pauses.push(start.elapsed().as_secs());
    }
    pauses
}

#[tokio::test(start_paused = true)]
async fn pauses_double_while_refusals_go_on() {
    let [limiter, other] = [(); 2].map(|()| Limiter::new(Quota::per_second(100)).unwrap());
    let heed = Heed::default();
    assert_eq!(pauses(&heed, &limiter, 8).await, [1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(pauses(&heed.clone(), &other, 2).await, [1, 2], "each limiter has a series of its own");
    // Errors that are no refusals end the series too.
    heed.heed(&limiter, StatusCode::NOT_FOUND, &headers(&[]));
    assert_eq!(pauses(&heed, &limiter, 2).await, [1, 2]);
    // A refusal that names a time does not.
    heed.heed(&limiter, StatusCode::TOO_MANY_REQUESTS, &headers(&[("retry-after", "0")]));
    assert_eq!(pauses(&heed, &limiter, 1).await, [4]);

    assert_eq!(pauses(&Heed::default().fallback(45 * SECOND), &limiter, 3).await, [45, 60, 60]);
    assert_eq!(pauses(&Heed::default().fallback(90 * SECOND), &limiter, 2).await, [90, 90]);
    assert_eq!(pauses(&Heed::default().at_most(3 * SECOND), &limiter, 4).await, [1, 2, 3, 3]);
    assert_eq!(pauses(&Heed::default().fallback(Duration::ZERO), &limiter, 2).await, [0, 0]);
}

#[cfg(feature = "keyed")]
#[tokio::test(start_paused = true)]
async fn each_key_has_pauses_of_its_own() {
    let [hosts, others] = [(); 2].map(|()| KeyedLimiter::new(Quota::per_second(100)).unwrap());
    let heed = Heed::default();
    let refused_by = |hosts: &KeyedLimiter<_>, host: &'static str| {
        heed.heed_key(hosts, &host, StatusCode::SERVICE_UNAVAILABLE, &headers(&[]));
        hosts.estimate(&host, 1).unwrap()
    };
    let refused = |host| refused_by(&hosts.clone(), host);
    assert_eq!(refused("a.example"), SECOND);
    sleep(SECOND).await;
    assert_eq!((refused("a.example"), refused("b.example")), (2 * SECOND, SECOND));
    assert_eq!(refused_by(&others, "a.example"), SECOND, "the key of another limiter");
    heed.heed_key(&hosts, &"b.example", StatusCode::OK, &headers(&[]));
    sleep(2 * SECOND).await;
    assert_eq!((refused("a.example"), refused("b.example")), (4 * SECOND, SECOND));
}
