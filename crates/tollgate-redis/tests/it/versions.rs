//! How a quota and its version are stored, and requests of another period. All else of versions is tested with the store in
//! memory, with which the script is compared.

use super::server::{Server, open_store};
use tollgate::Quota;
use tollgate::distributed::{LeaseRequest, QuotaTerms, Store, StoreError};

/// The text of a quota without a version is that of releases that knew no versions, so both run on one store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_without_a_version_is_stored_as_before_versions() {
    let Some(server) = Server::start() else { return };
    let store = open_store(&server.url(), "unversioned").await;
    let terms = QuotaTerms::of(&Quota::per_hour(7)).unwrap();
    for (number, terms, text) in
        [(1, terms, "q=7 3600000000 7 7 0"), (2, terms.with_version(1), "q=7 3600000000 7 7 0 1")]
    {
        store.ask(LeaseRequest::new(1, number, terms)).await.unwrap();
        let known = server.knows(store.key());
        assert!(known.contains(&text.to_owned()), "{known:?}");
    }
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
