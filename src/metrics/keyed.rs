//! The meter of a keyed limiter.

use super::meter::{AlreadyMetered, OTHERS, attach, publish_grants, publish_refusals};
use super::names;
use super::series::Series;
use super::tally::Tally;
use crate::keyed::KeyedLimiter;
use metrics::SharedString;
use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

/// Counts what a [`KeyedLimiter`] does, summed over all its keys, and publishes it on request. See the
/// [module](super).
///
/// No key is published by name unless [`naming`](Self::naming) says how: keys are your users, and there may be
/// millions.
pub struct KeyedMeter<K, S = RandomState> {
    limiter: KeyedLimiter<K, S>,
    tally: Arc<Tally>,
    named: Option<Arc<Named<K>>>,
}

/// How keys are named, and the names given so far.
struct Named<K> {
    name: Box<dyn Fn(&K) -> String + Send + Sync>,
    most: usize,
    /// All names that were ever passed to a recorder, which may keep each of them for ever.
    given: Mutex<HashSet<String>>,
}

impl<K, S> KeyedMeter<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// Creates a meter of `limiter`. `key` is the value of the label `key` of all its series. Each meter needs its own
    /// key.
    ///
    /// # Errors
    ///
    /// Returns [`AlreadyMetered`] if the limiter has a meter: use a clone of that meter.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota, metrics::KeyedMeter};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let users: KeyedLimiter<u64> = KeyedLimiter::new(Quota::per_second(10))?;
    /// let meter = KeyedMeter::new("users", &users)?.naming(100, |user| format!("user {user}"));
    /// let _grant = users.try_acquire(&17, 1)?;
    /// meter.publish(); // when the metrics are scraped
    /// # Ok(()) }
    /// ```
    pub fn new(key: impl Into<SharedString>, limiter: &KeyedLimiter<K, S>) -> Result<Self, AlreadyMetered> {
        let tally = attach(key.into(), limiter.observers())?;
        Ok(Self { limiter: limiter.clone(), tally, named: None })
    }

    /// Also publishes the [most refused](crate::KeyedSnapshot::most_refused) keys, up to 16 at a time, under the names
    /// that `name` returns.
    ///
    /// A recorder keeps a series for each name it ever saw, and a client that uses random keys makes new names. So the
    /// meter gives out at most `most` names in its lifetime, to the keys that are published first; later keys are
    /// added to the sum `(others)`. A key that is no longer among the 16 is published with 0 refusals.
    pub fn naming(self, most: usize, name: impl Fn(&K) -> String + Send + Sync + 'static) -> Self {
        let named = Named { name: Box::new(name), most, given: Mutex::new(HashSet::new()) };
        Self { named: Some(Arc::new(named)), ..self }
    }

    /// Sets all series to their current values. Call it before each scrape.
    ///
    /// It takes a [snapshot](KeyedLimiter::snapshot), and holds no lock of the limiter while it calls the recorder.
    ///
    /// # Panics
    ///
    /// Panics if the recorder or the function given to [`naming`](Self::naming) panics.
    pub fn publish(&self) {
        let seen = self.limiter.snapshot();
        let series = Series::of(&self.tally);
        publish_refusals(&series, &self.tally);
        publish_grants(&series, seen.granted, seen.refunded);
        series.gauge(names::KEYS, seen.keys as f64);
        series.gauge(names::KEYS_WAITING, seen.keys_waiting as f64);
        series.gauge(names::WAITING, seen.waiting_tasks as f64);
        series.gauge(names::WAITING_TOKENS, seen.waiting_tokens as f64);
        if let Some(in_flight) = seen.in_flight {
            series.gauge(names::IN_FLIGHT, in_flight as f64);
        }
        series.seconds(names::LATENESS, seen.lateness);
        if let Some(named) = &self.named {
            self.publish_top(&series, named, &seen.most_refused);
        }
    }

    fn publish_top(&self, series: &Series<'_>, named: &Named<K>, top: &[(K, u64)]) {
        let refused = |name: SharedString, refusals: u64| {
            series.gauge_of(names::KEY_REFUSALS, Some(("name", name)), refusals as f64);
        };
        let mut others = 0;
        let mut absent = named.given();
        for (key, refusals) in top {
            let Some(name) = named.name_of(key) else {
                others += refusals;
                continue;
            };
            absent.remove(&name);
            let level = self.limiter.available(key);
            series.gauge_of(names::KEY_TOKENS, Some(("name", name.clone().into())), level as f64);
            refused(name.into(), *refusals);
        }
        refused(SharedString::const_str(OTHERS), others);
        absent.into_iter().for_each(|name| refused(name.into(), 0));
    }

    /// Returns the limiter.
    pub fn limiter(&self) -> &KeyedLimiter<K, S> {
        &self.limiter
    }

    /// Returns the value of the label `key` of all its series.
    pub fn key(&self) -> &str {
        &self.tally.name
    }
}

impl<K> Named<K> {
    fn given(&self) -> HashSet<String> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns `None` if the limit on names is reached.
    fn name_of(&self, key: &K) -> Option<String> {
        // User code: call it before taking the lock.
        let name = (self.name)(key);
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if !given.contains(&name) {
            if given.len() >= self.most {
                return None;
            }
            given.insert(name.clone());
        }
        Some(name)
    }
}

impl<K, S> Clone for KeyedMeter<K, S> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), tally: Arc::clone(&self.tally), named: self.named.clone() }
    }
}

impl<K, S> fmt::Debug for KeyedMeter<K, S> {
    /// Omits the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedMeter").field("key", &self.tally.name).finish_non_exhaustive()
    }
}
