//! The meter of a keyed limiter.

use super::meter::{Meter, Metered, Totals};
use super::names::{self, OTHERS};
use super::series::Series;
use super::tally::Tally;
use crate::keyed::KeyedLimiter;
use crate::observe::Observers;
use metrics::SharedString;
use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, PoisonError};

/// The user's function that names keys, and the names given so far.
struct Named<K> {
    name: Box<dyn Fn(&K) -> String + Send + Sync>,
    most: usize,
    /// All names that were ever passed to a recorder, which may keep each of them for ever.
    given: Mutex<HashSet<String>>,
}

impl<K, S> Meter<KeyedLimiter<K, S>>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// Also publishes the [most refused](crate::KeyedSnapshot::most_refused) keys, up to 16 at a time, under the names
    /// that `name` returns. Without it no key is published by name: keys are your users, and there may be millions.
    ///
    /// A recorder keeps a series for each name it ever saw, and a client that uses random keys makes new names. So the
    /// meter gives out at most `most` names in its lifetime, to the keys that are published first; later keys are
    /// added to the sum `(others)`. A key that is no longer among the 16 is published with 0 refusals. The last call of
    /// `naming` counts.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota, metrics::Meter};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let users: KeyedLimiter<u64> = KeyedLimiter::new(Quota::per_second(10))?;
    /// let meter = Meter::new("users", &users)?.naming(100, |user| format!("user {user}"));
    /// let _grant = users.try_acquire(&17, 1)?;
    /// meter.publish(); // when the metrics are scraped
    /// # Ok(()) }
    /// ```
    pub fn naming(mut self, most: usize, name: impl Fn(&K) -> String + Send + Sync + 'static) -> Self {
        let named = Named { name: Box::new(name), most, given: Mutex::new(HashSet::new()) };
        self.names = Names(Some(Arc::new(named)));
        self
    }
}

/// How the keys of a limiter are named, if they are.
pub struct Names<K>(Option<Arc<Named<K>>>);

impl<K> fmt::Debug for Names<K> {
    /// Omits the names, which stand for users.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

impl<K> Default for Names<K> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K> Clone for Names<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, S> Metered for KeyedLimiter<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    type Names = Names<K>;

    const IS_KEYED: bool = true;

    #[allow(private_interfaces, reason = "no code outside of this crate can call it")]
    fn observers(&self) -> &Observers {
        KeyedLimiter::observers(self)
    }

    #[allow(private_interfaces, reason = "no code outside of this crate can call it")]
    fn publish(&self, series: &Series<'_>, tally: &Tally, names: &Names<K>) -> Totals {
        let seen = self.snapshot();
        publish_keys(series, tally, seen.keys, seen.keys_waiting);
        if let Some(named) = &names.0 {
            publish_top(self, series, named, &seen.most_refused);
        }
        Totals {
            granted: seen.granted,
            refunded: seen.refunded,
            waiting_tasks: seen.waiting_tasks,
            waiting_tokens: seen.waiting_tokens,
            in_flight: seen.in_flight,
            lateness: seen.lateness,
            dry_run: self.is_in_dry_run(),
        }
    }
}

/// No key is published by name: this node does not see all refusals of a key.
#[cfg(feature = "distributed")]
impl<K> Metered for crate::DistributedKeyedLimiter<K>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    type Names = ();

    const IS_KEYED: bool = true;

    #[allow(private_interfaces, reason = "no code outside of this crate can call it")]
    fn observers(&self) -> &Observers {
        Self::observers(self)
    }

    #[allow(private_interfaces, reason = "no code outside of this crate can call it")]
    fn publish(&self, series: &Series<'_>, tally: &Tally, _: &()) -> Totals {
        let seen = self.snapshot();
        publish_keys(series, tally, seen.keys, seen.keys_waiting);
        super::store::publish_store(series, &seen.store, &self.circuits());
        Totals {
            granted: seen.granted,
            refunded: seen.refunded,
            waiting_tasks: seen.waiting_tasks,
            waiting_tokens: seen.waiting_tokens,
            in_flight: None,
            lateness: seen.lateness,
            dry_run: false,
        }
    }
}

fn publish_keys(series: &Series<'_>, tally: &Tally, keys: u64, keys_waiting: u64) {
    series.gauge(names::KEYS, keys as f64);
    series.gauge(names::KEYS_WAITING, keys_waiting as f64);
    for (quota, calls) in tally.refused_by_label() {
        series.counter_of(names::QUOTA_REFUSALS, ("quota", quota), calls);
    }
}

fn publish_top<K, S>(users: &KeyedLimiter<K, S>, series: &Series<'_>, named: &Named<K>, top: &[(K, u64)])
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
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
        let level = users.available(key);
        series.gauge_of(names::KEY_TOKENS, Some(("name", name.clone().into())), level as f64);
        refused(name.into(), *refusals);
    }
    refused(SharedString::const_str(OTHERS), others);
    absent.into_iter().for_each(|name| refused(name.into(), 0));
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
