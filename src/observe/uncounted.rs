//! No meter counts: without the feature `metrics`.

use super::Ending;
use crate::core::Core;
use crate::error::Refused;

#[derive(Clone, Debug, Default)]
pub(crate) struct Observers(());

impl Observers {
    pub(super) fn counts(&self) -> bool {
        false
    }

    pub(super) fn count(&self, _cost: u64, _refusal: Refused) {}
}

#[derive(Debug)]
pub(super) enum Wait {}

impl Wait {
    pub(super) fn begin(_observers: &Observers, _since: u64) -> Option<Self> {
        None
    }

    pub(super) fn end(self, _core: &Core, _ending: Ending) {
        match self {}
    }
}
