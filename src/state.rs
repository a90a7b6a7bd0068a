//! Levels that survive a restart. Feature `state`.
//!
//! A limiter that is built anew has full buckets: a service that is restarted once a minute has a higher limit. With
//! [`Limiter::state`](crate::Limiter::state) and [`KeyedLimiter::save`](crate::KeyedLimiter::save) the process saves the
//! levels of all buckets, and with [`Builder::restore`](crate::Builder::restore) and
//! [`KeyedBuilder::restore`](crate::KeyedBuilder::restore) the next process continues from them.
//!
//! * **What is saved**: for each quota its level, to the fraction of a token, or its debt; pauses; and the quotas. The
//!   waiters and the grants in flight end with the process, and so do counters and the state of classes.
//! * **The time between** refills the buckets by the wall clock, up to the burst. If the clock has stepped back, or
//!   forward by more than 366 days, nothing is refilled.
//! * **The rate law holds** over saving, the time between and restoring: the restored limiter never grants more than
//!   the saved one would have. Grants made after the state was saved are not in it, so save when no more are made.
//! * **All or nothing**: a state that is truncated, damaged, or that belongs to other quotas is a [`StateError`], and
//!   nothing is restored. [`LimiterState::convert`] and `KeyedState::convert` allow other quotas explicitly.
//!
//! To replace a file without ever leaving a partial one, write to a temporary file beside it, call
//! [`sync_all`](std::fs::File::sync_all), and rename it.
//!
//! # Examples
//!
//! ```
//! use std::time::{Duration, SystemTime};
//! use tollgate::state::LimiterState;
//! use tollgate::{Limiter, Quota};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::new(Quota::per_hour(60))?;
//! let _grant = limiter.try_acquire(60)?;
//! let bytes = limiter.state()?.to_bytes(); // to a file
//!
//! // In the next process, two minutes later:
//! let state = LimiterState::from_bytes(&bytes)?;
//! let now = SystemTime::now() + Duration::from_secs(120);
//! let limiter = Limiter::builder().quota(Quota::per_hour(60)).restore(state, now).build()?;
//! assert_eq!(limiter.available(), 2);
//! # Ok(()) }
//! ```

pub use crate::error::StateError;
#[cfg(feature = "keyed")]
pub use crate::keyed::{KeyedSave, KeyedState};
pub use crate::saved::LimiterState;
#[cfg(feature = "keyed")]
pub use crate::saved::StateKey;
