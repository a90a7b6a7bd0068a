//! The client's limiter follows the server's responses, and does no more than that.

use super::*;

use std::time::SystemTime;
use tollgate::{ConfigError, Share, Which};

const OK: StatusCode = StatusCode::OK;
const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;

/// Reads every supported format.
fn read(status: StatusCode, fields: &[(&str, &str)]) -> Advice {
    Advice::read(status, &headers(fields), &[Format::Draft11, Format::XRateLimit], &Unit::Requests)
}

fn wait(status: StatusCode, fields: &[(&str, &str)]) -> Option<Duration> {
    read(status, fields).wait
}

fn paused(limiter: &Limiter) -> Option<Duration> {
    limiter.snapshot().paused_for
}

fn quota(limiter: &Limiter) -> Quota {
    limiter.snapshot().quotas[0].quota
}

#[test]
fn without_a_date_of_the_server_the_client_s_clock_counts() {
    let after = |value: &str| wait(TOO_MANY, &[("retry-after", value)]);
    assert_eq!(after("Mon, 05 Aug 2019 09:27:05 GMT"), Some(Duration::ZERO));
    let seen = after(&httpdate::fmt_http_date(SystemTime::now() + 1_000 * SECOND)).unwrap();
    assert!(seen > 900 * SECOND && seen <= 1_000 * SECOND, "{seen:?}");
}

#[test]
fn retry_after_is_about_refusals_and_goes_before_windows() {
    let fields = [("retry-after", "3"), ("ratelimit", r#""a";r=0;t=20"#), ("x-ratelimit-remaining", "0")];
    for status in [429, 503, 403, 500] {
        assert_eq!(wait(StatusCode::from_u16(status).unwrap(), &fields), Some(3 * SECOND), "{status}");
    }
    // "Look again in 3 s" after a request that was accepted or redirected is not a limit.
    for status in [200, 202, 301] {
        assert_eq!(wait(StatusCode::from_u16(status).unwrap(), &fields), Some(20 * SECOND), "{status}");
        assert_eq!(wait(StatusCode::from_u16(status).unwrap(), &fields[..1]), None, "{status}");
    }
    let malformed = [("retry-after", "soon"), fields[1]];
    assert_eq!(wait(TOO_MANY, &malformed), Some(20 * SECOND));
}

#[test]
fn an_exhausted_policy_causes_a_wait_and_others_do_not() {
    let lists = [("ratelimit", r#""a";r=0;t=5, "b";r=3;t=60"#), ("ratelimit", r#""c";r=0;t=7, "d";r=0"#)];
    let advice = read(OK, &lists);
    assert_eq!((advice.wait, advice.available), (Some(7 * SECOND), Some(0)));
    let advice = read(OK, &lists[..0]);
    assert_eq!(advice, Advice::default());
    let advice = read(OK, &[("ratelimit", r#""b";r=3;t=60, "d";r=2"#)]);
    assert_eq!((advice.wait, advice.available), (None, Some(2)));
    // A refusal without details says nothing about what is left.
    assert_eq!(read(TOO_MANY, &[]), Advice::default());
}

#[test]
fn policies_in_other_units_are_ignored() {
    let policies = r#""bytes";q=1000;w=1;qu="content-bytes", "calls";q=10;w=1"#;
    let fields = [("ratelimit-policy", policies), ("ratelimit", r#""bytes";r=0;t=9, "calls";r=4;t=1, "other";r=5"#)];
    let advice = read(OK, &fields);
    assert_eq!((advice.wait, advice.available), (None, Some(4)));
    assert_eq!(advice.policy.unwrap().quota, 10);
    let advice = Advice::read(OK, &headers(&fields), &[Format::Draft11], &Unit::ContentBytes);
    assert_eq!((advice.wait, advice.available), (Some(9 * SECOND), Some(0)));
    assert_eq!(advice.policy.unwrap().quota, 1_000);
}

#[test]
fn the_slowest_policy_with_a_window_counts() {
    let policies = r#""s";q=10;w=1, "min";q=300;w=60, "h";q=20000;w=3600, "free";q=1, "none";q=0;w=0"#;
    assert_eq!(&*read(OK, &[("ratelimit-policy", policies)]).policy.unwrap().name, "min");
}

#[test]
fn fields_of_a_cached_response_are_ignored() {
    let field = ("ratelimit", r#""a";r=0;t=5"#);
    assert_eq!(read(OK, &[field, ("age", "0")]).wait, Some(5 * SECOND));
    assert_eq!(read(OK, &[field, ("age", "old")]).wait, Some(5 * SECOND));
    assert_eq!(read(OK, &[field, ("age", "1")]), Advice::default());
    assert_eq!(wait(TOO_MANY, &[field, ("age", "100"), ("retry-after", "3")]), Some(3 * SECOND));
}

#[test]
fn x_fields_tell_what_is_left_and_go_behind_specified_ones() {
    let x = |remaining: &str, reset: &str| {
        let fields = [("x-ratelimit-limit", "60"), ("x-ratelimit-remaining", remaining), ("x-ratelimit-reset", reset)];
        (wait(OK, &fields), read(OK, &fields).available)
    };
    assert_eq!(x("0", "30"), (Some(30 * SECOND), Some(0)));
    assert_eq!(x("7", "30"), (None, Some(7)));
    assert_eq!(x("0", "2030-01-01"), (None, Some(0)));
    assert_eq!(x("none", "30"), (None, None));
    let both = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "30"), ("ratelimit", r#""a";r=5"#)];
    assert_eq!((read(OK, &both).wait, read(OK, &both).available), (None, Some(5)));
}

#[test]
fn a_pause_is_as_long_as_it_says_and_no_longer_than_allowed() {
    let (limiter, clock) = by_hand(Quota::per_second(1_000));
    let after = |seconds: &str, heed: Heed| {
        heed.heed(&limiter, TOO_MANY, &headers(&[("retry-after", seconds)]));
        let seen = paused(&limiter);
        clock.advance(Duration::from_secs(1_000_000));
        seen
    };
    assert_eq!(after("30", Heed::default()), Some(30 * SECOND));
    assert_eq!(after("0", Heed::default()), None);
    assert_eq!(after("31622400", Heed::default()), Some(600 * SECOND));
    assert_eq!(after("31622400", Heed::default().at_most(5 * SECOND)), Some(5 * SECOND));
    let mut all = std::collections::HashSet::new();
    for _ in 0..20 {
        let jittered = after("2", Heed::default().jitter(SECOND)).unwrap();
        assert!(jittered >= 2 * SECOND && jittered <= 3 * SECOND, "{jittered:?}");
        all.insert(jittered);
    }
    assert!(all.len() > 1, "by chance");
    let longest = after("9", Heed::default().at_most(Duration::MAX).jitter(Duration::MAX));
    assert!(longest.unwrap() > 9 * SECOND);
}

#[test]
fn a_limiter_drops_tokens_that_the_server_lacks_and_gains_none() {
    // In several claims, each of at most `max_cost`.
    let builder = Limiter::builder().quota(Quota::per_second(10).burst(100));
    let (limiter, clock) = built(builder.max_in_flight(200).max_cost(25));
    let heed = |fields: &[(&str, &str)]| Heed::default().heed(&limiter, OK, &headers(fields));
    heed(&[("ratelimit", r#""a";r=1000;t=5"#)]);
    assert_eq!(limiter.available(), 100);
    heed(&[("ratelimit", r#""a";r=7;t=5"#)]);
    assert_eq!((limiter.available(), paused(&limiter), limiter.snapshot().in_flight), (7, None, Some(0)));
    heed(&[("ratelimit", r#""a";r=50;t=5"#)]);
    assert_eq!(limiter.available(), 7);
    clock.advance(SECOND);
    assert_eq!(limiter.available(), 17);
    heed(&[("ratelimit", r#""a";r=0;t=2"#)]);
    assert_eq!((limiter.available(), paused(&limiter)), (0, Some(2 * SECOND)));
    clock.advance(2 * SECOND);
    assert_eq!(limiter.available(), 20, "refilled at its own rate meanwhile");
}

#[test]
fn it_drops_them_also_while_it_is_paused_or_as_many_are_in_flight_as_may_be() {
    let lacks = headers(&[("ratelimit", r#""a";r=5;t=9"#)]);
    let (limiter, _) = built(Limiter::builder().quota(Quota::per_day(100)).max_in_flight(1));
    let held = limiter.try_acquire(1).unwrap();
    Heed::default().heed(&limiter, OK, &lacks);
    drop(held);
    assert_eq!(limiter.snapshot().quotas[0].available, 5, "the request to which the server responds is in flight");
    let (limiter, _) = built(Limiter::builder().quota(Quota::per_day(100)));
    limiter.pause_for(SECOND);
    Heed::default().heed(&limiter, OK, &lacks);
    assert_eq!(limiter.snapshot().quotas[0].available, 5);
}

#[cfg(feature = "keyed")]
#[test]
fn so_does_a_key_whose_parent_gets_no_debt() {
    let all = Limiter::builder().quota(Quota::per_day(60)).clock(ManualClock::new()).build().unwrap();
    let builder = tollgate::KeyedLimiter::builder().quota(Quota::per_day(100)).max_in_flight(1).parent(&all);
    let hosts = builder.clock(ManualClock::new()).build().unwrap();
    let held = hosts.try_acquire(&"a", 1).unwrap();
    Heed::default().heed_key(&hosts, &"a", OK, &headers(&[("ratelimit", r#""a";r=50;t=9"#)]));
    drop(held);
    assert_eq!((hosts.quota_snapshots(&"a")[0].available, all.available(), all.deficiency()), (50, 10, 0));
    Heed::default().heed_key(&hosts, &"a", OK, &headers(&[("ratelimit", r#""a";r=5;t=9"#)]));
    assert_eq!((hosts.quota_snapshots(&"a")[0].available, all.available(), all.deficiency()), (40, 0, 0));
}

#[test]
fn a_quota_follows_the_slowest_policy_and_never_gets_faster_than_it_was() {
    let built_as = Quota::per_second(100).burst(20);
    let (limiter, _clock) = built(Limiter::builder().quota(Quota::manual(1_000)).quota_named("api", built_as));
    let heed = Heed::default().follow("api", built_as);
    let follow = |policy: &str| {
        heed.heed(&limiter, OK, &headers(&[("ratelimit-policy", policy)]));
        limiter.snapshot().quotas[1].quota
    };
    assert_eq!(follow(r#""a";q=10;w=1"#), Quota::per_second(10).burst(9));
    assert_eq!(follow(r#""a";q=300;w=60"#), Quota::new(300, 60 * SECOND).burst(20));
    assert_eq!(follow(r#""a";q=300;w=60;tollgate-burst=3"#), Quota::new(300, 60 * SECOND).burst(2));
    assert_eq!(follow(r#""a";q=10;w=1;tollgate-burst=1"#), Quota::new(10, 1_100 * MILLI).burst(1));
    assert_eq!(follow(r#""a";q=100;w=1"#), built_as);
    assert_eq!(follow(r#""a";q=100000;w=1"#), built_as);
    assert_eq!(follow(r#""a";q=1000;w=1;tollgate-burst=5"#), Quota::per_second(100).burst(4));
    assert_eq!(follow(r#""a";q=999999999999999;w=1;tollgate-burst=999999999999999"#), built_as);
    // No slower than one token per longest pause.
    let slowest = Quota::new(1, 600 * SECOND).burst(1);
    assert_eq!(follow(r#""a";q=0;w=1"#), slowest);
    assert_eq!(follow(r#""a";q=1;w=999999999999999"#), slowest);
    assert_eq!(follow(r#""a";q=1;w=546"#), slowest);
    assert_eq!(follow(r#""a";q=1;w=545"#), Quota::new(1, 599_500 * MILLI).burst(1));
    assert_eq!(follow("nonsense"), Quota::new(1, 599_500 * MILLI).burst(1));
    assert_eq!(follow(r#""a";q=100;w=1"#), built_as);
    assert_eq!(limiter.snapshot().quotas[0].quota, Quota::manual(1_000));

    // A limiter that was told a faster policy may run faster.
    Heed::default().follow(1, Quota::per_second(500)).heed(
        &limiter,
        OK,
        &headers(&[("ratelimit-policy", r#""a";q=300;w=1"#)]),
    );
    assert_eq!(limiter.snapshot().quotas[1].quota, Quota::per_second(300).burst(299));
}

#[test]
fn each_quota_that_was_told_to_follow_does() {
    let (fast, slow) = (Quota::per_second(100), Quota::per_minute(3_000));
    let policy = headers(&[("ratelimit-policy", r#""a";q=10;w=1"#)]);
    let quotas = |limiter: &Limiter| limiter.snapshot().quotas.into_iter().map(|quota| quota.quota);
    let expected = Quota::per_second(10).burst(9);
    let two = || built(Limiter::builder().quota(fast).quota_named("minute", slow));

    let (limiter, _clock) = two();
    Heed::default().follow(0, fast).follow("minute", slow).heed(&limiter, OK, &policy);
    assert!(quotas(&limiter).eq([expected; 2]));

    // A second call for the same quota replaces its fastest value.
    let (limiter, _clock) = two();
    Heed::default().follow(0, fast).follow(0, Quota::per_second(5)).heed(&limiter, OK, &policy);
    assert!(quotas(&limiter).eq([Quota::per_second(5), slow]));
}

#[test]
fn settings_of_a_layer_leave_the_quotas_that_follow_already() {
    let (limiter, _clock) = built(Limiter::builder().quota(Quota::per_second(100)));
    let layer = HeedLayer::new(&limiter).follow(0).unwrap().with(Heed::default().at_most(SECOND));
    let server = service_fn(async |_: Request<()>| {
        Response::builder().header("ratelimit-policy", r#""a";q=10;w=1"#).body(()).map_err(|_| ())
    });
    tokio_test::block_on(layer.layer(server).oneshot(Request::new(()))).unwrap();
    assert_eq!(quota(&limiter), Quota::per_second(10).burst(9));
}

#[test]
fn waiters_are_retimed_by_the_policy_of_the_response() {
    let (limiter, clock) = by_hand(Quota::per_second(10).burst(1).initial(0));
    let heed = Heed::default().follow(0, quota(&limiter));
    let mut waiting = tokio_test::task::spawn(limiter.consume(1));
    assert!(waiting.poll().is_pending());
    heed.heed(&limiter, OK, &headers(&[("ratelimit-policy", r#""a";q=2;w=2"#)]));
    clock.advance(SECOND - Duration::from_nanos(1));
    limiter.tick();
    assert!(!waiting.is_woken());
    clock.advance(Duration::from_nanos(1));
    limiter.tick();
    assert!(waiting.is_woken() && waiting.poll().is_ready());
}

#[test]
fn a_limiter_that_cannot_follow_is_unchanged() {
    let policy = headers(&[("ratelimit-policy", r#""a";q=3;w=1"#)]);
    let manual = Quota::manual(5);
    let (limiter, _clock) = by_hand(manual);
    Heed::default().follow(0, manual).heed(&limiter, OK, &policy);
    Heed::default().follow(1, Quota::per_second(9)).heed(&limiter, OK, &policy);
    Heed::default().follow("api", Quota::per_second(9)).heed(&limiter, OK, &policy);
    assert_eq!(quota(&limiter), manual);

    // A stepped quota stays stepped, unless it is slowed down.
    let stepped = Quota::per_second(4).burst(8).stepped();
    let (limiter, _clock) = by_hand(stepped);
    let heed = Heed::default().follow(0, stepped);
    heed.heed(&limiter, OK, &headers(&[("ratelimit-policy", r#""a";q=9;w=1"#)]));
    assert_eq!(quota(&limiter), stepped);
    heed.heed(&limiter, OK, &policy);
    assert_eq!(quota(&limiter), Quota::per_second(3).burst(2));
    heed.heed(&limiter, OK, &headers(&[("ratelimit-policy", r#""a";q=9;w=1"#)]));
    assert_eq!(quota(&limiter), stepped);
}

/// A bucket with the server's rate would let its burst pass in a window beside it.
#[test]
fn a_sliding_quota_stays_sliding_and_never_sends_more_in_its_window() {
    let fastest = Quota::per_minute(100).sliding();
    let (limiter, _clock) = by_hand(fastest);
    let heed = Heed::default().follow(0, fastest);
    let cases = [
        (r#""a";q=100;w=60"#, Quota::per_minute(99)),
        (r#""a";q=600;w=3600"#, Quota::per_minute(10)),
        (r#""a";q=1;w=120"#, Quota::new(1, 132 * SECOND)),
        (r#""a";q=3000;w=60;tollgate-burst=34"#, Quota::new(33, 20 * SECOND)),
        (r#""a";q=60;w=60;tollgate-burst=1"#, Quota::new(1, Duration::from_nanos(1_111_111_112))),
    ];
    for (policy, paced) in cases {
        heed.heed(&limiter, OK, &headers(&[("ratelimit-policy", policy)]));
        assert_eq!(quota(&limiter), paced.sliding(), "{policy}");
    }
    heed.heed(&limiter, OK, &headers(&[("ratelimit-policy", r#""a";q=101;w=60"#)]));
    assert_eq!(quota(&limiter), fastest);
}

#[test]
fn a_layer_follows_only_fields_that_are_present() {
    let (limiter, _clock) = built(Limiter::builder().quota_named("api", Quota::per_second(9)));
    assert!(HeedLayer::new(&limiter).follow(0).is_ok() && HeedLayer::new(&limiter).follow("api").is_ok());
    for which in [Which::Index(1), Which::Name("other")] {
        let error = HeedLayer::new(&limiter).follow(which).unwrap_err();
        assert_eq!(error, ConfigError::UnknownQuota { which: which.to_string(), count: 1 });
    }
}

#[test]
fn what_a_class_heeds_its_limiter_follows() {
    let (limiter, _clock) = built(Limiter::builder().quota(Quota::per_second(10)).classes());
    let class = limiter.class("batch", Share::weight(1)).unwrap();
    Heed::default().heed(&class, TOO_MANY, &headers(&[("retry-after", "3")]));
    assert_eq!(paused(&limiter), Some(3 * SECOND));
    let client = HeedLayer::new(&class).layer(service_fn(async |_: Request<()>| {
        Ok::<_, std::convert::Infallible>(Response::builder().status(429).header("retry-after", "7").body(()).unwrap())
    }));
    tokio_test::block_on(client.oneshot(Request::new(()))).unwrap();
    assert_eq!(paused(&limiter), Some(7 * SECOND));
}

#[cfg(feature = "keyed")]
#[test]
fn a_key_follows_its_server_and_keeps_what_it_said() {
    use tollgate::{KeyedLimiter, ManualClock};
    let (clock, fastest) = (ManualClock::new(), Quota::per_second(10).burst(4));
    let builder = KeyedLimiter::builder().quota(fastest).quota_named("day", Quota::per_day(1_000));
    let hosts = builder.clock(clock.clone()).build().unwrap();
    let host = |request: &Request<()>| request.uri().host().unwrap().to_owned();
    let server = service_fn(async |request: Request<()>| {
        let says = if request.uri().path() == "/slow" { r#""a";q=60;w=60"# } else { "none" };
        Response::builder()
            .header("ratelimit-policy", says)
            .status(request.uri().query().map_or(200, |_| 429))
            .header("retry-after", "30")
            .body(())
    });
    let client = HeedLayer::keyed(&hosts, host).with(Heed::default().follow(0, fastest)).layer(server);
    let ask = |uri: &str| tokio_test::block_on(client.clone().oneshot(Request::get(uri).body(()).unwrap())).unwrap();
    let quotas = |host: &str| hosts.quotas(&host.to_owned()).to_string();
    ask("http://a.example/slow");
    assert_eq!(quotas("a.example"), "60/min, burst 4; day: 1000/d", "the other quota stays");
    assert_eq!(quotas("b.example"), "10/s, burst 4; day: 1000/d");
    clock.advance(86_400 * SECOND);
    hosts.tick();
    assert_eq!(quotas("a.example"), "60/min, burst 4; day: 1000/d", "after a day without a request");
    ask("http://b.example/?refused");
    assert_eq!(hosts.estimate(&"b.example".to_owned(), 1), Some(30 * SECOND));
    assert_eq!(hosts.estimate(&"a.example".to_owned(), 1), Some(Duration::ZERO));
}
