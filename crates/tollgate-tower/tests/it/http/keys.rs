//! A bucket per key, before services.

use super::*;

use tollgate::KeyedLimiter;

type Text = http_body_util::Full<axum::body::Bytes>;

fn users(quota: Quota) -> (KeyedLimiter<String>, ManualClock) {
    let clock = ManualClock::new();
    (KeyedLimiter::builder().quota(quota).max_keys(2).clock(clock.clone()).build().unwrap(), clock)
}

fn user(request: &Request<u64>) -> (String, u64) {
    (request.uri().path()[1..].to_owned(), *request.body())
}

fn ask(user: &str, cost: u64) -> Request<u64> {
    Request::get(format!("/{user}")).body(cost).unwrap()
}

async fn hello(_: Request<u64>) -> Result<Response<Text>, Infallible> {
    Ok(Response::new(Text::from("hello")))
}

#[test]
fn each_key_gets_the_fields_of_its_own_limiter() {
    let (users, clock) = users(Quota::new(1, 2 * SECOND).burst(4));
    users.set_quota_for(&"bob".to_owned(), Quota::per_minute(6)).unwrap();
    let layer = LimitLayer::keyed(&users, user).refuse().respond().on_every_response().name("per-user");
    let service = layer.partition_key(|request| user(request).0.into_bytes()).layer(service_fn(hello));
    let observed = |user, cost| {
        let response = call(&service, ask(user, cost));
        let fields = ["retry-after", "ratelimit-policy", "ratelimit"].map(|name| field(response.headers(), name));
        (response.status().as_u16(), fields)
    };
    let ann = r#""per-user";q=1;w=2;pk=:YW5u:;tollgate-burst=4"#;
    let bob = r#""per-user";q=6;w=60;pk=:Ym9i:"#;
    let expect = |status, wait: &str, policy: &str, limit: &str| (status, [wait, policy, limit].map(str::to_owned));
    assert_eq!(observed("ann", 3), expect(200, "", ann, r#""per-user";r=1;t=2;pk=:YW5u:"#));
    assert_eq!(observed("bob", 1), expect(200, "", bob, r#""per-user";r=3;t=10;pk=:Ym9i:"#));
    assert_eq!(observed("ann", 3), expect(429, "4", ann, r#""per-user";r=1;t=2;pk=:YW5u:"#));
    clock.advance(1_500 * MILLI);
    assert_eq!(observed("ann", 1), expect(200, "", ann, r#""per-user";r=0;t=1;pk=:YW5u:"#));
    assert_eq!(observed("ann", 1), expect(429, "1", ann, r#""per-user";r=0;t=1;pk=:YW5u:"#));
    assert_eq!(observed("ann", 5), expect(413, "", ann, r#""per-user";r=0;t=1;pk=:YW5u:"#));
    // Two keys are in debt already.
    assert_eq!(observed("eve", 1).0, 503);
}

#[test]
fn each_key_waits_in_its_own_queue_and_holds_its_tokens_to_the_end_of_the_body() {
    let clock = ManualClock::new();
    let builder = KeyedLimiter::builder().quota(Quota::per_second(1).burst(2)).max_in_flight(1);
    let users: KeyedLimiter<String> = builder.clock(clock.clone()).build().unwrap();
    let service = LimitLayer::keyed(&users, user).layer(service_fn(hello));
    let asked = |name| spawn(service.clone().oneshot(ask(name, 1)));
    let held = assert_ready!(asked("ann").poll()).unwrap();
    let mut second = asked("ann");
    assert_pending!(second.poll());
    let _bob = assert_ready!(asked("bob").poll()).unwrap();
    assert_eq!(users.snapshot().in_flight, Some(2));
    drop(held);
    assert!(second.is_woken());
    assert_eq!(assert_ready!(second.poll()).unwrap().status(), StatusCode::OK);
    // The response was dropped there.
    let mut third = asked("ann");
    assert_pending!(third.poll());
    drop(third);
    assert_eq!((users.snapshot().waiting_tasks, users.snapshot().in_flight), (0, Some(1)));

    let within = LimitLayer::keyed(&users, user).within(500 * MILLI).respond().layer(service_fn(hello));
    let late = call(&within, ask("ann", 1));
    assert_eq!((late.status().as_u16(), field(late.headers(), "retry-after").as_str()), (429, "1"));
}

#[test]
fn if_the_parent_refused_the_response_has_its_policy_and_not_that_of_the_key() {
    let clock = ManualClock::new();
    let parent = |builder: tollgate::Builder| builder.clock(clock.clone()).build().unwrap();
    let named =
        Limiter::builder().quota_named("all", Quota::per_second(1).burst(3)).quota_named("day", Quota::per_day(9));
    let cases = [
        (
            parent(named),
            [r#""all";q=1;w=1;tollgate-burst=3, "day";q=9;w=86400"#, r#""all";r=1;t=1, "day";r=7;t=9600"#],
            "all",
        ),
        (
            parent(Limiter::builder().quota(Quota::per_second(1).burst(3))),
            [r#""parent";q=1;w=1;tollgate-burst=3"#, r#""parent";r=1;t=1"#],
            "parent",
        ),
    ];
    for (parent, told_of_parent, violated) in cases {
        let builder = KeyedLimiter::builder().quota(Quota::per_minute(2)).clock(clock.clone());
        let users = builder.parent(&parent).build().unwrap();
        let layer = LimitLayer::keyed(&users, user).refuse().respond().problem_json().on_every_response();
        let service = layer.layer(service_fn(hello));
        let observed = |user, cost| {
            let response = call(&service, ask(user, cost));
            let fields = ["ratelimit-policy", "ratelimit"].map(|name| field(response.headers(), name));
            let body = assert_ready!(spawn(response.into_body().collect()).poll()).unwrap().to_bytes();
            (fields, serde_json::from_slice(&body).unwrap_or(serde_json::Value::Null)["violated-policies"].clone())
        };
        let of_key = |limit: &str| [r#""default";q=2;w=60"#.to_owned(), format!(r#""default";{limit}"#)];
        assert_eq!(observed("ann", 2).0, of_key("r=0;t=30"), "granted: nothing about the parent, which others use too");
        let (fields, refusers) = observed("ann", 1);
        assert_eq!((fields, refusers), (of_key("r=0;t=30"), serde_json::json!(["default"])));
        let (fields, refusers) = observed("bob", 2);
        assert_eq!((fields, refusers), (told_of_parent.map(str::to_owned), serde_json::json!([violated])));
        assert_eq!(observed("bob", 1).0, of_key("r=1;t=30"), "granted: not that the parent has nothing left");
    }
}

#[test]
fn if_the_wait_for_the_parent_would_be_too_long_the_response_has_its_policy() {
    let clock = ManualClock::new();
    let parent = Limiter::builder().quota_named("all", Quota::per_day(3)).clock(clock.clone()).build().unwrap();
    let builder = KeyedLimiter::builder().quota(Quota::per_minute(2)).clock(clock.clone());
    let users = builder.parent(&parent).build().unwrap();
    let service = LimitLayer::keyed(&users, user).within(SECOND).respond().layer(service_fn(hello));
    let policy = |user, cost| {
        let response = call(&service, ask(user, cost));
        (response.status().as_u16(), field(response.headers(), "ratelimit-policy"))
    };
    assert_eq!(policy("ann", 2), (200, String::new()));
    assert_eq!(policy("ann", 1), (429, r#""default";q=2;w=60"#.to_owned()), "the key's own tokens are used up");
    assert_eq!(policy("bob", 2), (429, r#""all";q=3;w=86400"#.to_owned()), "only the parent's");
    assert_eq!(policy("bob", 1), (200, String::new()));
    assert_eq!(policy("bob", 1), (429, r#""all";q=3;w=86400"#.to_owned()));
}

#[cfg(feature = "axum")]
mod addresses {
    use super::*;
    use axum::{Router, routing::get};
    use std::net::SocketAddr;
    use tollgate_tower::key;

    fn app(users: &KeyedLimiter<key::ClientAddress>) -> Router {
        let layer = LimitLayer::keyed(users, key::peer_address()).refuse().respond();
        Router::new().route("/", get(async || "hello")).layer(layer)
    }

    #[tokio::test]
    async fn a_client_is_known_by_the_address_from_which_it_connects() {
        let users = KeyedLimiter::new(Quota::per_day(1)).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let service = app(&users).into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
        for (address, status) in [("127.0.0.1", 200), ("127.0.0.1", 429), ("127.0.0.2", 200), ("127.0.0.2", 429)] {
            let client = reqwest::Client::builder().local_address(address.parse::<std::net::IpAddr>().unwrap());
            let response = client.build().unwrap().get(&url).send().await.unwrap();
            assert_eq!(response.status().as_u16(), status, "from {address}, by a connection of its own");
        }
        assert_eq!(users.snapshot().keys, 2);
    }

    #[tokio::test]
    #[should_panic(expected = "into_make_service_with_connect_info")]
    async fn a_server_that_does_not_tell_the_address_fails_with_the_first_request() {
        let users = KeyedLimiter::new(Quota::per_day(1)).unwrap();
        let request = Request::get("/").body(axum::body::Body::empty()).unwrap();
        let _ = app(&users).oneshot(request).await;
    }
}

/// The client has exceeded no quota of its own, and none of the parent is used up.
#[test]
fn if_the_parent_is_paused_or_at_its_cap_the_server_has_less_capacity_and_no_policy_is_blamed() {
    let clock = ManualClock::new();
    let builder = Limiter::builder().quota(Quota::per_second(10)).max_in_flight(1).clock(clock.clone());
    let parent = builder.build().unwrap();
    let users = KeyedLimiter::builder().quota(Quota::per_minute(9)).clock(clock).parent(&parent).build().unwrap();
    let service = LimitLayer::keyed(&users, user).refuse().respond().problem_json().layer(service_fn(hello));
    let observed = || {
        let response = call(&service, ask("bob", 1));
        let status = response.status().as_u16();
        let body = assert_ready!(spawn(response.into_body().collect()).poll()).unwrap().to_bytes();
        (status, serde_json::from_slice::<serde_json::Value>(&body).unwrap()["violated-policies"].clone())
    };
    let held = parent.try_acquire(1).unwrap();
    assert_eq!(observed(), (503, serde_json::json!([])));
    drop(held);
    parent.pause_for(SECOND);
    assert_eq!(observed().0, 503);
}
