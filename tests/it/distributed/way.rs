//! The way of one node to a line in memory, which can be cut.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tollgate::distributed::{LeaseGrant, LeaseRequest, MemoryStore, Outage, Store, StoreCounters, StoreError};

/// Clones are the same way.
#[derive(Clone, Debug)]
pub struct Way {
    line: MemoryStore,
    cut: Arc<AtomicU8>,
    outage: Outage,
}

/// Where a way is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cut {
    Nowhere,
    /// Asks do not get there.
    Before,
    /// Asks are carried out, and their answers get lost.
    After,
    /// Asks are carried out, and who asks hears nothing of it, not even that.
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
            let cut = || StoreError::Unreachable("the way is cut".to_owned());
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
