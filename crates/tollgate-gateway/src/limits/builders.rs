//! Builders of limiters.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use tollgate::{Builder, Clock, Limiter, ManualClock};

use crate::request::client_hash::ClientHash;

/// The keyed limiters of the gateway, whose keys contain clients.
pub(crate) type KeyedLimiter<K> = tollgate::KeyedLimiter<K, ClientHash>;
pub(crate) type KeyedBuilder<K> = tollgate::KeyedBuilder<K, ClientHash>;
pub(crate) type KeyedGrant<'a, K> = tollgate::KeyedGrant<'a, K, ClientHash>;
pub(crate) type OwnedKeyedGrant<K> = tollgate::OwnedKeyedGrant<K, ClientHash>;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Makes builders. Limiters that a change of the file adds have the clock of the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Builders {
    /// A clock moved by hand, for tests; `None` for the time.
    pub(crate) clock: Option<ManualClock>,
}

impl Builders {
    /// The time by the clock of the limiters, since any origin.
    pub(crate) fn now(&self) -> Duration {
        self.clock.as_ref().map_or_else(|| START.elapsed(), Clock::now)
    }

    pub(crate) fn limiter(&self) -> Builder {
        match &self.clock {
            Some(clock) => Limiter::builder().clock(clock.clone()),
            None => Limiter::builder(),
        }
    }

    pub(crate) fn keyed<K>(&self) -> KeyedBuilder<K> {
        let builder = tollgate::KeyedLimiter::builder().hasher(ClientHash::default());
        match &self.clock {
            Some(clock) => builder.clock(clock.clone()),
            None => builder,
        }
    }
}
