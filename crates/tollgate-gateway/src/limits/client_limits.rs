//! The limits of the clients, each by itself.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use tollgate::{ConfigError, KeyedSnapshot, KeyedTop, TopKey};

use super::builders::{KeyedBuilder, KeyedLimiter};
use crate::config::Config;
use crate::request::client::Client;

/// The time over which the page counts the tokens and the refusals of each client.
pub(crate) const TOP_WINDOW: Duration = Duration::from_secs(4);

/// A client with many requests, and its counts.
#[derive(Debug)]
pub(crate) struct TopClient {
    pub(crate) client: Client,
    /// Tokens.
    pub(crate) granted: u64,
    /// Requests that its own limit refused.
    pub(crate) refused: u64,
}

/// The buckets of all clients.
pub(crate) struct ClientLimits {
    /// The keys of the file, and the bucket that unlisted keys share when there are too many of them. The file bounds
    /// their number, so each always has a place.
    pub(crate) listed: KeyedLimiter<Client>,
    /// Keys and addresses that clients choose: at most `max_keys`.
    pub(crate) unlisted: KeyedLimiter<Client>,
    /// Whether each client has a cap on its tokens in flight.
    pub(crate) is_capped: bool,
}

impl ClientLimits {
    /// Builds the buckets from builders, for listed keys and for unlisted clients, which may have a clock or a state
    /// already.
    pub(crate) fn new(config: &Config, [listed, unlisted]: [KeyedBuilder<Client>; 2]) -> Result<Self, ConfigError> {
        let build = |bounded: KeyedBuilder<Client>| {
            let each = bounded.quota(config.keys.quota).max_waiting(config.fixed.max_waiting.value).top(TOP_WINDOW);
            // A key with tokens in flight takes more memory than one without. So there is no large cap by default.
            let each = if config.keys.dry_run { each.dry_run() } else { each };
            match config.fixed.key_in_flight.value {
                Some(tokens) => each.max_in_flight(tokens).build(),
                None => each.build(),
            }
        };
        let each = Self {
            listed: build(listed.unbounded_keys())?,
            unlisted: build(unlisted.max_keys(config.fixed.max_keys.value))?,
            is_capped: config.fixed.key_in_flight.value.is_some(),
        };
        for (name, quota) in &config.keys.quotas {
            each.listed.set_quota_for(&Client::Listed(*name), *quota)?;
        }
        each.listed.set_quota_for(&Client::Overflow, config.keys.overflow)?;
        Ok(each)
    }

    /// Takes the quotas away that a state gave to keys and that the file does not.
    pub(crate) fn forget_removed_quotas(&self, config: &Config) {
        for client in self.listed.entries().map(|entry| entry.key) {
            if let Client::Listed(name) = client
                && !config.keys.quotas.contains_key(&name)
            {
                self.listed.reset_quota_for(&client);
            }
        }
    }

    /// The `n` clients with the most tokens granted and requests refused, over about the last [`TOP_WINDOW`].
    pub(crate) fn busiest(&self, n: usize) -> Vec<TopClient> {
        let mut all: HashMap<Client, TopClient> = HashMap::new();
        for KeyedTop { granted, refused, .. } in [self.listed.top(n), self.unlisted.top(n)] {
            let mut busy = |top: &TopKey<Client>, count: fn(&mut TopClient) -> &mut u64| {
                let new = TopClient { client: top.key, granted: 0, refused: 0 };
                *count(all.entry(top.key).or_insert(new)) = top.count;
            };
            granted.iter().for_each(|top| busy(top, |busy| &mut busy.granted));
            refused.iter().for_each(|top| busy(top, |busy| &mut busy.refused));
        }
        let mut busiest: Vec<TopClient> = all.into_values().collect();
        busiest.sort_unstable_by_key(|busy| (Reverse(busy.granted + busy.refused), busy.client));
        busiest.truncate(n);
        busiest
    }

    /// The limiter with the bucket of `client`.
    pub(crate) fn of(&self, client: &Client) -> &KeyedLimiter<Client> {
        match client {
            Client::Listed(_) | Client::Overflow => &self.listed,
            Client::Key { .. } | Client::Address(_) => &self.unlisted,
        }
    }

    /// Changes the quotas. Waiting requests are re-timed.
    ///
    /// # Panics
    ///
    /// Panics if a quota of `new` was not checked.
    pub(crate) fn change(&self, old: &Config, new: &Config) {
        let checked = "the quota was checked, and there is space for all listed keys";
        if new.keys.dry_run != old.keys.dry_run {
            let each = [&self.listed, &self.unlisted];
            each.iter().for_each(|each| each.set_dry_run(new.keys.dry_run).expect("no parent, and not distributed"));
        }
        if new.keys.quota != old.keys.quota {
            self.listed.set_quota(new.keys.quota).expect(checked);
            self.unlisted.set_quota(new.keys.quota).expect(checked);
        }
        for name in old.keys.quotas.keys().filter(|name| !new.keys.quotas.contains_key(*name)) {
            self.listed.reset_quota_for(&Client::Listed(*name));
        }
        for (name, quota) in &new.keys.quotas {
            if old.keys.quotas.get(name) != Some(quota) {
                self.listed.set_quota_for(&Client::Listed(*name), *quota).expect(checked);
            }
        }
        if new.keys.overflow != old.keys.overflow {
            self.listed.set_quota_for(&Client::Overflow, new.keys.overflow).expect(checked);
        }
    }

    pub(crate) fn snapshots(&self) -> [KeyedSnapshot<Client>; 2] {
        [self.listed.snapshot(), self.unlisted.snapshot()]
    }

    /// Refuses all requests that wait, and all later ones.
    pub(crate) fn close(&self) {
        self.listed.close();
        self.unlisted.close();
    }
}
