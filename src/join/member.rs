//! One limiter's part of a joint claim.

use super::locked::Needed;
use crate::core::Core;
use crate::core::claim_scope::ClaimScope;
use crate::core::classes::ClassId;
use crate::error::ConsumeError;
use crate::grant::Grant;
use crate::handle::{Handle, Limiter};
use crate::observe::{GrantWord, Observed, QueueInfo, WaitRecord};
use crate::permit::Permit;
use std::time::Duration;

/// One limiter's part of a joint claim.
#[derive(Debug)]
pub(super) struct Member<'a, L: Handle = Limiter> {
    scope: &'a L::Scope,
    pub(super) cost: u64,
    /// How many tokens remained after the grant, once it has been granted.
    pub(super) granted: Option<GrantWord>,
    pub(super) queue_info: QueueInfo,
    pub(super) wait_record: WaitRecord,
}

impl<'a, L: Handle> Member<'a, L> {
    pub(super) fn new((limiter, cost): (&'a L, u64)) -> Self {
        let (queue_info, wait_record) = (QueueInfo::default(), WaitRecord::default());
        Self { scope: limiter.scope(), cost, granted: None, queue_info, wait_record }
    }

    pub(super) fn core(&self) -> &'a Core {
        self.scope.core()
    }

    pub(super) fn class(&self) -> ClassId {
        self.scope.class()
    }

    /// The observers, the clock and the class for reports about the part.
    pub(super) fn observed(&self) -> Observed<'a> {
        let scope = self.scope;
        Observed { class: scope.label(), ..scope.core().observed() }
    }

    pub(super) fn into_grant(self) -> Grant<'a, L> {
        let word = self.granted.expect("every member was granted");
        Grant::new(Permit::new(self.scope, self.cost, word))
    }

    /// The error of a joint claim that was given up after `waited`, and that this limiter held back longest, or its parent.
    pub(super) fn timed_out(&self, waited: Duration, of: Needed) -> ConsumeError {
        let (core, class, cost) = (self.core(), self.class(), of.cost);
        let (by, name) = match of.is_parent {
            true => core.holder_in_parent(cost),
            false => core.leaving(|state, rovers, _| state.holder_of_new(rovers, class, cost)),
        };
        ConsumeError::TimedOut { waited, by, quota_name: name.text() }
    }

    /// Starts the wait record: the member waits in its queue.
    pub(super) fn begin_wait(&mut self) {
        self.wait_record.begin(self.scope.core().observers(), self.scope.label(), self.cost, self.queue_info);
    }

    /// Gives back a grant that no caller has seen.
    pub(super) fn give_back(&mut self) {
        if let Some(word) = self.granted.take() {
            self.core().give_back(self.scope.class(), self.cost, word);
        }
    }
}
