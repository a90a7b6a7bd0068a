//! Nobody is told: neither feature is on, and all of this is nothing.

use super::Outlook;
use crate::error::ConsumeError;
use crate::shared::Shared;

#[derive(Clone, Debug, Default)]
pub(crate) struct Audience(());

impl Audience {
    pub(crate) fn refused<R>(&self, _cost: u64, _refusal: R) {}
}

#[derive(Debug, Default)]
pub(crate) struct Vigil(());

impl Vigil {
    pub(crate) fn is_curious() -> bool {
        false
    }

    pub(crate) fn begin(&mut self, _shared: &Shared, _cost: u64, _outlook: Outlook) {}

    pub(crate) fn end(&mut self, _shared: &Shared, _cost: u64, _answer: Result<(), ConsumeError>) {}

    pub(crate) fn leave(&mut self, _shared: &Shared) {}
}
