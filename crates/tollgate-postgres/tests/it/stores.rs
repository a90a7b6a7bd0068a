//! Limiters over a real server, in real time.

use super::nodes::limiter;
use super::server::{FOR_EVER, Server};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use tollgate::distributed::{LeaseRequest, QuotaTerms, Store};
use tollgate::{KeyedLimiter, Limiter, Quota};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_share_one_burst_and_one_rate_to_the_token() {
    let Some(server) = Server::start().await else { return };
    let quota = Quota::per_second(2_000).burst(100);
    let mut limiters: Vec<Limiter> = Vec::new();
    for _ in 0..4 {
        limiters.push(limiter(&server.store("tenant:42").await, quota));
    }
    let began = Instant::now();
    let mut callers = Vec::new();
    for limiter in limiters.iter().cycle().take(40) {
        let limiter = limiter.clone();
        callers.push(tokio::spawn(async move { while limiter.consume(1).await.is_ok() {} }));
    }
    let granted = || limiters.iter().map(|limiter| limiter.snapshot().granted);
    while granted().sum::<u64>() < 3_000 {
        assert!(began.elapsed() < FOR_EVER, "{:?}", granted().collect::<Vec<_>>());
        sleep(Duration::from_millis(1)).await;
    }
    limiters.iter().for_each(Limiter::close);
    for caller in callers {
        caller.await.unwrap();
    }
    let most = 100 + (began.elapsed().as_nanos() * 2_000 / 1_000_000_000) as u64;
    let granted: Vec<u64> = granted().collect();
    assert!(granted.iter().sum::<u64>() <= most, "{granted:?} of {most}");
    assert!(granted.iter().all(|tokens| *tokens > 0), "{granted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_key_has_a_quota_of_its_own() {
    let Some(server) = Server::start().await else { return };
    let store = server.store("users").await;
    let build = || KeyedLimiter::builder().quota(Quota::per_day(10)).distributed(store.clone()).build().unwrap();
    let nodes: [KeyedLimiter<String>; 2] = [build(), build()];
    for user in 0..20 {
        let user = format!("user {user}");
        let mut granted = 0;
        for claim in 0..12 {
            granted += u64::from(
                timeout(FOR_EVER, nodes[claim % 2].consume(&user, 1).within(Duration::ZERO)).await.unwrap().is_ok(),
            );
        }
        assert_eq!(granted, 10, "{user}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sweep_deletes_what_equals_a_new_store_and_nothing_else() {
    let Some(server) = Server::start().await else { return };
    let store = server.store("x").await;
    let fills_soon = QuotaTerms::of(&Quota::per_second(1_000).burst(10), 0).unwrap();
    let fills_late = QuotaTerms::of(&Quota::per_day(10), 0).unwrap();
    for (count, terms) in [(30, fills_soon), (5, fills_late)] {
        for number in 0..count {
            let mut ask = LeaseRequest::new(1, 1, terms);
            (ask.want, ask.ttl) = (1, 100_000);
            store.beside(&format!("{terms} {number}")).unwrap().ask(ask).await.unwrap();
        }
    }
    assert_eq!(server.count("SELECT count(*) FROM tollgate").await, 70);
    sleep(Duration::from_millis(2_200)).await;
    assert_eq!(store.sweep(20).await, Ok(20));
    assert_eq!(store.sweep(20).await, Ok(10));
    assert_eq!(store.sweep(20).await, Ok(0));
    assert_eq!(server.count("SELECT count(*) FROM tollgate").await, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_ended_are_deleted_without_an_operator() {
    let Some(server) = Server::start().await else { return };
    let store = server.store("x").await.sweep_every(Duration::from_millis(100));
    let ask = |number, quota| {
        let mut ask = LeaseRequest::new(1, number, QuotaTerms::of(&quota, 0).unwrap());
        (ask.want, ask.ttl) = (1, 100_000);
        ask
    };
    for number in 0..30 {
        let quota = Quota::per_second(1_000).burst(10);
        store.beside(&number.to_string()).unwrap().ask(ask(1, quota)).await.unwrap();
    }
    let began = Instant::now();
    for number in 1.. {
        store.ask(ask(number, Quota::per_day(10))).await.unwrap();
        // The bucket of this store and its node.
        if server.count("SELECT count(*) FROM tollgate").await == 2 {
            return;
        }
        assert!(began.elapsed() < FOR_EVER, "the rows stay");
        sleep(Duration::from_millis(20)).await;
    }
}
