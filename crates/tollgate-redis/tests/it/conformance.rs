//! The conformance kit of tollgate, with a real server.

use super::script::{eval, expire, timed};
use super::server::{Server, line};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tollgate::distributed::conformance::{Case, Subject, run};
use tollgate::distributed::{LeaseGrant, LeaseRequest, QuotaTerms, Store, StoreError};

struct Redis {
    server: Server,
    script: String,
    /// For the script with a clock of its own: when each key was last written.
    written: Mutex<HashMap<String, u64>>,
}

impl Subject for Redis {
    async fn client(&self, name: &str, _skew: i64) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(line(&self.server.url(), name).await))
    }

    async fn flush(&self, name: &str) -> bool {
        let key = line(&self.server.url(), name).await.key().to_owned();
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
