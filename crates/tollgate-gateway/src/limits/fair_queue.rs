//! How clients share the limit of all requests.
//!
//! A request that has the tokens of its own client claims the same tokens of the limit of all. While requests wait
//! there, the listed keys together and the unlisted clients together have a class each, and each client is a class in
//! its group: clients are served by weight, whatever the number of their requests, and the requests of one client in
//! order.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::poll;
use tollgate::{Class, ConfigError, ConsumeError, Grant, Limiter, Share};

use super::builders::{KeyedBuilder, KeyedLimiter, OwnedKeyedGrant};
use crate::config::Config;
use crate::request::client::Client;
use crate::request::keys::Keys;

/// The limit of all requests, divided among the clients that wait for it.
pub(crate) struct FairQueue {
    listed: Group,
    unlisted: Group,
    share_of_unlisted: fn(&Keys) -> Share,
    /// How many requests may wait.
    max_waiting: usize,
}

/// The clients of one kind.
struct Group {
    class: Class,
    /// Without quotas of their own: each client has a fair share of the class.
    clients: KeyedLimiter<Client>,
    /// How many requests wait.
    waiting: AtomicUsize,
}

impl FairQueue {
    /// Divides `all`. The builders, of listed keys and of unlisted clients, may have a clock already.
    pub(crate) fn new(
        all: &Limiter,
        config: &Arc<ArcSwap<Config>>,
        builders: [KeyedBuilder<Client>; 2],
    ) -> Result<Self, ConfigError> {
        Self::with(all, config, builders, share_of_unlisted)
    }

    /// Divides the limit of a rule. `unlisted_quota` is about the limit of all requests only.
    pub(crate) fn of_rule(
        rule: &Limiter,
        config: &Arc<ArcSwap<Config>>,
        builders: [KeyedBuilder<Client>; 2],
    ) -> Result<Self, ConfigError> {
        Self::with(rule, config, builders, |_| Share::weight(1))
    }

    fn with(
        all: &Limiter,
        config: &Arc<ArcSwap<Config>>,
        [listed, unlisted]: [KeyedBuilder<Client>; 2],
        share_of_unlisted: fn(&Keys) -> Share,
    ) -> Result<Self, ConfigError> {
        let weights = Arc::clone(config);
        let listed = listed.weight_by(move |client| weights.load().keys.weight_of(client));
        let config = config.load();
        Ok(Self {
            listed: Group::new(all, "listed", share_of_listed(&config.keys), listed)?,
            unlisted: Group::new(all, "unlisted", share_of_unlisted(&config.keys), unlisted)?,
            share_of_unlisted,
            max_waiting: config.fixed.max_waiting.value,
        })
    }

    /// Waits for `cost` tokens of the limit of all, for at most `max_wait`. The grant releases them when it is dropped.
    ///
    /// # Errors
    ///
    /// `QueueFull` if too many requests wait: of listed keys for a listed key, which unlisted clients can therefore not
    /// lock out; of all clients for an unlisted one.
    pub(crate) async fn admit(
        &self,
        client: &Client,
        cost: u64,
        max_wait: Duration,
    ) -> Result<OwnedKeyedGrant<Client>, ConsumeError> {
        self.check_full(client, cost)?;
        let Group { clients, waiting, .. } = self.of(client);
        let mut claim = pin!(clients.clone().consume_owned(*client, cost).within(max_wait));
        if let Poll::Ready(granted) = poll!(claim.as_mut()) {
            return granted;
        }
        if self.max_waiting == 0 {
            return Err(ConsumeError::QueueFull { waiting: 0 });
        }
        let _waits = Waits::of(waiting);
        claim.await
    }

    /// Takes `cost` tokens of the limit of all, if they are there and no request waits. The caller owes their
    /// [release](Limiter::release). A request that need not wait needs no class of its own in its group. Never succeeds for
    /// clients under a ceiling.
    pub(crate) fn take_now(&self, client: &Client, cost: u64) -> bool {
        self.of(client).class.consume(cost).try_now().map(Grant::forget).is_ok()
    }

    /// Refuses a request that finds too many others, which it could not pass. One that costs nothing does not wait.
    pub(crate) fn check_full(&self, client: &Client, cost: u64) -> Result<(), ConsumeError> {
        let waiting = self.waiting_with(client);
        let is_full = cost > 0 && waiting > 0 && waiting >= self.max_waiting;
        if is_full { Err(ConsumeError::QueueFull { waiting }) } else { Ok(()) }
    }

    /// How long a request would wait for the limit of all; `None` while others wait, because they share it.
    pub(crate) fn estimate(&self, client: &Client, cost: u64) -> Option<Duration> {
        if self.waiting() > 0 { None } else { self.of(client).clients.estimate(client, cost) }
    }

    /// The limiters of listed keys and of unlisted clients, for metrics.
    pub(crate) fn clients(&self) -> [&KeyedLimiter<Client>; 2] {
        [&self.listed.clients, &self.unlisted.clients]
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        [&self.listed, &self.unlisted].map(|group| group.waiting.load(Ordering::Relaxed)).iter().sum()
    }

    /// How many requests wait that count against `max_waiting` for a request of `client`.
    fn waiting_with(&self, client: &Client) -> usize {
        match client {
            Client::Listed(_) => self.listed.waiting.load(Ordering::Relaxed),
            Client::Key { .. } | Client::Address(_) | Client::Overflow => self.waiting(),
        }
    }

    /// Changes the shares. The weight of a listed key changes with the configuration, when the key next begins to wait.
    ///
    /// # Panics
    ///
    /// Panics if a weight or a quota of `new` was not checked.
    pub(crate) fn change(&self, old: &Config, new: &Config) {
        let checked = "the share was checked";
        if share_of_listed(&new.keys) != share_of_listed(&old.keys) {
            self.listed.class.set_share(share_of_listed(&new.keys)).expect(checked);
        }
        let share = self.share_of_unlisted;
        if share(&new.keys) != share(&old.keys) {
            self.unlisted.class.set_share(share(&new.keys)).expect(checked);
        }
    }

    fn of(&self, client: &Client) -> &Group {
        match client {
            Client::Listed(_) => &self.listed,
            Client::Key { .. } | Client::Address(_) | Client::Overflow => &self.unlisted,
        }
    }
}

impl Group {
    fn new(
        all: &Limiter,
        name: &'static str,
        share: Share,
        clients: KeyedBuilder<Client>,
    ) -> Result<Self, ConfigError> {
        let class = all.class(name, share)?;
        // Without a quota a client owes nothing: it is forgotten unless it waits.
        let clients = clients.unbounded_keys().parent(&class).build()?;
        Ok(Self { class, clients, waiting: AtomicUsize::new(0) })
    }
}

/// A request that waits, counted until it is dropped.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn of(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn share_of_listed(keys: &Keys) -> Share {
    Share::weight(keys.listed_weight)
}

fn share_of_unlisted(keys: &Keys) -> Share {
    let share = Share::weight(1);
    keys.unlisted_quota.map_or(share, |quota| share.ceiling(quota))
}
