//! No subscriber is called: without the feature `tracing`.

use super::super::QueueInfo;
use super::Ending;
use crate::error::Refused;

pub(super) fn records_waits() -> bool {
    false
}

pub(super) fn records_refusals() -> bool {
    false
}

pub(super) fn refused(_cost: u64, _refusal: Refused) {}

#[derive(Debug)]
pub(super) enum Wait {}

impl Wait {
    pub(super) fn begin(_cost: u64, _queue_info: QueueInfo) -> Option<Self> {
        None
    }

    pub(super) fn end(self, _ending: Ending) {
        match self {}
    }
}
