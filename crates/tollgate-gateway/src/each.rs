//! The limits of the clients, each by itself.

use tollgate::{ConfigError, KeyedBuilder, KeyedLimiter, KeyedSnapshot};

use super::client::Client;
use super::config::Config;

/// The buckets of all clients.
pub(crate) struct Each {
    /// The keys of the file, and the bucket that unlisted keys share when there are too many of them. The file bounds
    /// their number, so each always has a place.
    pub(crate) listed: KeyedLimiter<Client>,
    /// Keys and addresses that clients choose: at most `max_keys`.
    pub(crate) unlisted: KeyedLimiter<Client>,
    /// Whether each client has a cap on its tokens in flight.
    pub(crate) is_capped: bool,
}

impl Each {
    /// Builds the buckets from a function that makes builders, which may have a clock already.
    pub(crate) fn new(config: &Config, builder: impl Fn() -> KeyedBuilder<Client>) -> Result<Self, ConfigError> {
        let build = |bounded: KeyedBuilder<Client>| {
            let each = bounded.quota(config.keys.quota).max_waiting(config.fixed.max_waiting.value);
            // A key with tokens in flight takes a kilobyte. So there is no large cap by default.
            match config.fixed.key_in_flight.value {
                Some(tokens) => each.max_in_flight(tokens).build(),
                None => each.build(),
            }
        };
        let each = Self {
            listed: build(builder().unbounded_keys())?,
            unlisted: build(builder().max_keys(config.fixed.max_keys.value))?,
            is_capped: config.fixed.key_in_flight.value.is_some(),
        };
        for (name, quota) in &config.keys.quotas {
            each.listed.set_quota_for(&Client::Listed(*name), *quota)?;
        }
        each.listed.set_quota_for(&Client::Overflow, config.keys.overflow)?;
        Ok(each)
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
