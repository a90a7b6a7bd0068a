//! The seastar primitive: a token bucket of rovers, without a line, a clock or a runtime.
//!
//! After seastar's shared token bucket (`shared_token_bucket.hh` and its notes): consumers advance the tail, time
//! advances the head, completions advance the ceiling; a ticket lock in tokens. Two things differ. Seastar's ceiling
//! burns what is minted while it holds the head back, and so settles below the configured rate; ours gates, and what is
//! minted meanwhile is kept up to the burst. And seastar's concurrent `replenish` calls can overshoot, since stamp and
//! head move in two steps; here whoever replenishes holds a lock that others do not wait for.
//!
//! **The invariant** is the one of `supply.rs`, with the tail of the last `replenish` as what is known to be claimed.
//! Where claims have run beyond the ceiling, those behind it are not granted yet, nor is one that lies astride it; where
//! that one begins is not known here, but no further back than the largest claim is long.

use crate::Quota;
use crate::clock::whole_nanos;
use crate::core::rovers::{Rovers, ahead, earlier, later};
use crate::core::schedule::Schedule;
use crate::core::sync::{AtomicU64, Mutex, Ordering};
use crate::error::ConfigError;
use crate::quota::MAX_BURST;
use crossbeam_utils::CachePadded;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// The largest cap. No more tokens than that are ever granted and not yet released.
const MAX_CAP: u64 = MAX_BURST;

/// A position in the line of tokens: what [`Bucket::grab`] returns and [`Bucket::deficiency`] asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a ticket tells when the grabbed tokens are there: ask `deficiency(ticket)`"]
pub struct Ticket(u64);

/// Marks a [`Bucket`] whose tokens come from time alone.
#[derive(Debug)]
pub enum Uncapped {}

/// Marks a [`Bucket`] that is also capped by the tokens in flight.
#[derive(Debug)]
pub enum Capped {}

/// A shared token bucket for dispatch loops of your own: no waiting, no runtime, usable from many threads.
///
/// Whoever wants tokens [grabs](Self::grab) them, whether they are there or not, and then asks for the
/// [deficiency](Self::deficiency) until it is 0: the order of grabs is the order of grants. Somebody calls
/// [`replenish`](Self::replenish) with the time. No call ever blocks.
///
/// A grab brings no time with it, so between two calls of `replenish` all grabs count as made at the later one: a
/// bucket that was full at the earlier stays full until then, and what would have been minted burns. So replenish
/// often: each call loses no more than what is minted in between, and the bucket never grants too much.
///
/// A [`CappedBucket`], made by [`Bucket::capped`], also has [`release`](Bucket::release); here that does not compile:
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
/// What was done before a [`release`](Bucket::release) is visible to whoever finds a deficiency of 0 because of it.
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
    /// Away from what others write: a bucket may lie anywhere.
    rovers: CachePadded<Rovers>,
    mint: Mutex<Minting>,
    /// The largest grab so far: as much of a claim can lie below the ceiling without being granted.
    largest: AtomicU64,
    kind: PhantomData<fn() -> C>,
}

/// A [`Bucket`] of which at most so many tokens may be granted and not yet [released](Bucket::release).
pub type CappedBucket = Bucket<Capped>;

/// What only the one who replenishes moves.
#[derive(Debug)]
struct Minting {
    schedule: Schedule,
    /// The tail at the last replenish.
    claimed: u64,
    /// The end of the cap, and what was read of the releases last.
    ceiling: Option<(u64, u64)>,
}

impl Bucket<Uncapped> {
    /// A bucket for `quota`, whose time begins at `now`, counted from any origin.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] if the quota makes no sense.
    pub fn new(quota: Quota, now: Duration) -> Result<Self, ConfigError> {
        Self::build(quota, None, now)
    }
}

impl Bucket<Capped> {
    /// A bucket for `quota` with at most `max_in_flight` tokens granted and not yet released, whose time begins at
    /// `now`, counted from any origin.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] if the quota or the cap makes no sense.
    pub fn capped(quota: Quota, max_in_flight: u64, now: Duration) -> Result<Self, ConfigError> {
        crate::builder::check_cap(max_in_flight)?;
        Self::build(quota, Some(max_in_flight), now)
    }

    /// Hands `n` granted tokens back, for a later [`replenish`](Self::replenish) to let others have them. Releasing
    /// more than was granted raises the cap, to 2<sup>62</sup> at most: the caller keeps count.
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
        // More than the largest cap cannot have been granted.
        self.rovers.release(n.min(MAX_CAP));
    }
}

impl<C> Bucket<C> {
    fn build(quota: Quota, cap: Option<u64>, now: Duration) -> Result<Self, ConfigError> {
        quota.check(0)?;
        let minting = Minting {
            schedule: Schedule::new(quota, 0, whole_nanos(now)),
            claimed: 0,
            ceiling: cap.map(|cap| (cap, 0)),
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

    /// Claims `n` tokens, there or not, and returns the ticket that tells when they are. A load and an
    /// atomic addition; one operation more for the largest claim so far.
    ///
    /// A claim cannot be undone. All claims that are not granted yet may add up to 2<sup>62</sup> tokens.
    pub fn grab(&self, n: u64) -> Ticket {
        // Before the claim, which releases it: whoever finds the claim in the tail must know how large it can be.
        if self.largest.load(Ordering::Relaxed) < n {
            self.largest.fetch_max(n, Ordering::Relaxed);
        }
        Ticket(self.rovers.claim(n))
    }

    /// How many of the tokens up to `ticket` are not there yet; 0 means that the claim is granted. One load.
    pub fn deficiency(&self, ticket: Ticket) -> u64 {
        ahead(ticket.0, self.rovers.published()).max(0) as u64
    }

    /// Mints what came due by `now`, which is counted from the same origin as in `new`; a `now` before the latest one
    /// counts as that. Read the clock right before the call: grabs that other threads make between the two count as made
    /// by `now`, and so may be refilled that much too early. If another thread is replenishing at this moment, leaves it
    /// to that one.
    pub fn replenish(&self, now: Duration) {
        let tail = self.rovers.tail();
        let Some(mut minting) = self.mint.try_lock() else { return };
        let largest = self.largest.load(Ordering::Relaxed);
        let limit = minting.step(&self.rovers, tail, largest, whole_nanos(now));
        self.rovers.publish(limit, limit);
    }
}

impl Minting {
    /// Mints by the ceiling as it was, then raises it: what the ceiling held back is kept, up to the burst.
    fn step(&mut self, rovers: &Rovers, tail: u64, largest: u64, now: u64) -> u64 {
        let granted = match self.ceiling {
            // One claim may lie astride the ceiling: the part of it below is not granted either.
            Some((ceiling, _)) if ahead(self.claimed, ceiling) > 0 => ceiling.wrapping_sub(largest - 1),
            _ => self.claimed,
        };
        // What is claimed below the ceiling waits for tokens only, however large a claim of it is.
        let wanted = self.ceiling.map_or(self.claimed, |(ceiling, _)| earlier(self.claimed, ceiling));
        self.schedule.mint(now, later(granted.wrapping_add(self.schedule.burst), wanted));
        self.claimed = later(self.claimed, tail);
        match &mut self.ceiling {
            None => self.schedule.head,
            Some((ceiling, seen)) => {
                // A caller that releases what was not granted moves the ceiling away from the tail: not so far that the two
                // cannot be compared any more. (Twice the largest cap: some claims may have come since the tail was read.)
                let released = rovers.released_since(seen).min(MAX_CAP);
                *ceiling = earlier(ceiling.wrapping_add(released), self.claimed.wrapping_add(2 * MAX_CAP));
                earlier(*ceiling, self.schedule.head)
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
