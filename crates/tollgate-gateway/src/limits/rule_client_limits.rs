//! The limits of each client within a rule.

use std::pin::pin;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use tollgate::metrics::{AlreadyMetered, Meter};
use tollgate::state::KeyedState;
use tollgate::{ConfigError, ConsumeError, Quota};

use super::builders::{Builders, KeyedBuilder, KeyedLimiter, OwnedKeyedGrant};
use super::time_left::TimeLeft;
use crate::config::Config;
use crate::request::client::Client;
use crate::request::name::Name;
use crate::request::rule::Charge;
use crate::request::rule::unlimited;

/// One client within one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RuleKey {
    pub(crate) rule: Name,
    pub(crate) client: Client,
}

/// A saved state, when the wall clock shows this time.
pub(crate) type SavedClients = (KeyedState<RuleKey>, SystemTime);

/// The buckets of all parts.
pub(crate) struct RuleClientLimits {
    /// Of listed keys, and of the unlisted clients of a rule that share a bucket because there are too many of them. The
    /// file bounds their number, so each always has a place.
    listed: KeyedLimiter<RuleKey>,
    /// Of keys and addresses that clients choose: at most `max_keys`.
    unlisted: KeyedLimiter<RuleKey>,
}

impl RuleClientLimits {
    /// Builds the limits, which continue from `states`: of listed keys, and of unlisted clients.
    pub(crate) fn new(
        config: &Arc<ArcSwap<Config>>,
        states: Option<[SavedClients; 2]>,
        builders: &Builders,
    ) -> Result<Self, ConfigError> {
        let build = |bounded: KeyedBuilder<RuleKey>| {
            let current = Arc::clone(config);
            let quota_by = move |key: &RuleKey| quota_of(&current.load(), key);
            bounded.quota_by(quota_by).max_waiting(config.load().fixed.max_waiting.value).build()
        };
        let [listed, unlisted] = match states {
            Some(states) => states.map(|(state, now)| builders.keyed().restore(state.convert(), now)),
            None => [(); 2].map(|()| builders.keyed()),
        };
        Ok(Self {
            listed: build(listed.unbounded_keys())?,
            unlisted: build(unlisted.max_keys(config.load().fixed.max_keys.value))?,
        })
    }

    /// The limiters of listed keys and of unlisted clients.
    pub(crate) fn limiters(&self) -> [&KeyedLimiter<RuleKey>; 2] {
        [&self.listed, &self.unlisted]
    }

    /// Waits for the tokens of the client of `charge`. An unlisted client for which there is no place takes them from the
    /// bucket that such clients share.
    pub(crate) async fn admit(
        &self,
        charge: &Charge,
        left: &mut TimeLeft,
    ) -> Result<OwnedKeyedGrant<RuleKey>, (RuleKey, ConsumeError)> {
        let mut key = RuleKey { rule: charge.rule, client: charge.client };
        let mut granted = self.claim(key, charge.cost, left).await;
        if matches!(granted, Err(ConsumeError::TooManyKeys { .. })) {
            key.client = Client::Overflow;
            granted = self.claim(key, charge.cost, left).await;
        }
        granted.map_err(|why| (key, why))
    }

    async fn claim(
        &self,
        key: RuleKey,
        cost: u64,
        left: &mut TimeLeft,
    ) -> Result<OwnedKeyedGrant<RuleKey>, ConsumeError> {
        let claim = self.of(&key).clone().consume_owned(key, cost).within(left.get());
        left.spend(pin!(claim)).await
    }

    /// The limiter with the bucket of `key`.
    pub(crate) fn of(&self, key: &RuleKey) -> &KeyedLimiter<RuleKey> {
        match key.client {
            Client::Listed(_) | Client::Overflow => &self.listed,
            Client::Key { .. } | Client::Address(_) => &self.unlisted,
        }
    }

    /// Takes the quotas of the configuration that is in force now. Levels stay, and waiting requests are re-timed.
    pub(crate) fn renew(&self) {
        self.listed.renew_quotas();
        self.unlisted.renew_quotas();
    }

    pub(crate) fn meters(&self) -> Result<[Meter<KeyedLimiter<RuleKey>>; 2], AlreadyMetered> {
        Ok([Meter::new("rules-listed", &self.listed)?, Meter::new("rules-unlisted", &self.unlisted)?])
    }

    pub(crate) fn close(&self) {
        self.listed.close();
        self.unlisted.close();
    }
}

/// Requests that still wait for a rule that the file does not have any more, or that is in dry run, wait no longer.
fn quota_of(config: &Config, key: &RuleKey) -> Quota {
    config.rules.get(&key.rule).filter(|rule| !rule.dry_run).and_then(|rule| rule.each).unwrap_or_else(unlimited)
}
