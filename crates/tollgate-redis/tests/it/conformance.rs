//! The conformance kit of tollgate, with real servers: one Redis, a cluster, and a master behind sentinels.

use super::masters::{masters, open_cluster_store};
use super::proxy::in_the_end;
use super::script::{eval, expire, timed};
use super::server::{FOR_EVER, Server, open_store};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tollgate::distributed::conformance::{Case, Report, Subject, run};
use tollgate::distributed::{LeaseGrant, LeaseRequest, QuotaTerms, Store, StoreError};
use tollgate_redis::RedisStore;

struct Redis {
    server: Server,
    script: String,
    /// For the script with a clock of its own: when each key was last written.
    written: Mutex<HashMap<String, u64>>,
}

impl Subject for Redis {
    async fn client(&self, name: &str, _skew: i64) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(open_store(&self.server.url(), name).await))
    }

    async fn flush(&self, name: &str) -> bool {
        let key = open_store(&self.server.url(), name).await.key().to_owned();
        redis::cmd("DEL").arg(key).query::<u64>(&mut self.server.client()).unwrap() == 1
    }

    async fn ask_at(&self, name: &str, ask: LeaseRequest, micros: u64) -> Option<Result<LeaseGrant, StoreError>> {
        let (mut connection, mut written) = (self.server.client(), self.written.lock().unwrap());
        expire(&mut connection, name, written.get(name).copied().unwrap_or(0), micros);
        let answer = eval(&mut connection, &self.script, name, &ask, micros);
        // These refusals alone leave the key as it was.
        if answer.as_ref().is_ok() || answer.as_ref().is_err_and(|text| text.contains("owes")) {
            written.insert(name.to_owned(), micros);
        }
        Some(answer.map_err(|text| match text.split_once("TOLLGATEQUOTA\": ") {
            Some((_, stored)) => {
                StoreError::QuotaConflict { stored: QuotaTerms::from_text(stored).unwrap(), asked: ask.terms }
            }
            None => StoreError::Refused(text),
        }))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_conforms() {
    let Some(server) = Server::start() else { return };
    let report = run(Case::ALL, &Redis { server, script: timed(), written: Mutex::default() }).await;
    assert_eq!((report.passed.len(), report.skipped.len()), (Case::ALL.len(), 0), "{report}");
}

/// Three masters, over which the stores of the cases are spread.
struct Cluster(Vec<Server>);

impl Subject for Cluster {
    async fn client(&self, name: &str, _skew: i64) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(open_cluster_store(&self.0, name).await))
    }

    async fn flush(&self, name: &str) -> bool {
        let key = open_cluster_store(&self.0, name).await.key().to_owned();
        // The other masters redirect.
        let deleted = |master: &Server| redis::cmd("DEL").arg(&key).query::<u64>(&mut master.client()).unwrap_or(0);
        self.0.iter().map(deleted).sum::<u64>() == 1
    }
}

/// The master that a sentinel reports.
struct Reported {
    master: Server,
    sentinel: Server,
}

impl Subject for Reported {
    async fn client(&self, name: &str, _skew: i64) -> Result<Arc<dyn Store>, StoreError> {
        let connect = || RedisStore::connect_sentinels([self.sentinel.url()], "redis://conformance/", name);
        Ok(Arc::new(in_the_end(connect).await.answer_timeout(FOR_EVER)))
    }

    async fn flush(&self, name: &str) -> bool {
        let key = open_store(&self.master.url(), name).await.key().to_owned();
        redis::cmd("DEL").arg(key).query::<u64>(&mut self.master.client()).unwrap() == 1
    }
}

/// All cases but those with a clock of their own, which run the script without a store.
fn assert_conforms(report: &Report) {
    assert!(report.failures.is_empty(), "{report}");
    assert_eq!(report.passed.len() + report.skipped.len(), Case::ALL.len(), "{report}");
    assert!(report.skipped.len() <= 2, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_three_masters_conforms() {
    let Some(masters) = masters() else { return };
    assert_conforms(&run(Case::ALL, &Cluster(masters)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_of_sentinels_conforms() {
    let Some(master) = Server::start() else { return };
    let Some(sentinel) = Server::start_sentinel("conformance", &master) else { return };
    assert_conforms(&run(Case::ALL, &Reported { master, sentinel }).await);
}
