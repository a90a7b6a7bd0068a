//! Nobody counts: without the feature `metrics`.

use super::{Ending, Refusal};
use crate::shared::Shared;

#[derive(Clone, Debug, Default)]
pub(crate) struct Audience(());

impl Audience {
    pub(super) fn counts(&self) -> bool {
        false
    }

    pub(super) fn count(&self, _cost: u64, _refusal: Refusal) {}
}

#[derive(Debug)]
pub(super) enum Wait {}

impl Wait {
    pub(super) fn begin(_audience: &Audience, _since: u64) -> Option<Self> {
        None
    }

    pub(super) fn end(self, _shared: &Shared, _ending: Ending) {
        match self {}
    }
}
