//! The tokens of an admitted request.

use super::builders::OwnedKeyedGrant;
use super::distributed::DistributedGrants;
use super::dry_run_rule::DryRunGrant;
use super::rule_client_limits::RuleKey;
use crate::request::client::Client;

/// The tokens that a request has of its rules. If they are dropped before they are [used](Self::mark_used), they are given
/// back.
#[derive(Default)]
pub(crate) struct RuleGrants {
    pub(super) clients: Vec<OwnedKeyedGrant<RuleKey>>,
    pub(super) shared: Vec<OwnedKeyedGrant<Client>>,
    pub(super) distributed: DistributedGrants,
    pub(super) dry_runs: Vec<DryRunGrant>,
    is_used: bool,
}

impl RuleGrants {
    /// Says that the request is forwarded: its tokens are used. Those of whole rules are in flight until this is
    /// dropped.
    pub(crate) fn mark_used(&mut self) {
        self.is_used = true;
        self.distributed.mark_used();
    }

    /// Sets the real cost in each of the rules.
    pub(crate) fn settle(&mut self, actual: u64) {
        self.clients.iter_mut().for_each(|grant| grant.settle(actual));
        self.shared.iter_mut().for_each(|grant| grant.settle(actual));
        self.distributed.settle(actual);
        self.dry_runs.iter_mut().for_each(|grant| grant.settle(actual));
    }
}

impl Drop for RuleGrants {
    fn drop(&mut self) {
        if !self.is_used {
            self.settle(0);
        }
    }
}
