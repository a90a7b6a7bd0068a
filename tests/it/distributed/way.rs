//! A node's connection to a store in memory, which can be cut.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tollgate::distributed::{LeaseGrant, LeaseRequest, MemoryStore, Outage, Store, StoreCounters, StoreError};

/// Clones share the connection.
#[derive(Clone, Debug)]
pub struct Way {
    line: MemoryStore,
    cut: Arc<AtomicU8>,
    outage: Outage,
}

/// Where a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cut {
    Nowhere,
    /// Requests do not arrive.
    Before,
    /// Requests are carried out, and their answers are lost.
    After,
    /// Requests are carried out, and the node gets neither an answer nor an error.
    Silent,
}

impl Way {
    pub fn to(line: &MemoryStore, outage: Outage) -> Self {
        Self { line: line.clone(), cut: Arc::default(), outage }
    }

    pub fn cut(&self, cut: Cut) {
        self.cut.store(cut as u8, Ordering::Release);
    }

    fn is_cut(&self, cut: Cut) -> bool {
        self.cut.load(Ordering::Acquire) == cut as u8
    }
}

impl Store for Way {
    fn ask(&self, ask: LeaseRequest) -> Pin<Box<dyn Future<Output = Result<LeaseGrant, StoreError>> + Send + '_>> {
        Box::pin(async move {
            let cut = || StoreError::Unreachable("the connection is cut".to_owned());
            if self.is_cut(Cut::Before) {
                return Err(cut());
            }
            let answer = self.line.ask(ask).await;
            if self.is_cut(Cut::Silent) {
                std::future::pending::<()>().await;
            }
            if self.is_cut(Cut::After) { Err(cut()) } else { answer }
        })
    }

    fn tally(&self) -> &StoreCounters {
        self.line.tally()
    }

    fn outage(&self) -> Outage {
        self.outage
    }
}
