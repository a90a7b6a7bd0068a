//! Reports about classes that take longer than the requests beside them.

use super::nodes::millis;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::time::sleep;
use tollgate::distributed::{
    ClassReport, LeaseGrant, LeaseRequest, MemoryStore, Reporting, Store, StoreCounters, StoreError,
};
use tollgate::{Limiter, Quota, Share};

/// A store in memory that answers requests at once, and reports after 300 ms.
#[derive(Clone, Debug)]
struct SlowReports(MemoryStore);

impl Store for SlowReports {
    fn ask(&self, ask: LeaseRequest) -> Pin<Box<dyn Future<Output = Result<LeaseGrant, StoreError>> + Send + '_>> {
        self.0.ask(ask)
    }

    fn tally(&self) -> &StoreCounters {
        self.0.tally()
    }

    fn shares_classes(&self) -> bool {
        true
    }

    fn report(&self, report: ClassReport) -> Reporting<'_> {
        Box::pin(async move {
            sleep(millis(150)).await;
            let answer = self.0.report(report).await;
            sleep(millis(150)).await;
            answer
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_report_that_takes_longer_than_its_request_is_not_lost() {
    let store = SlowReports(MemoryStore::new());
    let granted = [("pages", 4), ("backup", 1)].map(|(name, weight)| {
        let quota = Quota::per_second(500).burst(50);
        let node = Limiter::builder().quota(quota).distributed(store.clone()).classes().build().unwrap();
        let class = node.class(name, Share::weight(weight)).unwrap();
        let granted = Arc::new(AtomicU64::new(0));
        for _ in 0..60 {
            let (class, granted) = (class.clone(), Arc::clone(&granted));
            tokio::spawn(async move {
                while class.consume(1).await.is_ok() {
                    granted.fetch_add(1, Relaxed);
                }
            });
        }
        granted
    });
    let read = || granted.each_ref().map(|granted| granted.load(Relaxed));
    sleep(millis(3_000)).await;
    let before = read();
    sleep(millis(6_000)).await;
    let [pages, backup] = std::array::from_fn(|class| read()[class] - before[class]);
    assert!(pages + backup >= 2_970 && (3 * backup..=5 * backup).contains(&pages), "{pages} to {backup}");
}
