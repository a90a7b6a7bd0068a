//! Waiting for tokens of a key on a thread without a runtime.

use super::KeyedLimiter;
use crate::blocking;
use crate::deadline::Allowed;
use crate::error::ConsumeError;
#[cfg(doc)]
use crate::keyed::KeyedConsume;
use crate::keyed::KeyedGrant;
use crate::keyed::ToKey;
use crate::keyed::grant::GrantOfKey;
use crate::keyed::map::Taken;
use crate::keyed::top::Rank;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

impl<K: Hash + Eq + Clone, S: BuildHasher> KeyedLimiter<K, S> {
    /// Like [`consume`](Self::consume), for a thread without a runtime: blocks the thread until the tokens are
    /// available.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`consume`](Self::consume), except [`NoRuntime`](ConsumeError::NoRuntime).
    ///
    /// # Panics
    ///
    /// See [`KeyedConsume`].
    ///
    /// ```
    /// use tollgate::{KeyedLimiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let users = KeyedLimiter::new(Quota::per_second(1_000).burst(1))?;
    /// for _ in 0..3 {
    ///     let _grant = users.blocking_consume(&"ann", 1)?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn blocking_consume(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        cost: u64,
    ) -> Result<KeyedGrant<'_, K, S>, ConsumeError> {
        self.consume_on_thread(key, cost, Allowed::ANY)
    }

    /// Like [`blocking_consume`](Self::blocking_consume), for at most `allowed`; see
    /// [`Consume::within`](crate::Consume::within).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`blocking_consume`](Self::blocking_consume), [`TooLate`](ConsumeError::TooLate) and
    /// [`TimedOut`](ConsumeError::TimedOut).
    ///
    /// # Panics
    ///
    /// See [`KeyedConsume`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{ConsumeError, KeyedLimiter, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let users = KeyedLimiter::new(Quota::per_hour(1))?;
    /// let _grant = users.blocking_consume_within(&"ann", 1, Duration::from_millis(200))?;
    /// let refusal = users.blocking_consume_within(&"ann", 1, Duration::from_millis(200)).unwrap_err();
    /// assert!(matches!(refusal, ConsumeError::TooLate { .. }));
    /// # Ok(()) }
    /// ```
    pub fn blocking_consume_within(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        cost: u64,
        allowed: Duration,
    ) -> Result<KeyedGrant<'_, K, S>, ConsumeError> {
        self.consume_on_thread(key, cost, Allowed::at_most(allowed))
    }

    fn consume_on_thread(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        cost: u64,
        allowed: Allowed,
    ) -> Result<KeyedGrant<'_, K, S>, ConsumeError> {
        let map = &*self.map;
        let key = map.hashed(key);
        let arrival = match map.claim_at_once(key, cost) {
            Ok(left) => Ok(Taken { left, live: None }),
            Err(live) => map.arrive(key, cost, allowed.nanos(), live)?,
        };
        let taken = match arrival {
            Ok(taken) => taken,
            Err(live) => {
                map.rank(Rank::Waited, key, 1);
                let answer = blocking::consume(Arc::clone(&live), cost, allowed);
                let answer = answer.map(|permit| map.taken(key, permit));
                map.let_go(key.hash, live);
                answer.inspect_err(|_| map.count_refusal(key))?
            }
        };
        Ok(GrantOfKey::new(map, (), key.hash, cost, taken))
    }
}
