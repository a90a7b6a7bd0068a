//! One claim in several limiters at once: all or nothing.
//!
//! A joint claim enters all its lines under all their locks, taken in the order of their addresses: so two joint claims
//! stand in the same order in every line they share, and no circle of lines can wait for each other. From there on
//! each line serves itself; the claim's [`Knot`] makes them grant together.

mod lines;

use crate::error::{ConsumeError, TryAcquireError};
use crate::grant::{Grant, Permit};
use crate::knot::{Knot, MOST_LINES};
use crate::limiter::Limiter;
use crate::queue::Outcome;
use crate::shared::{Shared, drop_quietly};
use crate::vigil::{Outlook, Vigil};
use lines::Lines;
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::runtime::Handle;

/// Waits until every limiter grants its cost, and takes them all at that moment.
///
/// For quotas of different units: requests per minute and tokens per minute. Nothing is granted early and held, so each
/// limiter's law holds at the moment the work starts. Each [`Grant`] is [settled](Grant::settle) on its own.
///
/// # Order
///
/// The claim waits in all queues at once. Joint claims over the same limiters are granted in the order of arrival, and so are
/// all other claims of one limiter among themselves. A later claim in one of the queues is granted first only if this claim can
/// still have its tokens there by the time at which its other limiters have them: a slow limiter costs the callers of a fast
/// one nothing. [`try_acquire`](Limiter::try_acquire) never overtakes a joint claim.
///
/// What a clock cannot foretell, such as a release or tokens by hand, counts from when it has come: until then other callers
/// use the tokens of the other limiters. Once all limiters had the tokens for the claim, they keep what comes for it.
///
/// So the claim is granted, at the latest, after its limiters have minted its cost once from empty buckets, counted from when it is
/// first in all its queues; the costs of earlier joint claims, and debts from `settle`, come on top of that.
///
/// While joint claims wait in a line, [`estimate`](Limiter::estimate) and `retry_after` are `None` there: the line alone
/// cannot tell.
///
/// # Errors
///
/// A [`JoinError`] that names the limiter; nothing was consumed then.
///
/// # Cancel safety
///
/// The future can be dropped at any time: the claim leaves all lines, and no token is lost.
///
/// # Panics
///
/// As [`Consume`](crate::Consume).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Limiter, Quota, join};
/// let requests = Limiter::new(Quota::per_minute(60).burst(5))?;
/// let tokens = Limiter::new(Quota::per_minute(90_000))?;
/// let [_request, mut spent] = join([(&requests, 1), (&tokens, 1_500)]).await?;
/// // ... the answer says what it really cost ...
/// spent.settle(1_117);
/// assert_eq!(tokens.snapshot().granted - tokens.snapshot().refunded, 1_117);
/// # Ok(()) }
/// ```
pub fn join<const N: usize>(claims: [(&Limiter, u64); N]) -> Join<'_, N> {
    const { assert!(N <= MOST_LINES, "a joint claim stands in at most 32 lines") };
    Join { members: Some(claims.map(Member::new)), knot: None }
}

/// Takes every cost if all limiters can grant theirs now, or else nothing; never waits, never overtakes.
///
/// # Errors
///
/// A [`TryJoinError`] that names the limiter whose wait is longest; nothing was consumed then.
///
/// ```
/// use tollgate::{Limiter, Quota, try_join};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let requests = Limiter::new(Quota::per_minute(60).burst(5))?;
/// let tokens = Limiter::new(Quota::per_minute(90_000))?;
/// let grants = try_join([(&requests, 1), (&tokens, 1_500)])?;
/// assert_eq!(grants.map(|grant| grant.cost()), [1, 1_500]);
/// assert!(try_join([(&requests, 1), (&tokens, 90_000)]).is_err());
/// assert_eq!((requests.available(), tokens.available() / 1_000), (4, 88));
/// # Ok(()) }
/// ```
pub fn try_join<const N: usize>(claims: [(&Limiter, u64); N]) -> Result<[Grant<'_>; N], TryJoinError> {
    let mut members = claims.map(Member::new);
    if let Some(limiter) = repeated(&members) {
        return Err(TryJoinError::Repeated { limiter });
    }
    let mut lines = Lines::enter(&members);
    let granted = lines.grant_all(&mut members);
    let refusal = if granted { None } else { lines.worst_refusal(&members) };
    lines.leave();
    match refusal {
        None => Ok(members.map(Member::into_grant)),
        Some((limiter, error)) => {
            members[limiter].shared.audience().refused(members[limiter].cost, error);
            Err(TryJoinError::Refused { limiter, error })
        }
    }
}

/// Why [`join`] did not grant. Nothing was consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// One of the limiters refused.
    #[error("limiter {limiter} of the joint claim: {error}")]
    Refused {
        /// Its place in the array.
        limiter: usize,
        /// Why it refused.
        #[source]
        error: ConsumeError,
    },
    /// A limiter is in the array twice, and would wait for itself.
    #[error("limiter {limiter} of the joint claim is in it twice: add its costs up")]
    Repeated {
        /// The second of its places in the array.
        limiter: usize,
    },
}

/// Why [`try_join`] did not grant. Nothing was consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TryJoinError {
    /// One of the limiters refused; of several, the one whose wait is longest.
    #[error("limiter {limiter} of the joint claim: {error}")]
    Refused {
        /// Its place in the array.
        limiter: usize,
        /// Why it refused.
        #[source]
        error: TryAcquireError,
    },
    /// A limiter is in the array twice.
    #[error("limiter {limiter} of the joint claim is in it twice: add its costs up")]
    Repeated {
        /// The second of its places in the array.
        limiter: usize,
    },
}

/// The future of [`join`].
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[derive(Debug)]
pub struct Join<'a, const N: usize> {
    /// `None` once it has answered.
    members: Option<[Member<'a>; N]>,
    /// Present once it stands in line.
    knot: Option<Arc<Knot>>,
}

/// One limiter's part of a joint claim.
#[derive(Debug)]
struct Member<'a> {
    shared: &'a Shared,
    cost: u64,
    /// What its grant left behind, once it has been granted.
    granted: Option<u64>,
    /// Its number in the queue, while it is there.
    part: Option<u64>,
    outlook: Outlook,
    vigil: Vigil,
}

impl<'a> Member<'a> {
    fn new((limiter, cost): (&'a Limiter, u64)) -> Self {
        Self {
            shared: limiter.shared(),
            cost,
            granted: None,
            part: None,
            outlook: Outlook::default(),
            vigil: Vigil::default(),
        }
    }

    fn into_grant(self) -> Grant<'a> {
        let remaining = self.granted.expect("every member was granted");
        Grant::new(Permit::new(self.shared, self.cost, remaining))
    }

    /// Looks whether this line has called it out.
    fn look(&mut self, knot: &Knot, waker: &Waker) -> Poll<Result<(), ConsumeError>> {
        let Some(number) = self.part else { return Poll::Ready(Ok(())) };
        let looked = self.shared.check_part(number, knot.set(), waker);
        self.part = self.part.filter(|_| looked.0.is_pending());
        match looked {
            (Poll::Ready(Outcome::Granted { remaining }), _, _) => {
                self.granted = Some(remaining);
                Poll::Ready(Ok(()))
            }
            // Who closed has called its own part out first: that one tells.
            (Poll::Ready(Outcome::Untied), _, _) => Poll::Ready(Ok(())),
            (Poll::Ready(outcome), _, _) => Poll::Ready(outcome.into_result().map(drop)),
            (Poll::Pending, true, host) if !host.as_ref().is_some_and(|host| self.shared.serve_here(host)) => {
                Poll::Ready(Err(ConsumeError::NoRuntime))
            }
            (Poll::Pending, _, _) => Poll::Pending,
        }
    }

    /// It stands in its line.
    fn begin_wait(&mut self) {
        self.vigil.begin(self.shared, self.cost, self.outlook);
    }

    fn cancel(&mut self, knot: Option<&Knot>) {
        if let (Some(number), Some(knot)) = (self.part.take(), knot) {
            self.shared.cancel_part(number, knot.set(), self.cost);
        } else if self.granted.take().is_some() {
            self.shared.give_back(self.cost);
        }
    }
}

fn repeated(members: &[Member<'_>]) -> Option<usize> {
    let twice = |(index, member): &(usize, &Member<'_>)| {
        members[..*index].iter().any(|earlier| std::ptr::eq(earlier.shared, member.shared))
    };
    members.iter().enumerate().find(twice).map(|(index, _)| index)
}

impl<'a, const N: usize> Join<'a, N> {
    fn poll_members(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), JoinError>> {
        let Some(knot) = self.knot.clone() else { return self.arrive(cx.waker()) };
        let members = self.members.as_mut().expect("polled after it was ready");
        let mut waiting = false;
        for (limiter, member) in members.iter_mut().enumerate() {
            match member.look(&knot, cx.waker()) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(JoinError::Refused { limiter, error })),
                Poll::Pending => waiting = true,
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// The first poll: takes all, or enters all lines.
    fn arrive(&mut self, waker: &Waker) -> Poll<Result<(), JoinError>> {
        let members = self.members.as_mut().expect("polled after it was ready");
        if let Some(limiter) = repeated(members) {
            return Poll::Ready(Err(JoinError::Repeated { limiter }));
        }
        // Wakers are cloned and places made before the locks are taken.
        let mut wakers: Vec<Waker> = members.iter().map(|_| waker.clone()).collect();
        // Each by itself: two that panic on their way out of one vector would abort the process.
        let let_go = |wakers: Vec<Waker>| wakers.into_iter().for_each(drop_quietly);
        let hosts = members.each_ref().map(|member| member.shared.host());
        let mut lines = Lines::enter(members);
        let checked = lines.check(members, &hosts);
        if checked != Ok(true) {
            lines.leave();
            let_go(wakers);
            let refused = |(limiter, error)| JoinError::Refused { limiter, error };
            return Poll::Ready(checked.map(drop).map_err(refused));
        }
        let knot = tie(members);
        lines.wait(members, &knot, &mut wakers);
        lines.leave();
        let_go(wakers);
        self.knot = Some(knot);
        let served = catch_unwind(AssertUnwindSafe(|| serve_everywhere(members, &hosts)));
        match served.unwrap_or_else(|panic| self.cancel_and(panic)) {
            Some(limiter) => Poll::Ready(Err(JoinError::Refused { limiter, error: ConsumeError::NoRuntime })),
            None => {
                self.members.iter_mut().flatten().filter(|member| member.cost > 0).for_each(Member::begin_wait);
                Poll::Pending
            }
        }
    }

    /// For want of timers: whoever catches this holds a future that stands nowhere.
    fn cancel_and(&mut self, panic: Box<dyn Any + Send>) -> ! {
        self.cancel();
        resume_unwind(panic)
    }

    fn cancel(&mut self) {
        // First of all, so that no line grants its part while the others are being left.
        let knot = self.knot.take();
        if let Some(knot) = &knot {
            knot.kill();
        }
        for member in self.members.iter_mut().flatten() {
            member.cancel(knot.as_deref());
        }
    }

    /// It stands nowhere any more: who is told of it hears how it ended, by the limiter that refused, or left by the others.
    fn tell(&mut self, answer: Result<(), JoinError>) {
        let Some(members) = &mut self.members else { return };
        if let Err(JoinError::Refused { limiter, error }) = answer {
            let Member { shared, cost, vigil, .. } = &mut members[limiter];
            vigil.end(shared, *cost, Err(error));
        }
        for Member { shared, cost, vigil, .. } in members {
            if answer.is_ok() { vigil.end(shared, *cost, Ok(())) } else { vigil.leave(shared) }
        }
    }
}

fn tie(members: &[Member<'_>]) -> Arc<Knot> {
    let idle = members.iter().enumerate().filter(|(_, member)| member.cost == 0).map(|(index, _)| index);
    let one_clock = members.windows(2).all(|pair| pair[0].shared.time.is_one_with(&pair[1].shared.time));
    Arc::new(Knot::new(members.iter().map(|member| member.shared.weak()).collect(), idle, one_clock))
}

/// Has each runtime that serves one of the lines serve all of them, ours first: whoever waits behind this claim, on
/// whatever runtime, then has a driver of its own for all it waits for. Names the line that our own runtime, shutting
/// down, cannot serve.
fn serve_everywhere(members: &[Member<'_>], hosts: &[Option<Handle>]) -> Option<usize> {
    let waiting = || members.iter().enumerate().filter(|(_, member)| member.cost > 0);
    for (index, member) in waiting() {
        if hosts[index].as_ref().is_some_and(|host| !member.shared.serve_here(host)) {
            return Some(index);
        }
    }
    let elsewhere: Vec<Handle> = waiting().flat_map(|(_, member)| member.shared.hosts()).collect();
    for (_, member) in waiting() {
        for host in &elsewhere {
            member.shared.serve_from(host);
        }
    }
    None
}

impl<'a, const N: usize> Future for Join<'a, N> {
    type Output = Result<[Grant<'a>; N], JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(self.poll_members(cx));
        if answer.is_err() {
            self.cancel();
        }
        self.tell(answer);
        let members = self.members.take().expect("polled after it was ready");
        Poll::Ready(answer.map(|()| members.map(Member::into_grant)))
    }
}

impl<const N: usize> Drop for Join<'_, N> {
    fn drop(&mut self) {
        self.cancel();
        if let Some(members) = &mut self.members {
            members.iter_mut().for_each(|member| member.vigil.leave(member.shared));
        }
    }
}
