//! Pauses after refusals that name no time.

use super::*;

#[cfg(feature = "keyed")]
use tollgate::KeyedLimiter;

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
