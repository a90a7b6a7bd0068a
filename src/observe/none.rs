//! No observers: with neither feature enabled, all of this compiles to nothing.

use super::QueueInfo;
use crate::core::Core;
use crate::error::ConsumeError;

#[derive(Clone, Debug, Default)]
pub(crate) struct Observers(());

impl Observers {
    pub(crate) fn refused<R>(&self, _cost: u64, _refusal: R) {}
}

#[derive(Debug, Default)]
pub(crate) struct WaitRecord(());

impl WaitRecord {
    pub(crate) fn is_curious() -> bool {
        false
    }

    pub(crate) fn begin(&mut self, _core: &Core, _cost: u64, _queue_info: QueueInfo) {}

    pub(crate) fn is_some(&self) -> bool {
        false
    }

    pub(crate) fn end(&mut self, _core: &Core, _cost: u64, _answer: Result<(), ConsumeError>) {}

    pub(crate) fn cancel(&mut self, _core: &Core) {}
}
