//! The lock-free primitive after seastar: a token bucket of rovers (positions), without a queue, a clock or a runtime.
//!
//! The design is that of seastar's shared token bucket (`shared_token_bucket.hh` and its notes): consumers advance the
//! tail, time advances the head, completions advance the ceiling. It is a ticket lock that counts in tokens. Two
//! things differ. First, seastar's ceiling discards the tokens that are minted while it holds the head back, so it
//! settles below the configured rate; this bucket's ceiling delays, and the tokens minted meanwhile are kept up to the
//! burst. Second, seastar's concurrent `replenish` calls can overshoot, because they advance the time stamp and the
//! head in two steps; here the replenishing thread holds a lock that no other thread waits for.
//!
//! **The invariant** is the one of `supply.rs`, with the tail of the last `replenish` as the position up to which
//! tokens are known to be claimed. Where claims extend past the ceiling, the claims behind the ceiling are not granted
//! yet, and neither is a claim that straddles it. The bucket does not know where that claim begins, but it begins no
//! further before the ceiling than the size of the largest claim.

use crate::clock::whole_nanos;
use crate::core::rovers::{Rovers, ahead, earlier, later};
use crate::core::schedule::Schedule;
use crate::error::ConfigError;
use crate::quota::MAX_BURST;
use crate::quota::Quota;
use crate::sync::{AtomicU64, Mutex, Ordering};
use crossbeam_utils::CachePadded;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// The largest cap: no more tokens than this can be granted and not yet released.
const MAX_CAP: u64 = MAX_BURST;

/// A position in the sequence of tokens, returned by [`Bucket::grab`] and passed to [`Bucket::deficiency`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "the ticket is needed to ask `deficiency(ticket)` whether the grabbed tokens are available"]
pub struct Ticket(u64);

/// Marks a [`Bucket`] that is limited by time alone.
#[derive(Debug)]
pub enum Uncapped {}

/// Marks a [`Bucket`] that is also limited by the tokens granted and not yet [released](Bucket::release).
#[derive(Debug)]
pub enum Capped {}

/// A shared token bucket for dispatch loops of your own: no waiting, no runtime, usable from many threads.
///
/// A caller [grabs](Self::grab) tokens, whether they are available or not, and then polls the
/// [deficiency](Self::deficiency) until it is 0. Grants follow the order of the grabs. Some thread must call
/// [`replenish`](Self::replenish) with the current time. No call blocks.
///
/// A grab does not carry a time, so all grabs between two calls of `replenish` count as made at the later call. A
/// bucket that was full at the earlier call therefore stays full until the later one, and the tokens that would have
/// been minted meanwhile are discarded. So call `replenish` often: each call loses no more than the tokens minted
/// since the previous one. The bucket never grants too much.
///
/// A `Bucket<Capped>`, created by [`Bucket::capped`], also has [`release`](Bucket::release). On a bucket without a cap
/// the call does not compile:
///
/// ```compile_fail,E0599
/// use std::time::Duration;
/// use tollgate::{Bucket, Quota};
/// let bucket = Bucket::new(Quota::per_second(100), Duration::ZERO).unwrap();
/// bucket.release(1);
/// ```
///
/// # Memory ordering
///
/// A [`release`](Bucket::release) happens before a deficiency of 0 that it makes possible: the caller that reads that
/// 0 sees all writes made before the release.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Bucket, Quota};
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let bucket = Bucket::new(Quota::per_second(10).burst(5), Duration::ZERO)?;
/// let now = bucket.grab(5);
/// let later = bucket.grab(1);
/// assert_eq!((bucket.deficiency(now), bucket.deficiency(later)), (0, 1));
/// for millis in 0..=100 {
///     bucket.replenish(Duration::from_millis(millis));
/// }
/// assert_eq!(bucket.deficiency(later), 0);
/// # Ok(()) }
/// ```
pub struct Bucket<C = Uncapped> {
    /// On a cache line of its own, because the bucket may lie next to data that other threads write.
    rovers: CachePadded<Rovers>,
    mint: Mutex<Minting>,
    /// The largest grab so far. Up to this much of a claim can lie below the ceiling although the claim is not
    /// granted.
    largest: AtomicU64,
    kind: PhantomData<fn() -> C>,
}

/// The state that only the replenishing thread changes.
#[derive(Debug)]
struct Minting {
    schedule: Schedule,
    /// The tail at the last replenish.
    claimed: u64,
    /// `None` without a cap.
    ceiling: Option<Ceiling>,
}

/// The end of the in-flight cap.
#[derive(Debug)]
struct Ceiling {
    position: u64,
    /// The released total that was read last.
    released: u64,
}

impl Bucket<Uncapped> {
    /// Creates a bucket for `quota`. Its time begins at `now`, counted from any origin.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the quota is invalid.
    pub fn new(quota: Quota, now: Duration) -> Result<Self, ConfigError> {
        Self::build(quota, None, now)
    }
}

impl Bucket<Capped> {
    /// Creates a bucket for `quota` with at most `max_in_flight` tokens granted and not yet released. Its time begins
    /// at `now`, counted from any origin.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the quota or the cap is invalid.
    pub fn capped(quota: Quota, max_in_flight: u64, now: Duration) -> Result<Self, ConfigError> {
        crate::quota::check_cap(max_in_flight)?;
        Self::build(quota, Some(max_in_flight), now)
    }

    /// Returns `n` granted tokens, which a later [`replenish`](Self::replenish) makes available to other callers.
    ///
    /// The caller keeps count: releasing more than was granted raises the cap, to at most 2<sup>62</sup>.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Bucket, Quota};
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let bucket = Bucket::capped(Quota::per_second(100), 1, Duration::ZERO)?;
    /// let (first, second) = (bucket.grab(1), bucket.grab(1));
    /// assert_eq!((bucket.deficiency(first), bucket.deficiency(second)), (0, 1));
    /// bucket.release(1);
    /// bucket.replenish(Duration::ZERO);
    /// assert_eq!(bucket.deficiency(second), 0);
    /// # Ok(()) }
    /// ```
    pub fn release(&self, n: u64) {
        // No more than the largest cap can have been granted.
        self.rovers.count_release(n.min(MAX_CAP));
    }
}

impl<C> Bucket<C> {
    fn build(quota: Quota, cap: Option<u64>, now: Duration) -> Result<Self, ConfigError> {
        quota.check()?;
        quota.check_not_sliding("Bucket")?;
        quota.check_no_calendar("a `Bucket`")?;
        let minting = Minting {
            schedule: Schedule::new(quota, 0, whole_nanos(now)),
            claimed: 0,
            ceiling: cap.map(|cap| Ceiling { position: cap, released: 0 }),
        };
        let bucket = Self {
            rovers: CachePadded::new(Rovers::new(0)),
            mint: Mutex::new(minting),
            largest: AtomicU64::new(1),
            kind: PhantomData,
        };
        bucket.replenish(now);
        Ok(bucket)
    }

    /// Claims `n` tokens, available or not, and returns the ticket for [`deficiency`](Self::deficiency), which shows
    /// when they are available.
    ///
    /// This is a load and an atomic addition, and one more operation if it is the largest claim so far. A claim cannot
    /// be undone. The claims that are not granted yet may add up to 2<sup>62</sup> tokens.
    pub fn grab(&self, n: u64) -> Ticket {
        // Store this before the claim, which releases it: a thread that sees the claim in the tail must also see how
        // large the claim can be.
        if self.largest.load(Ordering::Relaxed) < n {
            self.largest.fetch_max(n, Ordering::Relaxed);
        }
        Ticket(self.rovers.claim(n))
    }

    /// Returns how many of the tokens up to `ticket` are not available yet; 0 means that the claim is granted. One
    /// load.
    pub fn deficiency(&self, ticket: Ticket) -> u64 {
        ahead(ticket.0, self.rovers.published()).max(0) as u64
    }

    /// Mints the tokens that are due by `now`, which is counted from the same origin as in `new`. A `now` before the
    /// latest one counts as the latest one.
    ///
    /// Read the clock right before this call: grabs that other threads make between the reading and the call count as
    /// made by `now`, so they may be refilled too early by that interval. If another thread is replenishing at the
    /// moment, this call does nothing and leaves the work to that thread.
    pub fn replenish(&self, now: Duration) {
        let tail = self.rovers.tail();
        let Some(mut minting) = self.mint.try_lock() else { return };
        let largest = self.largest.load(Ordering::Relaxed);
        let limit = minting.step(&self.rovers, tail, largest, whole_nanos(now));
        self.rovers.publish(limit, limit);
    }
}

impl Minting {
    /// Mints under the previous ceiling, then raises the ceiling: tokens that the ceiling delayed are kept, up to the
    /// burst.
    fn step(&mut self, rovers: &Rovers, tail: u64, largest: u64, now: u64) -> u64 {
        let ceiling = self.ceiling.as_ref().map(|ceiling| ceiling.position);
        let granted = match ceiling {
            // One claim may straddle the ceiling: its part below the ceiling is not granted either.
            Some(ceiling) if ahead(self.claimed, ceiling) > 0 => ceiling.wrapping_sub(largest - 1),
            _ => self.claimed,
        };
        // Claims below the ceiling wait for tokens only, even a claim larger than the burst.
        let wanted = ceiling.map_or(self.claimed, |ceiling| earlier(self.claimed, ceiling));
        self.schedule.mint(now, later(granted.wrapping_add(self.schedule.burst), wanted));
        self.claimed = later(self.claimed, tail);
        match &mut self.ceiling {
            None => self.schedule.head,
            Some(Ceiling { position, released: seen }) => {
                // A caller that releases tokens that were not granted moves the ceiling away from the tail. Limit the
                // distance so that the two positions stay comparable. (Twice the largest cap: claims may have been
                // added since the tail was read.)
                let released = rovers.released_since(seen).min(MAX_CAP);
                *position = earlier(position.wrapping_add(released), self.claimed.wrapping_add(2 * MAX_CAP));
                earlier(*position, self.schedule.head)
            }
        }
    }
}

impl<C> fmt::Debug for Bucket<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket")
            .field("tail", &self.rovers.tail())
            .field("published", &self.rovers.published())
            .finish_non_exhaustive()
    }
}
