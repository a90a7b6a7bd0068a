//! A quota that changes while nodes run, over a real Redis. The instants are tested in paused time, and the script is
//! compared with the store in memory.

use super::nodes::limiter;
use super::saturate::saturate;
use super::server::{FOR_EVER, Server, open_store};
use std::time::Instant;
use tokio::time::timeout;
use tollgate::distributed::{LeaseRequest, Outage, QuotaTerms, Store, StoreError};
use tollgate::{ConsumeError, Limiter, Quota};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_deploy_of_a_larger_quota_keeps_all_nodes_running_and_grants_no_burst_anew() {
    let Some(server) = Server::start() else { return };
    let (old, new) = (Quota::per_second(500).burst(100), Quota::per_second(2_000).burst(400));
    let store = open_store(&server.url(), "deployed").await;
    let old: Vec<Limiter> = (0..2).map(|_| limiter(&store.clone().quota_version(1), old)).collect();
    let new: Vec<Limiter> = (0..2).map(|_| limiter(&store.clone().quota_version(2), new)).collect();
    let began = Instant::now();
    drop(timeout(FOR_EVER, old[0].consume(100)).await.expect("the claim hangs").unwrap());
    drop(timeout(FOR_EVER, old[1].consume(10)).await.expect("the claim hangs").unwrap());
    drop(timeout(FOR_EVER, new[0].consume(10)).await.expect("the claim hangs").unwrap());
    let granted = saturate(&[old, new].concat(), 20, 3_000).await;
    // The burst of the old quota, and the rate of the new one.
    let most = 100 + (began.elapsed().as_nanos() * 2_000 / 1_000_000_000) as u64;
    let total: u64 = granted.iter().sum();
    assert!(total <= most, "{granted:?}: {total} of {most}");
    assert!(granted.iter().all(|tokens| *tokens > 150), "{granted:?}");
    assert_eq!(store.snapshot().error, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_quotas_with_one_version_are_a_typed_error_that_names_both() {
    let Some(server) = Server::start() else { return };
    for outage in [Outage::Wait, Outage::Fail] {
        let store = open_store(&server.url(), &format!("conflict {outage:?}")).await.outage(outage).quota_version(5);
        let (one, two) = (limiter(&store, Quota::per_hour(7)), limiter(&store, Quota::per_hour(8)));
        drop(timeout(FOR_EVER, one.consume(1)).await.expect("the claim hangs").unwrap());
        let error = timeout(FOR_EVER, two.consume(1)).await.expect("the claim hangs").map(drop).unwrap_err();
        assert!(matches!(error, ConsumeError::QuotaConflict(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("`7/h, burst 7`") && text.contains("`8/h, burst 8`"), "{text}");
        let terms = QuotaTerms::of(&Quota::per_hour(9), 0).unwrap().with_version(5);
        let Err(StoreError::QuotaConflict { stored, asked }) = store.ask(LeaseRequest::new(9, 1, terms)).await else {
            panic!("no conflict")
        };
        assert_eq!((stored.burst(), asked), (7, terms));
    }
}

/// The text of a quota without a version is that of releases that knew no versions, so both run on one store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_without_a_version_is_stored_as_before_versions() {
    let Some(server) = Server::start() else { return };
    let store = open_store(&server.url(), "unversioned").await;
    let terms = QuotaTerms::of(&Quota::per_hour(7), 0).unwrap();
    store.ask(LeaseRequest::new(1, 1, terms)).await.unwrap();
    assert!(server.knows(store.key()).contains(&"q=7 3600000000 7 7 0".to_owned()), "{:?}", server.knows(store.key()));
    store.ask(LeaseRequest::new(1, 2, terms.with_version(1))).await.unwrap();
    assert!(
        server.knows(store.key()).contains(&"q=7 3600000000 7 7 0 1".to_owned()),
        "{:?}",
        server.knows(store.key())
    );
}

/// A request that says a period in which the server's clock is not is told the clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_another_period_is_told_the_clock() {
    let Some(server) = Server::start() else { return };
    let store = open_store(&server.url(), "period").await;
    let ask = |begins, ends| {
        let terms = QuotaTerms::from_numbers(&[5, 1_000_000, 5, 5, 9, 0, begins, ends]).unwrap();
        let mut ask = LeaseRequest::new(1, 1, terms);
        (ask.want, ask.first) = (3, 3);
        ask
    };
    let Err(StoreError::OtherPeriod { clock }) = store.ask(ask(7, 8)).await else { panic!("it was answered") };
    assert_eq!(store.ask(ask(clock - 1, clock + 3_600_000_000)).await.map(|grant| grant.now), Ok(3));
}
