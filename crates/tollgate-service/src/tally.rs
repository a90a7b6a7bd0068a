//! What the descriptors of a request came to, together.

use crate::bucket::{Reason, Refusal};
use crate::meter::Meter;
use crate::rule::Rule;
use std::time::Duration;

/// What the descriptors of a request came to.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Refusals of rules that are not in quota mode.
    pub(crate) refused: usize,
    /// Rules in quota mode, and how many of them refused.
    quotas: usize,
    refused_quotas: usize,
    /// The reason of the first refusal, and the longest wait of all.
    reason: Option<Reason>,
    retry_after: Option<Duration>,
}

impl Tally {
    pub(crate) fn pass(&mut self, rule: &Rule) {
        self.quotas += usize::from(rule.terms.quota);
    }

    pub(crate) fn refuse(&mut self, rule: &Rule, refusal: &Refusal, meter: &Meter) {
        meter.refuse(refusal.reason);
        if rule.terms.quota {
            self.quotas += 1;
            self.refused_quotas += 1;
        } else {
            self.refused += 1;
        }
        self.reason = self.reason.or(Some(refusal.reason));
        self.retry_after = self.retry_after.max(refusal.retry_after);
    }

    /// A request is refused if one rule refuses it, or all rules in quota mode do.
    pub(crate) fn refusal(&self) -> Option<(Reason, Option<Duration>)> {
        let is_refused = self.refused > 0 || (self.quotas > 0 && self.quotas == self.refused_quotas);
        self.reason.filter(|_| is_refused).map(|reason| (reason, self.retry_after))
    }
}
