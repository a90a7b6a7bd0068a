//! The limiter of one rule: a bucket for each value, or one that the values share by weight.

use crate::key::Key;
use crate::store::SharedStore;
use crate::terms::Terms;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tollgate::clock::{Clock, TokioClock};
use tollgate::state::{KeyedState, LimiterState, StateError};
use tollgate::{
    AnyLimiter, Bound, Class, ConfigError, ConsumeError, DistributedKeyedLimiter, JoinError, KeyedLimiter, Limiter,
    QuotaSnapshot, Quotas, Refused, Share, TryAcquireError, join,
};

/// How many values a limiter keeps if no setting says otherwise, which is the limiter's own default.
pub const DEFAULT_VALUES: u64 = 1_000_000;
/// The most descriptors of one request that wait together.
pub const MOST_JOINED: usize = 8;

/// The limiter of one rule.
#[derive(Debug)]
pub enum Bucket {
    /// A bucket for each value.
    Keys(KeyedLimiter<Key>),
    /// A bucket for each value, in a store.
    Shared(DistributedKeyedLimiter<Key>),
    /// One bucket, whose classes are values.
    Classes {
        /// The limiter of the bucket.
        limiter: Limiter,
        /// The class of each value that has a weight of its own.
        classes: HashMap<Key, Class>,
        /// The class of all other values.
        others: Class,
    },
}

/// What limiters are made with.
#[derive(Clone, Debug)]
pub struct Maker {
    /// How many values a limiter keeps.
    pub most_values: u64,
    /// The time of the system when the process starts, and tokio's clock from then on: if the system's clock is set, no
    /// window moves.
    pub clock: TokioClock,
    /// Where the tokens are; `None` for the memory of this process.
    pub store: Option<SharedStore>,
}

impl Default for Maker {
    fn default() -> Self {
        Self { most_values: DEFAULT_VALUES, clock: TokioClock::at(SystemTime::now()), store: None }
    }
}

impl Maker {
    /// Returns the time since 1970.
    pub fn now(&self) -> Duration {
        self.clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// The levels of a limiter.
#[derive(Debug, Serialize, Deserialize)]
pub enum Saved {
    /// Of [`Bucket::Keys`].
    Keys(KeyedState<Key>),
    /// Of [`Bucket::Classes`].
    Classes(LimiterState),
}

/// Why a rule let no request pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The limit is used up.
    OverLimit,
    /// The request would have to wait longer than the rule allows.
    TooLate,
    /// As many requests wait as the rule allows.
    QueueFull,
    /// The request costs more than the limit ever has.
    TooLarge,
    /// As many values have used up tokens as the service keeps.
    TooManyValues,
    /// The store is away, or answers with errors.
    StoreAway,
    /// Anything else, such as a rule that a reload removed.
    Gone,
}

impl Reason {
    /// All reasons, in the order of their numbers.
    #[rustfmt::skip]
    pub const ALL: [Self; 7] = [
        Self::OverLimit, Self::TooLate, Self::QueueFull, Self::TooLarge, Self::TooManyValues, Self::StoreAway, Self::Gone,
    ];

    /// Returns the reason as metrics and logs name it.
    pub const fn name(self) -> &'static str {
        ["over_limit", "too_late", "queue_full", "too_large", "too_many_values", "store_away", "gone"][self as usize]
    }
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// How many tokens a smaller request could have had.
    pub left: u64,
    /// When the request would pass, if that is known.
    pub retry_after: Option<Duration>,
    /// The number of the limit that refused, among those of the rule.
    pub limit: usize,
}

impl Refusal {
    /// Returns a refusal of which no more is known.
    pub(crate) const fn because(reason: Reason) -> Self {
        Self { reason, left: 0, retry_after: None, limit: 0 }
    }

    /// Returns the refusal of a claim that could wait for so long. Without a wait, one that is too late is over the limit.
    fn of(refused: impl Into<Refused>, wait: Duration) -> Self {
        let refused = refused.into();
        let late = if wait.is_zero() { Reason::OverLimit } else { Reason::TooLate };
        use {ConsumeError as InLine, TryAcquireError as AtOnce};
        let (reason, left) = match refused {
            Refused::AtOnce(AtOnce::Denied(denied)) => (Reason::OverLimit, denied.remaining),
            Refused::InLine(InLine::TooLate { .. } | InLine::TimedOut { .. }) => (late, 0),
            Refused::InLine(InLine::QueueFull { .. }) => (Reason::QueueFull, 0),
            Refused::AtOnce(AtOnce::TooLarge { .. }) | Refused::InLine(InLine::TooLarge { .. }) => {
                (Reason::TooLarge, 0)
            }
            Refused::AtOnce(AtOnce::TooManyKeys { .. }) | Refused::InLine(InLine::TooManyKeys { .. }) => {
                (Reason::TooManyValues, 0)
            }
            Refused::AtOnce(AtOnce::Unreachable) | Refused::InLine(InLine::Unreachable) => (Reason::StoreAway, 0),
            _ => (Reason::Gone, 0),
        };
        let limit = match refused.by() {
            Some(Bound::Quota(index)) => index,
            _ => 0,
        };
        Self { reason, left, retry_after: refused.retry_after(), limit }
    }
}

impl Bucket {
    /// Makes the limiter of a rule in the memory of this process, with the levels that were saved, if there are any.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the numbers do not go together, or the levels are those of other limits.
    pub fn new(terms: &Terms, maker: &Maker, saved: Option<Saved>) -> Result<Self, ConfigError> {
        let (keys, limiter_state) = match saved {
            Some(Saved::Keys(state)) => (Some(state), None),
            Some(Saved::Classes(state)) => (None, Some(state)),
            None => (None, None),
        };
        let quotas = terms.limits.iter().map(|limit| limit.quota());
        Ok(match &terms.classes {
            None => {
                let builder = KeyedLimiter::builder().max_waiting(terms.most_waiting());
                let mut builder = quotas.fold(builder, |builder, quota| builder.quota(quota));
                if let Some(state) = keys {
                    builder = builder.restore(state, SystemTime::now());
                }
                // A limiter without a bound of ours has a tenth of the tables, which is enough for most rules.
                if maker.most_values != DEFAULT_VALUES {
                    builder = builder.max_keys(maker.most_values);
                }
                Self::Keys(builder.clock(maker.clock.clone()).build()?)
            }
            Some(shares) => {
                let builder = Limiter::builder().classes().max_waiting(terms.most_waiting());
                let mut builder = quotas.fold(builder, |builder, quota| builder.quota(quota));
                if let Some(state) = limiter_state {
                    builder = builder.restore(state, SystemTime::now());
                }
                let limiter = builder.clock(maker.clock.clone()).build()?;
                let class = |name: &str, weight: u32| limiter.class(name, Share::weight(weight.into()));
                let classes =
                    shares.weights.iter().map(|(value, weight)| Ok((value.as_bytes().into(), class(value, *weight)?)));
                let classes = classes.collect::<Result<_, ConfigError>>()?;
                // No value is empty, so this name is free.
                let others = class("", shares.others)?;
                Self::Classes { limiter, classes, others }
            }
        })
    }

    /// Checks that a limiter of these terms can be made.
    ///
    /// # Errors
    ///
    /// Returns the [`ConfigError`] of [`new`](Self::new).
    pub fn check(terms: &Terms) -> Result<(), ConfigError> {
        if terms.refuses_all() || terms.is_unlimited() {
            return Ok(());
        }
        if terms.classes.is_some() {
            return Self::new(terms, &Maker::default(), None).map(drop);
        }
        terms.limits.iter().fold(Quotas::default(), |quotas, limit| quotas.quota(limit.quota())).check()
    }

    /// Returns the levels, for [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// Returns a [`StateError`] if another store keeps the tokens.
    pub fn save(&self) -> Result<Saved, StateError> {
        Ok(match self {
            Self::Keys(limiter) => Saved::Keys(limiter.state()),
            Self::Classes { limiter, .. } => Saved::Classes(limiter.state()?),
            Self::Shared(_) => return Err(StateError::Distributed),
        })
    }

    /// Takes tokens if they are there, and returns how many are left.
    pub fn try_charge(&self, key: &[u8], cost: u64) -> Result<u64, Refusal> {
        let charged = match self {
            Self::Keys(limiter) => limiter.try_acquire(key, cost).map(|grant| grant.remaining()),
            Self::Shared(limiter) => limiter.try_acquire(key, cost).map(|grant| grant.remaining()),
            Self::Classes { .. } => self.class(key).try_acquire(cost).map(|grant| grant.remaining()),
        };
        charged.map_err(|refused| {
            let refusal = Refusal::of(refused, Duration::ZERO);
            if refusal.reason == Reason::TooLarge { Refusal { left: self.left(key), ..refusal } } else { refusal }
        })
    }

    /// Waits for tokens, at most for `wait`, and returns how many are left.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time: it leaves the queue and takes no token.
    pub async fn charge(&self, key: &[u8], cost: u64, wait: Duration) -> Result<u64, Refusal> {
        let charged = match self {
            Self::Keys(limiter) => limiter.consume(key, cost).within(wait).await.map(|grant| grant.remaining()),
            Self::Shared(limiter) => limiter.consume(key, cost).within(wait).await.map(|grant| grant.remaining()),
            Self::Classes { .. } => self.class(key).consume(cost).within(wait).await.map(|grant| grant.remaining()),
        };
        charged.map_err(|refused| Refusal::of(refused, wait))
    }

    /// Returns the limiter of one value, for [`charge_all`].
    pub fn limiter(&self, key: &[u8]) -> Result<AnyLimiter, Refusal> {
        let too_many = Refusal::because(Reason::TooManyValues);
        match self {
            Self::Keys(limiter) => limiter.limiter(key).map(AnyLimiter::from).map_err(|_| too_many),
            Self::Shared(limiter) => limiter.limiter(key).map(AnyLimiter::from).map_err(|_| too_many),
            Self::Classes { .. } => Ok(self.class(key).clone().into()),
        }
    }

    /// Returns how many tokens a value has.
    pub fn left(&self, key: &[u8]) -> u64 {
        match self {
            Self::Keys(limiter) => limiter.available(key),
            Self::Shared(limiter) => limiter.available(key),
            Self::Classes { .. } => self.class(key).available(),
        }
    }

    /// Returns the number of the limit that has the least left for a value.
    pub fn tightest(&self, key: &[u8]) -> usize {
        let quotas = self.quotas(key);
        (0..quotas.len()).min_by_key(|&index| quotas[index].available).unwrap_or(0)
    }

    /// Returns the state of each limit for a value.
    pub fn quotas(&self, key: &[u8]) -> Vec<QuotaSnapshot> {
        match self {
            Self::Keys(limiter) => limiter.reported_quotas(key),
            Self::Shared(limiter) => limiter.reported_quotas(key),
            Self::Classes { limiter, .. } => limiter.snapshot().quotas,
        }
    }

    /// Returns how many values are kept, and how many requests wait.
    pub fn counts(&self) -> (u64, u64) {
        match self {
            Self::Keys(limiter) => {
                let snapshot = limiter.snapshot();
                (snapshot.keys, snapshot.waiting_tasks)
            }
            Self::Shared(limiter) => {
                let snapshot = limiter.snapshot();
                (snapshot.keys, snapshot.waiting_tasks)
            }
            Self::Classes { limiter, classes, .. } => (classes.len() as u64 + 1, limiter.snapshot().waiting_tasks),
        }
    }

    fn class(&self, key: &[u8]) -> &Class {
        match self {
            Self::Classes { classes, others, .. } => classes.get(key).unwrap_or(others),
            Self::Keys(_) | Self::Shared(_) => unreachable!("only the buckets of classes have classes"),
        }
    }
}

/// Waits until all limiters have their tokens, at most for `wait`, and takes them; or takes none, and returns the index
/// of the one that refused. At most [`MOST_JOINED`] limiters; more are refused.
///
/// # Cancel safety
///
/// The future can be dropped at any time: it leaves all queues and takes no token.
pub async fn charge_all(claims: &[(AnyLimiter, u64)], wait: Duration) -> Result<(), (usize, Refusal)> {
    macro_rules! by_count {
        ($($count:literal)+) => {
            match claims.len() {
                0 => Ok(()),
                $($count => join::<_, $count>(std::array::from_fn(|i| (&claims[i].0, claims[i].1))).within(wait).await.map(drop),)+
                _ => Err(JoinError::Repeated { limiter: MOST_JOINED }),
            }
        };
    }
    by_count!(1 2 3 4 5 6 7 8).map_err(|error| match error {
        JoinError::Refused { limiter, error } => (limiter, Refusal::of(error, wait)),
        _ => (0, Refusal::because(Reason::Gone)),
    })
}
