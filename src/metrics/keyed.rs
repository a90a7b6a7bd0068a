//! A keyed limiter's meter.

use super::meter::{AlreadyMetered, attach, publish_grants, publish_refusals};
use super::names;
use super::series::Series;
use super::tally::Tally;
use crate::keyed::KeyedLimiter;
use metrics::SharedString;
use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

/// What the keys share whose names came too late.
const OTHERS: &str = "(others)";

/// Counts what a [`KeyedLimiter`] does, of all its keys together, and hands it to the recorder when asked. See the
/// [module](super).
///
/// No key is named, unless you say how ([`naming`](Self::naming)): they are your users, and there may be millions of them.
pub struct KeyedMeter<K, S = RandomState> {
    limiter: KeyedLimiter<K, S>,
    tally: Arc<Tally>,
    named: Option<Arc<Named<K>>>,
}

/// How keys are named, and which were.
struct Named<K> {
    name: Box<dyn Fn(&K) -> String + Send + Sync>,
    most: usize,
    /// All names that were ever handed to a recorder, which may keep each of them for ever.
    given: Mutex<HashSet<String>>,
}

impl<K, S> KeyedMeter<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// A meter of `limiter`, whose series have `key` as the label of this name. Each meter needs a key of its own.
    ///
    /// # Errors
    ///
    /// [`AlreadyMetered`] if the limiter has a meter: use a clone of that.
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

    /// Also publishes the keys [refused most](crate::KeyedSnapshot::most_refused), up to 16 at a time, under what `name` calls
    /// them.
    ///
    /// A recorder keeps a series for each name it ever saw, and whoever churns through keys makes new ones. So at most `most`
    /// names are given out in the life of the meter, to those who come first; who comes later is in the sum of `(others)`. A
    /// key that is not among the 16 any more is shown as 0 refusals.
    pub fn naming(self, most: usize, name: impl Fn(&K) -> String + Send + Sync + 'static) -> Self {
        let named = Named { name: Box::new(name), most, given: Mutex::new(HashSet::new()) };
        Self { named: Some(Arc::new(named)), ..self }
    }

    /// Sets all series to what they are now. To be called before each scrape: it takes a
    /// [snapshot](KeyedLimiter::snapshot), and holds no lock of the limiter while the recorder is at work.
    ///
    /// # Panics
    ///
    /// Where the recorder or the function given to [`naming`](Self::naming) does.
    pub fn publish(&self) {
        let seen = self.limiter.snapshot();
        let series = Series::of(&self.tally);
        publish_refusals(&series, &self.tally);
        publish_grants(&series, seen.granted, seen.refunded);
        series.gauge(names::KEYS, seen.keys as f64);
        series.gauge(names::KEYS_WAITING, seen.keys_waiting as f64);
        series.gauge(names::WAITING, seen.waiting_tasks as f64);
        series.gauge(names::WAITING_TOKENS, seen.waiting_tokens as f64);
        if let Some(flying) = seen.in_flight {
            series.gauge(names::IN_FLIGHT, flying as f64);
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

    /// The limiter.
    pub fn limiter(&self) -> &KeyedLimiter<K, S> {
        &self.limiter
    }

    /// The label of all its series.
    pub fn key(&self) -> &str {
        &self.tally.name
    }
}

impl<K> Named<K> {
    fn given(&self) -> HashSet<String> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `None` if there are as many as may be.
    fn name_of(&self, key: &K) -> Option<String> {
        // The user's code, before the lock.
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
    /// Without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedMeter").field("key", &self.tally.name).finish_non_exhaustive()
    }
}
