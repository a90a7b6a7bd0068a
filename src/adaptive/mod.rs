//! A rate that is learned from a server that does not say what its limit is.
//!
//! An [`Adaptive`] drives a [`Limiter`]: it raises the rate while the server accepts requests, and lowers it when the
//! server refuses one. All callers that wait in the limiter's queue are rescheduled at once. So no caller sleeps for a
//! time that was computed from an old rate, and a caller that gives up leaves its tokens to the others.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate::Adaptive;
//! # async fn send() -> u16 { 429 }
//! let api = Adaptive::between("1/s", "5000/s").start("20/s").build()?;
//!
//! let grant = api.consume(1).await?;
//! match send().await {
//!     429 => grant.throttled(None), // or the time that `Retry-After` says
//!     _ => grant.succeeded(),       // the same as dropping the grant
//! }
//! assert!(api.tokens_per_second() < 20.0);
//! # Ok(()) }
//! ```
//!
//! # When to use it
//!
//! * The server refuses requests above a limit (status 429, `SlowDown`, `ThrottlingException`), and the limit is
//!   unknown or changes.
//! * Many tasks share the limit: one `Adaptive` for all of them. Several processes can share a limit too: each learns a
//!   share of the limit, and the shares become equal in time.
//!
//! If the limit is known, use a [`Limiter`]: it is never refused. If the server sends `RateLimit` fields, or those of OpenAI
//! or Anthropic, follow them with a `HeedLayer` (crate `tollgate-tower`, feature `http`). For other HTTP servers,
//! `LimitLayer::adaptive` of the same crate reports the status of each response.
//!
//! # How the rate changes
//!
//! * **It grows** while requests are accepted *and had to wait*. The growth begins with 0.2 requests per second in each
//!   second (above 100 requests per second with more, in proportion to the square root of the rate). It doubles after
//!   each 0.45 s plus half the interval between two requests. An idle client learns nothing and keeps its rate. The
//!   rate never exceeds one and a half times a rate at which a request was accepted, so slow answers slow the growth
//!   down.
//! * **It falls** when a request is refused. If the rate had grown before, the limit is near: the rate returns to just
//!   below it, and holds there for 140 requests (at least 0.6 s, at most the
//!   [settle time](AdaptiveBuilder::settle)). If the rate had not grown, the limit has fallen: the rate falls to what
//!   the server accepted lately, by at least 15 % and at most [by half](AdaptiveBuilder::decrease), and grows from
//!   there.
//! * **One event is one decrease.** Requests that were already sent when the rate fell may be refused too. These
//!   refusals lower the rate no further.
//! * **`Retry-After` pauses** the limiter for all callers, for at most
//!   [ten minutes](AdaptiveBuilder::longest_pause).
//! * **Clients in step get out of step.** If three decreases follow each other with fewer than four accepted requests
//!   between them, and another request is refused, the requests may arrive together with those of other clients that run
//!   at the same rate. A lower rate does not change that. So the limiter also pauses for a
//!   [random](AdaptiveBuilder::seed) time of up to two intervals between requests.
//!
//! The growth depends less on the rate than the decrease, which is proportional to it: *additive increase,
//! multiplicative decrease* (D.-M. Chiu and R. Jain, "Analysis of the Increase and Decrease Algorithms for Congestion
//! Avoidance in Computer Networks", 1989). Clients that share a limit therefore converge to equal shares. The plateau
//! and the accelerating search are those of CUBIC (RFC 9438), as in the adaptive retry mode of botocore. botocore also
//! lowers the rate to what was delivered.
//!
//! # What it does not do
//!
//! * **It does not measure latency.** Controllers that lower the rate when answers become slower get stuck at the
//!   lowest rate when the latency at the beginning was unusually low, and take noise for a signal (concurrency-limits
//!   issues 35 and 117 of the Java and Go libraries, envoy issue 9038). A refusal is unambiguous.
//! * **It does not avoid all refusals.** A limit that may rise can only be found by trying. Each attempt costs a
//!   refusal. At 10 requests per second and the default settle time, that is about 1 request in 90.
//! * **Many processes that send few requests per second each share a limit badly.** After the limit has fallen, each
//!   process needs a refusal of its own to notice. Below about one request per second each, no client can use the limit
//!   and be refused rarely (`benches/adaptive/bound.rs` has the proof). Up to some tens per second each, more requests
//!   are refused than of one client. Let the tasks of one process share an `Adaptive` instead.
//! * **It does not retry.** The caller decides whether a refused request is sent again.
//! * **It does not distinguish the refusals of several resources**: use an `Adaptive` for each resource.
//! * **It does not know what a request waited for.** A wait for another quota, for the in-flight cap or for the ceiling
//!   of a class counts like a wait for the learned rate, and lets the rate grow.
//!
//! # Classes
//!
//! One learned rate can be shared by [classes](crate::Class): drive a limiter that was built with
//! [`classes`](crate::Builder::classes), and make the classes with [`Adaptive::class`]. All of them report to one rate.

mod bounds;
mod builder;
mod control;
mod error;
mod grant;
mod phase;
mod snapshot;
mod target;

pub use builder::AdaptiveBuilder;
pub use error::AdaptiveError;
pub use grant::{AdaptiveConsume, AdaptiveGrant, Attempt};
pub use snapshot::{AdaptiveSnapshot, ChangeReason, RateChange};
#[cfg(feature = "keyed")]
pub use target::KeyOf;
pub use target::Target;

use crate::sync::Mutex;
use crate::{AsLimiter, Class, ConfigError, Limiter, Quota, Share};
use bounds::Bounds;
use control::{Control, Decrease, Fall, Stamp};
use phase::Phase;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use target::Driven;

/// A limiter that learns its rate from the outcomes of requests. See the [module](self).
///
/// Cloning is cheap: all clones share one rate and one queue.
pub struct Adaptive<T: Target = Limiter> {
    target: T,
    shared: Arc<Shared<T::Driven>>,
}

/// The state that the clones, the claims and the grants of an [`Adaptive`] share, also those in classes of its limiter.
struct Shared<D> {
    driven: D,
    bounds: Bounds,
    longest_pause: Duration,
    state: Mutex<State>,
}

struct State {
    control: Control,
    phase: Phase,
    /// The quota of the latest rate.
    quota: Quota,
    /// True if a claim that had waited left the queue, or a claim that would have waited was refused: the limiter is
    /// the bottleneck.
    has_unmet_demand: bool,
    last_change: Option<RateChange>,
    /// How often the rate has changed, by [`ChangeReason`].
    changes: [u64; 3],
    accepted: u64,
    refused: u64,
}

impl Adaptive {
    /// Begins with the slowest and the fastest rate: quotas, or their text.
    ///
    /// The slowest rate is kept even if the server refuses all requests; choose one that you may always use. The
    /// fastest rate is never exceeded; choose what you could use at most.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Adaptive, Quota};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let api = Adaptive::between("1/s", Quota::per_second(5_000)).build()?;
    /// assert_eq!(api.tokens_per_second(), 1.0);
    /// assert!(Adaptive::between("10/s", "-5/s").build().is_err());
    /// # Ok(()) }
    /// ```
    pub fn between<A, B>(slowest: A, fastest: B) -> AdaptiveBuilder
    where
        A: TryInto<Quota, Error: Into<AdaptiveError>>,
        B: TryInto<Quota, Error: Into<AdaptiveError>>,
    {
        AdaptiveBuilder::new(slowest.try_into().map_err(Into::into), fastest.try_into().map_err(Into::into))
    }
}

impl<L: AsLimiter + Target> Adaptive<L> {
    /// Returns the limiter that is driven.
    pub fn limiter(&self) -> &Limiter {
        self.target.limiter()
    }
}

impl Adaptive<Limiter> {
    /// Makes a class of the limiter that is driven, which must have been built with [`classes`](crate::Builder::classes).
    /// Its claims wait in the class. All classes share one learned rate, by their weights.
    ///
    /// # Errors
    ///
    /// The same as [`Limiter::class`].
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Adaptive, Limiter, Quota, Share};
    /// let limiter = Limiter::builder().quota(Quota::per_second(20).burst(1)).classes().build()?;
    /// let api = Adaptive::between("1/s", "500/s").start("20/s").drive(&limiter)?;
    /// let [interactive, batch] = [api.class("interactive", Share::weight(3))?, api.class("batch", Share::weight(1))?];
    /// interactive.consume(1).await?.succeeded();
    /// batch.consume(1).await?.throttled(None);
    /// assert!(interactive.tokens_per_second() < 20.0);
    /// # Ok(()) }
    /// ```
    pub fn class(&self, name: impl AsRef<str>, share: Share) -> Result<Adaptive<Class>, ConfigError> {
        Ok(Adaptive { target: self.target.class(name, share)?, shared: Arc::clone(&self.shared) })
    }
}

impl Adaptive<Class> {
    /// Makes a class in this class; see [`Adaptive::class`](Adaptive#method.class).
    ///
    /// # Errors
    ///
    /// The same as [`Class::class`].
    pub fn class(&self, name: impl AsRef<str>, share: Share) -> Result<Self, ConfigError> {
        Ok(Self { target: self.target.class(name, share)?, shared: Arc::clone(&self.shared) })
    }
}

impl<T: Target> Adaptive<T> {
    fn new(target: T, control: Control, bounds: Bounds, phase: Phase, longest_pause: Duration) -> Self {
        let quota = bounds.quota(control.rate());
        let state = State {
            control,
            phase,
            quota,
            has_unmet_demand: false,
            last_change: None,
            changes: [0; 3],
            accepted: 0,
            refused: 0,
        };
        let shared = Shared { driven: target.driven(), bounds, longest_pause, state: Mutex::new(state) };
        Self { target, shared: Arc::new(shared) }
    }

    /// Waits in the limiter's queue until `cost` tokens are available, and takes them. The future and the grant own
    /// what they need, for spawned tasks.
    ///
    /// # Errors
    ///
    /// The same as [`Limiter::consume`].
    ///
    /// # Cancel safety
    ///
    /// See [`AdaptiveConsume`].
    pub fn consume(&self, cost: u64) -> AdaptiveConsume<T> {
        AdaptiveConsume::new(&self.target, Arc::clone(&self.shared), cost)
    }

    /// Observes a request that took its tokens in another way, for example by a [`join`](crate::join) of several
    /// limiters. Call it when the request is sent. `has_waited` says whether the request had to wait for this limiter;
    /// if not, its success does not raise the rate.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tollgate::{Adaptive, join};
    /// let requests = Adaptive::between("1/s", "500/s").start("10/s").build()?;
    /// let tokens = Adaptive::between("1000/min", "1000000/min").start("60000/min").build()?;
    /// let _grants = join([(requests.limiter(), 1), (tokens.limiter(), 700)]).await?;
    /// let [request, used] = [requests.attempt(1, true), tokens.attempt(700, true)];
    /// // The server refuses: too many tokens.
    /// used.throttled(None);
    /// request.ignored();
    /// assert!(tokens.tokens_per_second() < 1_000.0 && requests.tokens_per_second() == 10.0);
    /// # Ok(()) }
    /// ```
    pub fn attempt(&self, cost: u64, has_waited: bool) -> Attempt<T> {
        Attempt::new(Arc::clone(&self.shared), cost, has_waited)
    }

    /// Returns where the claims wait.
    pub fn target(&self) -> &T {
        &self.target
    }

    /// Returns the learned rate in tokens per second.
    pub fn tokens_per_second(&self) -> f64 {
        self.shared.state.lock().control.rate()
    }

    /// Returns the learned rate, its latest change with the reason, and counts.
    pub fn snapshot(&self) -> AdaptiveSnapshot {
        let state = self.shared.state.lock();
        AdaptiveSnapshot {
            rate: state.quota,
            slowest: self.shared.bounds.slowest,
            fastest: self.shared.bounds.fastest,
            is_holding: state.control.is_holding(),
            last_change: state.last_change,
            increases: state.changes[ChangeReason::Accepted as usize],
            probes_refused: state.changes[ChangeReason::ProbeRefused as usize],
            falls: state.changes[ChangeReason::LimitFell as usize],
            accepted: state.accepted,
            refused: state.refused,
        }
    }
}

impl<D: Driven> Shared<D> {
    fn stamp(&self, has_waited: bool, cost: u64) -> Stamp {
        let mut state = self.state.lock();
        let is_limited = std::mem::take(&mut state.has_unmet_demand) || has_waited;
        state.control.stamp(is_limited, cost as f64)
    }

    fn note_unmet_demand(&self) {
        self.state.lock().has_unmet_demand = true;
    }

    fn accepted(&self, stamp: Stamp, cost: u64) {
        let mut state = self.state.lock();
        state.accepted += 1;
        if state.control.accepted(stamp, cost as f64) {
            state.change(&self.bounds, ChangeReason::Accepted);
            drop(state);
            self.apply();
        }
    }

    fn refused(&self, stamp: Stamp, cost: u64, retry_after: Option<Duration>) {
        let mut state = self.state.lock();
        state.refused += 1;
        let decrease = state.control.refused(stamp, cost as f64);
        if let Some(Decrease { fall, .. }) = decrease {
            let reason = match fall {
                Fall::WhileGrowing => ChangeReason::ProbeRefused,
                Fall::WhileHolding => ChangeReason::LimitFell,
            };
            state.change(&self.bounds, reason);
        }
        let rate = state.control.rate();
        let shift = decrease.filter(|decrease| decrease.is_in_step).map(|_| state.phase.shift(cost, rate));
        drop(state);
        if decrease.is_some() {
            self.apply();
        }
        let pause = retry_after.unwrap_or_default().saturating_add(shift.unwrap_or_default());
        if !pause.is_zero() {
            self.driven.pause(pause.min(self.longest_pause));
        }
    }

    /// Gives the limiter the latest quota. Two threads may do this in the wrong order, so each checks afterwards
    /// whether its quota is still the latest one.
    ///
    /// The lock is not held meanwhile: the limiter reads a clock and wakes waiters, which is user code.
    fn apply(&self) {
        loop {
            let quota = self.state.lock().quota;
            // The quota is valid. If a key has lost its own quota and the map is full, the next change tries again.
            let _ = self.driven.set_rate(quota);
            if self.state.lock().quota == quota {
                return;
            }
        }
    }
}

impl State {
    fn change(&mut self, bounds: &Bounds, reason: ChangeReason) {
        let to = bounds.quota(self.control.rate());
        // At the slowest rate a refusal lowers nothing, so there is no change to count or to report.
        if to == self.quota {
            return;
        }
        self.changes[reason as usize] += 1;
        self.last_change = Some(RateChange { from: self.quota, to, reason });
        self.quota = to;
    }
}

impl<T: Target> Clone for Adaptive<T> {
    fn clone(&self) -> Self {
        Self { target: self.target.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<T: Target> fmt::Debug for Adaptive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Adaptive").field(&self.snapshot()).finish()
    }
}
