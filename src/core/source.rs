//! A source of tokens outside of this limiter, such as the store of a distributed quota.
//!
//! The head of a quota with a source moves only by tokens that the source has promised. The source requests them in a
//! background task of its own; see `distributed/`.

use super::outcome::CutOff;
use std::any::Any;
use std::fmt::{self, Debug};
use std::future::Future;
use std::pin::Pin;
use std::task::Waker;
use tokio::runtime::Handle;

/// The background task of a source, which requests tokens.
pub(crate) struct RequestTask(Pin<Box<dyn Future<Output = ()> + Send>>);

impl RequestTask {
    pub(crate) fn new(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(task))
    }

    /// Returns false if `host` is shutting down, and dropped the task at once.
    pub(crate) fn spawn(self, host: &Handle) -> bool {
        !host.spawn(self.0).is_finished()
    }
}

impl Debug for RequestTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestTask").finish_non_exhaustive()
    }
}

/// The tokens that a source has promised, and the source's need for requests. Called under the limiter's lock.
///
/// All instants are in the limiter's nanoseconds. The *front* is the claim at the front of the queue.
pub(crate) trait Source: Debug + Send {
    /// The source as a value of its own type.
    fn as_any(&self) -> &dyn Any;

    fn as_any_mut(&mut self) -> &mut dyn Any;

    /// A copy with the same promised tokens, to try out the future. The copy requests nothing.
    fn copy(&self) -> Box<dyn Source>;

    /// Mints the tokens that came by `now` and returns their number: at most `space`, or the tokens that the front
    /// `lacks` if these were promised in one piece.
    fn mint(&mut self, now: u64, space: u64, lacks: u64) -> u64;

    /// The instant at which the front passes, if it needs `need` more tokens and `space` tokens can be kept until the
    /// last of them comes. `None` if fewer were promised.
    fn passes(&self, need: u64, space: u64) -> Option<u64>;

    /// The instant before which `tokens` more tokens cannot come, as of `now`, although fewer were promised.
    fn not_before(&self, tokens: u64, now: u64) -> Option<u64>;

    /// The claim with this number waits since `since`.
    fn note_wait(&mut self, number: u64, since: u64);

    /// The last claim that was [noted](Self::note_wait) waits until `until` at most.
    fn note_deadline(&mut self, until: u64);

    /// The claim with this number waits no longer.
    fn forget_wait(&mut self, number: u64);

    /// Whether the front, which has this number and lacks so many tokens that not all are promised, is known to be too late:
    /// how long it would wait, and how long it may, in nanoseconds.
    fn too_late(&self, number: u64, lacks: u64) -> Option<(u64, u64)>;

    /// How many of `burst` tokens may be kept unused at `now`.
    fn kept(&self, burst: u64, now: u64) -> u64;

    /// Whether the next tokens that come together complete a claim that needs `need` more.
    fn completes(&self, need: u64) -> bool;

    /// The front has left at `now`, for which `tokens` were minted: they are for the next one, with those of the piece that
    /// have not come yet.
    fn hand_on(&mut self, tokens: u64, now: u64);

    /// Takes back `tokens` that were minted and cannot be kept.
    fn spare(&mut self, tokens: u64);

    /// Whether tokens of a grant made at this instant return when they are refunded.
    fn takes_back(&self, granted_at: Option<u64>) -> bool;

    /// The largest cost of one claim.
    fn most_claimed(&self) -> u64;

    /// The largest number of tokens that can ever be available at once.
    fn most_at_once(&self) -> u64;

    /// A call for `cost` tokens at once is denied, although no promised token would help.
    fn miss(&mut self, cost: u64);

    /// Wakes the task when the lock is released: tokens that came long ago are lost, because other nodes may have got them
    /// since, or the task sleeps until the end of a pause that has just ended early.
    fn call_task(&mut self);

    /// The reason why a claim fails for which no tokens are promised; `None` if it waits.
    fn cut_off(&self) -> Option<CutOff>;

    /// Whether the task has to look, because the claims end at `claims`, or no claim waits and tokens were promised beyond
    /// those minted up to `head`.
    fn is_low(&self, claims: u64, head: u64, is_waiting: bool) -> bool;

    /// Whether a grant after which tokens are low has to wake the task, because callers do not wait: the next one would be
    /// refused.
    fn is_urgent(&self) -> bool;

    /// Whether the task sleeps and has made no plan for the front `claim`, which has no instant at which it passes.
    fn sleeps_without_plan_for(&self, claim: u64) -> bool;

    /// Takes the waker of the sleeping task; the caller wakes it.
    fn take_waker(&mut self) -> Option<Waker>;

    /// Whether the task has ended with its runtime, so that the next waiter has to [restart](Self::take_task) it.
    fn is_stopped(&self) -> bool;

    /// Takes the task, if it has to be spawned.
    fn take_task(&mut self) -> Option<RequestTask>;

    /// The limiter is gone, with `unused` tokens left that were minted by `now`. Returns the waker of the task.
    fn end(&mut self, unused: u64, now: u64) -> Option<Waker>;
}

impl Clone for Box<dyn Source> {
    fn clone(&self) -> Self {
        (**self).copy()
    }
}
