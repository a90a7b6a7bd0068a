//! One claim in several limiters at once: all or nothing.
//!
//! A joint claim enters while all its limiters are locked, in the order of their addresses. What happens then is in
//! `core/joint.rs`.

mod locked;
mod member;

use crate::core::Core;
use crate::core::coop::poll_paid;
use crate::core::drop_quietly;
use crate::core::joint::{self, Called, Cancelled, JointSet, MAX_MEMBERS};
use crate::core::wakes::Wakes;
use crate::deadline::{Allowed, Deadline};
use crate::error::{ConsumeError, TryAcquireError};
use crate::grant::Grant;
use crate::handle::{Handle, Limiter};
use locked::{LockOrder, Needed};
use member::Member;
use std::any::Any;
use std::cmp::Reverse;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::iter;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::runtime::Handle as Runtime;

/// Waits until every limiter can grant its cost, and takes all costs at that moment.
///
/// Use it for quotas of different units, such as requests per minute and tokens per minute. The claim waits for
/// all limiters at once, behind the claims that were there before it. Nothing is granted early and held, so each limiter's
/// guarantee holds at the moment the work starts. Each [`Grant`] is [settled](Grant::settle) separately.
///
/// Joint claims over the same limiters are granted in the order of arrival. Only the first of them takes part in the queues.
/// It waits for its turn in each limiter: until no plain claim waits there that came before it. From its turn everywhere on,
/// it waits at most for as long as the slowest of its limiters takes to mint its cost, and the same for each older joint
/// claim that is the first over other limiters of which it needs one too. (If that one has its turn later, the claim may
/// have to begin again, and waits for its own cost once more.) A pause, a cap, a changed quota or a clock of its own that
/// holds one of the limiters back comes on top. Before its turn it reserves nothing: later claims pass in a limiter where
/// it would have had its turn, and can make it wait longer.
///
/// Later claims may pass the joint claim in one limiter while another limiter has no tokens for it yet: each limiter holds
/// back later claims early enough to have minted the joint claim's own tokens when the slowest limiter has them too. A limiter
/// with a manual or a distributed quota, or with an in-flight cap that is used up, holds back later claims from the turn of
/// the joint claim on. Limiters on different clocks do the same. The technique is that of reservations in batch schedulers
/// (EASY backfilling).
///
/// A [`Class`](crate::Class) can take the place of a limiter; for arrays of both there is [`AnyLimiter`](crate::AnyLimiter).
/// There the claim waits in the queue of its class and in turn with the other classes, and the class is charged at this
/// turn. A joint claim waits for its turn while an older one of its class has had its turn and is not granted, and so do the
/// claims behind it. Two classes of one limiter are [`Repeated`](JoinError::Repeated).
///
/// The claim ends if one of its limiters is closed or its class removed. It has at most 32 limiters: more do not
/// compile.
///
/// While a joint claim waits in a queue, that limiter's [`estimate`](Limiter::estimate) and `retry_after` are `None`,
/// because they also depend on the other queues. [`within`](Join::within) bounds the wait.
///
/// # Errors
///
/// Returns a [`JoinError`] that names the limiter that refused. Nothing is consumed then.
///
/// # Cancel safety
///
/// The future can be dropped at any time: the claim leaves all queues, and no token is lost. Grants that the caller
/// has not received yet are refunded in each limiter, as for a [`Consume`](crate::Consume).
///
/// # Panics
///
/// The same as [`Consume`](crate::Consume).
///
/// # Examples
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
pub fn join<L: Handle, const N: usize>(claims: [(&L, u64); N]) -> Join<'_, N, [Grant<'_, L>; N], L> {
    Join::new(claims)
}

/// Takes every cost if all limiters can grant theirs now, or nothing.
///
/// It never waits and never overtakes a waiting caller.
///
/// # Errors
///
/// Returns a [`JoinError`] that names the limiter with the longest wait. Nothing is consumed then.
///
/// # Examples
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
pub fn try_join<L: Handle, const N: usize>(
    claims: [(&L, u64); N],
) -> Result<[Grant<'_, L>; N], JoinError<TryAcquireError>> {
    let mut members = claims.map(Member::new);
    let order = lock_order(&members)?;
    let refusal = order.lock(|queues| if queues.grant_all(&mut members) { None } else { queues.worst_refusal() });
    match refusal {
        None => Ok(members.map(Member::into_grant)),
        Some((limiter, error)) => {
            let member = &members[limiter];
            member.core().observers().refused_in(member.observed().class, member.cost, error);
            Err(JoinError::Refused { limiter, error })
        }
    }
}

/// The error of [`join`]; with [`TryAcquireError`] as `E`, the error of [`try_join`]. Nothing was consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JoinError<E = ConsumeError> {
    /// One of the limiters refused; of several that refuse [`try_join`], the one with the longest wait.
    Refused {
        /// The index of the limiter in the array.
        limiter: usize,
        /// Why the limiter refused.
        error: E,
    },
    /// A limiter has a quota in [dry run](crate::Builder::dry_run), which does not simulate joint claims.
    InDryRun {
        /// The index of the limiter in the array.
        limiter: usize,
    },
    /// A limiter shares a distributed quota among classes: the store promises tokens for claims in their turn, and not for
    /// when other limiters are ready.
    DistributedClasses {
        /// The index of the limiter in the array.
        limiter: usize,
    },
    /// A limiter is in the array twice, and the claim would wait for itself: the limiter itself, two of its classes, a key and
    /// its parent, or keys under two classes of one parent.
    Repeated {
        /// The second index of the limiter in the array.
        limiter: usize,
    },
}

impl<E: Error + 'static> Error for JoinError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        if let Self::Refused { error, .. } = self { Some(error) } else { None }
    }
}

impl<E: fmt::Display> fmt::Display for JoinError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Refused { limiter, .. }
        | Self::InDryRun { limiter }
        | Self::DistributedClasses { limiter }
        | Self::Repeated { limiter }) = self;
        write!(f, "limiter {limiter} of the joint claim")?;
        match self {
            Self::Refused { error, .. } => write!(f, ": {error}"),
            Self::InDryRun { .. } => {
                f.write_str(" has a quota in dry run: enforce it, or claim from the limiter alone")
            }
            Self::DistributedClasses { .. } => {
                f.write_str(" is distributed and has classes: claim from the limiter alone")
            }
            Self::Repeated { .. } => {
                f.write_str(" is in it twice, or its parent is: name each once, for the sum of its costs")
            }
        }
    }
}

/// The future returned by [`join`], and with a [`Reservation`](crate::Reservation) as its result by
/// [`reserve`](crate::reserve).
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[derive(Debug)]
pub struct Join<'a, const N: usize, T = [Grant<'a>; N], L: Handle = Limiter> {
    /// `None` once the future has returned its result.
    members: Option<[Member<'a, L>; N]>,
    allowed: Allowed,
    /// Present while the claim waits.
    waiting: Option<Waiting>,
    /// Present while a claim with a limit waits. Boxed, so that it can be pinned without `unsafe`.
    deadline: Option<Pin<Box<Deadline>>>,
    result: PhantomData<fn() -> T>,
}

/// A joint claim that waits.
#[derive(Debug)]
struct Waiting {
    set: Arc<JointSet>,
    /// The number of the claim in the set.
    number: u64,
    /// What each member of the set is for.
    of: Vec<Needed>,
}

/// The queues of these limiters, if they can be joined.
fn lock_order<'a, L: Handle, E>(members: &[Member<'a, L>]) -> Result<LockOrder<'a>, JoinError<E>> {
    let order = LockOrder::of(members).map_err(|limiter| JoinError::Repeated { limiter })?;
    if let Some(limiter) = members.iter().position(|member| member.core().has_dry_run()) {
        return Err(JoinError::InDryRun { limiter });
    }
    match members.iter().position(|member| member.core().shares_among_classes()) {
        Some(limiter) => Err(JoinError::DistributedClasses { limiter }),
        None => Ok(order),
    }
}

impl<'a, const N: usize, T, L: Handle> Join<'a, N, T, L> {
    pub(crate) fn new(claims: [(&'a L, u64); N]) -> Self {
        const { assert!(N <= MAX_MEMBERS, "a joint claim is over at most 32 limiters") };
        let members = Some(claims.map(Member::new));
        Self { members, allowed: Allowed::ANY, waiting: None, deadline: None, result: PhantomData }
    }

    /// Limits the wait to `allowed`. Call it before the first poll.
    ///
    /// The future refuses at once with [`TooLate`](ConsumeError::TooLate) if the schedule of one of the limiters already
    /// says that the wait there would be longer. It ends with [`TimedOut`](ConsumeError::TimedOut) if the wait becomes
    /// longer for another reason; the error then names the limiter that would have been ready last. The wait is
    /// measured by the clock of the first limiter.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::{ConsumeError, JoinError, Limiter, Quota, join};
    /// let (requests, tokens) = (Limiter::new(Quota::per_hour(60))?, Limiter::new(Quota::per_hour(1_000))?);
    /// let refusal = join([(&requests, 1), (&tokens, 1_500)]).within(Duration::from_secs(1)).await.unwrap_err();
    /// assert!(matches!(refusal, JoinError::Refused { limiter: 1, error: ConsumeError::TooLate { .. } }));
    /// # Ok(()) }
    /// ```
    pub fn within(mut self, allowed: Duration) -> Self {
        self.allowed = Allowed::at_most(allowed);
        self
    }

    fn poll_until_deadline(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), JoinError>> {
        if let answer @ Poll::Ready(_) = self.poll_claim(cx) {
            return answer;
        }
        let (Some(deadline), Some(members)) = (&mut self.deadline, &self.members) else { return Poll::Pending };
        let Some(clock) = members.first() else { return Poll::Pending };
        let waited = ready!(deadline.as_mut().poll(&clock.core().time, cx));
        let Some(waiting) = self.waiting.take() else { return Poll::Pending };
        match waiting.leave() {
            // It was granted, or refused, at this very moment.
            Cancelled::Called(called) => Poll::Ready(self.answer(&waiting, called)),
            Cancelled::Waiting(dues) => {
                // Of the limiters that would have been ready last, the first.
                let last = dues
                    .into_iter()
                    .zip(&waiting.of)
                    .max_by_key(|(due, of)| (*due, Reverse((of.limiter, of.is_parent))));
                let of = last.map_or(waiting.of[0], |(_, of)| *of);
                let error = self
                    .members
                    .as_ref()
                    .map_or(ConsumeError::Closed, |members| members[of.limiter].timed_out(waited, of));
                Poll::Ready(Err(JoinError::Refused { limiter: of.limiter, error }))
            }
        }
    }

    fn poll_claim(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), JoinError>> {
        let Some(waiting) = &self.waiting else { return self.arrive(cx.waker()) };
        let (called, spare) = waiting.set.poll(waiting.number, cx.waker().clone());
        drop_quietly(spare);
        if let Some(called) = called {
            if let Some(waiting) = self.waiting.take() {
                return Poll::Ready(self.answer(&waiting, called));
            }
        }
        let mut members = self.members.iter().flatten().enumerate().filter(|(_, member)| member.cost > 0);
        match members.find(|(_, member)| member.core().is_left_alone()) {
            Some((limiter, _)) => Poll::Ready(Err(JoinError::Refused { limiter, error: ConsumeError::NoRuntime })),
            None => Poll::Pending,
        }
    }

    /// Notes the outcome of the claim.
    fn answer(&mut self, waiting: &Waiting, called: Called) -> Result<(), JoinError> {
        match called {
            Called::Granted(words) => {
                let Some(members) = &mut self.members else { return Ok(()) };
                for (of, word) in waiting.of.iter().zip(words).filter(|(of, _)| !of.is_parent) {
                    members[of.limiter].granted = Some(word);
                }
                Ok(())
            }
            Called::Refused { member, outcome } => {
                let error = outcome.into_result().err().unwrap_or(ConsumeError::Closed);
                let Needed { limiter, is_parent, .. } = waiting.of[member];
                Err(JoinError::Refused { limiter, error: if is_parent { error.as_parent() } else { error } })
            }
        }
    }

    /// The first poll: takes all costs, or enters all queues.
    fn arrive(&mut self, waker: &Waker) -> Poll<Result<(), JoinError>> {
        let members = self.members.as_mut().expect("polled after it was ready");
        let order = lock_order(members)?;
        // Clone the waker before taking the locks: `Waker::clone` is user code and may panic.
        let mut waker = Some(waker.clone());
        let hosts = members.each_ref().map(|member| member.core().host());
        let allowed = self.allowed.nanos();
        let entered = order.lock(|queues| {
            if !queues.must_wait(members, &hosts, allowed)? {
                return Ok(None);
            }
            Ok(waker.take().map(|waker| queues.wait(members, waker)))
        });
        drop_quietly(waker);
        match entered {
            Ok(Some(waiting)) => self.waiting = Some(waiting),
            Ok(None) => return Poll::Ready(Ok(())),
            Err((limiter, error)) => return Poll::Ready(Err(JoinError::Refused { limiter, error })),
        }
        let served = catch_unwind(AssertUnwindSafe(|| serve_everywhere(members, &hosts)));
        match served.unwrap_or_else(|panic| self.cancel_and(panic)) {
            Some(limiter) => Poll::Ready(Err(JoinError::Refused { limiter, error: ConsumeError::NoRuntime })),
            None => {
                self.members.iter_mut().flatten().filter(|member| member.cost > 0).for_each(Member::begin_wait);
                self.deadline = allowed.map(|allowed| Box::pin(Deadline::new(allowed)));
                Poll::Pending
            }
        }
    }

    /// Starting a driver can panic if the runtime has no timers. Cancel first: a caller that catches the panic then
    /// holds a future that waits in no queue.
    fn cancel_and(&mut self, panic: Box<dyn Any + Send>) -> ! {
        self.cancel();
        resume_unwind(panic)
    }

    fn cancel(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            if let Cancelled::Called(called) = waiting.leave() {
                _ = self.answer(&waiting, called);
            }
        }
        self.members.iter_mut().flatten().for_each(Member::give_back);
    }

    /// Ends the wait records, after the claim has left all queues. The limiter that refused reports the refusal; the
    /// other limiters report that the claim left.
    fn end_wait_records(&mut self, answer: Result<(), JoinError>) {
        let Some(members) = &mut self.members else { return };
        if let Err(JoinError::Refused { limiter, error }) = answer {
            let (observed, member) = (members[limiter].observed(), &mut members[limiter]);
            member.wait_record.end(observed, member.cost, Err(error));
        }
        for member in members {
            let observed = member.observed();
            if answer.is_ok() {
                member.wait_record.end(observed, member.cost, Ok(()))
            } else {
                member.wait_record.cancel(observed)
            }
        }
    }
}

impl Waiting {
    /// The claim leaves all limiters, unless it has an outcome.
    fn leave(&self) -> Cancelled {
        let mut wakes = Wakes::default();
        let cancelled = joint::cancel_in(&self.set, self.number, &mut wakes);
        wakes.run();
        cancelled
    }
}

/// Makes each runtime that serves one of the queues serve all of them, beginning with the current runtime. A waiter
/// behind this claim, on any of these runtimes, then has a driver for every queue that it depends on. Returns the
/// index of the queue that the current runtime cannot serve because it is shutting down, and counts the refusal there.
fn serve_everywhere<L: Handle>(members: &[Member<'_, L>], hosts: &[Option<Runtime>]) -> Option<usize> {
    let waiting = || members.iter().enumerate().filter(|(_, member)| member.cost > 0);
    for (index, member) in waiting() {
        if hosts[index].as_ref().is_some_and(|host| !member.core().serve_here(host)) {
            member.core().count_refused();
            return Some(index);
        }
    }
    let queues = waiting()
        .flat_map(|(_, member)| iter::once(member.core()).chain(member.core().parent().map(|parent| &**parent)));
    let elsewhere: Vec<Runtime> = queues.flat_map(Core::hosts).collect();
    for (_, member) in waiting() {
        for host in &elsewhere {
            member.core().serve_from(host);
        }
    }
    None
}

impl<'a, const N: usize, T: From<[Grant<'a, L>; N]>, L: Handle> Future for Join<'a, N, T, L> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(poll_paid(cx, |cx| self.poll_until_deadline(cx)));
        if answer.is_err() {
            self.cancel();
        }
        self.end_wait_records(answer);
        let members = self.members.take().expect("polled after it was ready");
        Poll::Ready(answer.map(|()| members.map(Member::into_grant).into()))
    }
}

impl<const N: usize, T, L: Handle> Drop for Join<'_, N, T, L> {
    fn drop(&mut self) {
        self.cancel();
        if let Some(members) = &mut self.members {
            members.iter_mut().for_each(|member| member.wait_record.cancel(member.observed()));
        }
    }
}
