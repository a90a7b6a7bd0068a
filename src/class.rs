//! Classes of a limiter: weighted, nested shares of its tokens, each with a queue of its own.

use crate::Quota;
use crate::blocking;
use crate::claim::Claim;
use crate::core::Core;
use crate::core::classes::{ClassFlags, ClassId, ROOT};
use crate::core::limiter_ref::LimiterRef;
use crate::core::state::{SharePlan, State};
use crate::deadline::Allowed;
use crate::error::{ConfigError, ConsumeError, TryAcquireError};
use crate::grant::Growth;
use crate::limiter::Limiter;
use crate::permit::Permit;
use pin_project::pin_project;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The share of a [`Class`]: a weight, and optionally a floor and a ceiling. It is checked when a class is made with it
/// or changed to it.
///
/// | part | meaning |
/// |---|---|
/// | weight | Backlogged classes with the same parent receive tokens in proportion to their weights. |
/// | floor | The least rate of the class while claims wait in it, whatever its weight. The class gets its floor or its share, whichever is more. Pauses, the in-flight cap and ceilings come first. |
/// | ceiling | The most that the class may receive: a quota of its own, with a burst. Each grant of the class, and of the classes in it, takes from it too. |
///
/// A weight sets a share and no latency: a class that is idle most of the time waits for up to one installment of each
/// sibling. To bound the latency of a class, give it a floor.
///
/// # Examples
///
/// ```
/// use tollgate::{Quota, Share};
/// let interactive = Share::weight(3).floor(Quota::per_second(200));
/// let batch = Share::weight(1).ceiling(Quota::per_second(1_000).burst(50));
/// # let _ = (interactive, batch);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a share does nothing until a class is made with it"]
pub struct Share {
    plan: SharePlan,
}

impl Share {
    /// A share of this weight, between 1 and 1,000,000, without floor and ceiling.
    pub const fn weight(weight: u64) -> Self {
        Self { plan: SharePlan { weight, floor: None, ceiling: None, max_waiting: usize::MAX } }
    }

    /// Reserves a rate: while claims wait in the class, it receives at least this. The burst of `quota` is not used.
    ///
    /// All floors together must not exceed the rate of the slowest quota of the limiter. If
    /// [`set_quota`](Limiter::set_quota) lowers that rate below their sum, all floors are scaled down for as long as
    /// this lasts.
    pub const fn floor(mut self, quota: Quota) -> Self {
        self.plan.floor = Some(quota);
        self
    }

    /// Limits the class, and all classes in it together, to a quota.
    pub const fn ceiling(mut self, quota: Quota) -> Self {
        self.plan.ceiling = Some(quota);
        self
    }

    /// Refuses further waiters once this many callers are waiting in the class itself. Callers in the classes in it do
    /// not count. The limiter's own [`max_waiting`](crate::Builder::max_waiting) applies too.
    pub const fn max_waiting(mut self, callers: usize) -> Self {
        self.plan.max_waiting = callers;
        self
    }
}

/// What the handles of a class share. The class ends with it.
struct Inner {
    core: Arc<Core>,
    id: ClassId,
    flags: Arc<ClassFlags>,
    name: Arc<str>,
    /// Keeps the class around this one alive.
    parent: Option<Class>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.core.free_class(self.id);
    }
}

/// A class of waiters of a [`Limiter`] that was built with [`classes`](crate::Builder::classes).
///
/// The classes of a limiter form a tree. Each class has a first-come-first-served queue of its own. While claims wait
/// in several classes, these share the tokens in proportion to their weights, token by token: a batch job with 10,000
/// requests in its queue takes its share and no more. A class gets everything, up to its ceiling, while no claims
/// wait in other classes. A class gets no credit for the time in which it was idle.
///
/// Cloning is cheap: all clones are the same class. The class ends when the last clone, the last future and the last
/// grant of it and of the classes in it are dropped, or with [`remove`](Self::remove).
///
/// # Guarantees
///
/// All guarantees of the limiter hold for all classes together: its quotas, its in-flight cap, no token lost. In
/// addition:
///
/// * *Shares.* Take two classes with the same parent, and without floors or ceilings on or below them, and any interval
///   in which claims wait in both. The first class has the weight `v` and is served `x` tokens in installments of at
///   most `a`; the second has the weight `w` and is served `y` tokens in installments of at most `b`. Then `x / v` and
///   `y / w` differ by at most `a / v + b / w`. The largest installment is the largest claim, or the smallest burst of
///   the limiter's quotas if that is less.
/// * *Installments.* A claim that costs more than a burst is paid in installments of at most a burst, in turn with the
///   other classes, and is granted with the last one. If it leaves before that, what was set aside for it goes back as
///   far as the quotas allow: never so far that other claims could exceed `burst + rate x window`.
/// * *Floors and ceilings.* See [`Share`]. A class that its ceiling holds back holds up no class outside of it.
///
/// The scheduler is hierarchical start-time fair queueing (Goyal, Vin and Cheng, 1996) with reservations and limits.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Limiter, Quota, Share};
/// let limiter = Limiter::builder().quota(Quota::per_second(5_000).burst(100)).classes().build()?;
/// let interactive = limiter.class("interactive", Share::weight(3).floor(Quota::per_second(200)))?;
/// let batch = limiter.class("batch", Share::weight(1).ceiling(Quota::per_second(1_000)))?;
/// let tenant = batch.class("tenant-7", Share::weight(2))?; // classes nest
/// let _grant = interactive.consume(1).await?;
/// let mut grant = tenant.consume(50).await?;
/// grant.settle(40);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Class {
    inner: Arc<Inner>,
}

impl Class {
    fn add(
        core: &Arc<Core>,
        id: ClassId,
        parent: Option<Self>,
        name: Arc<str>,
        share: Share,
    ) -> Result<Self, ConfigError> {
        let (id, flags) = core.add_class(id, Arc::clone(&name), &share.plan)?;
        Ok(Self { inner: Arc::new(Inner { core: Arc::clone(core), id, flags, name, parent }) })
    }

    /// Makes a class in this class, which shares what this class receives. Claims made on this class itself then share
    /// it too, with a weight of 1.
    ///
    /// # Errors
    ///
    /// The same as [`Limiter::class`]. Also [`FloorWithClasses`](ConfigError::FloorWithClasses) if this class has a
    /// floor, and [`ClassRemoved`](ConfigError::ClassRemoved) if it was removed.
    pub fn class(&self, name: impl Into<Arc<str>>, share: Share) -> Result<Self, ConfigError> {
        Self::add(&self.inner.core, self.inner.id, Some(self.clone()), name.into(), share)
    }

    /// Returns the name of the class.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the class that this one is in; `None` if the limiter itself is its parent.
    pub fn parent(&self) -> Option<&Self> {
        self.inner.parent.as_ref()
    }

    /// Changes weight, floor, ceiling and `max_waiting` of the class from now on.
    ///
    /// The new weight applies from the next installment of the class on. A changed ceiling keeps its level, up to
    /// its new burst. A floor or a ceiling that is taken off and set again goes on where it was: the initial level of the
    /// quota counts only for the first ceiling of the class.
    ///
    /// # Errors
    ///
    /// The same as [`Limiter::class`] for an invalid part of the share. Whether the floors can be kept is checked only
    /// if the share has a higher floor or a stricter ceiling than before. Also
    /// [`FloorWithClasses`](ConfigError::FloorWithClasses) if there are classes in this one, and
    /// [`ClassRemoved`](ConfigError::ClassRemoved) if it was removed. Nothing has changed then.
    pub fn set_share(&self, share: Share) -> Result<(), ConfigError> {
        self.inner.core.set_share(self.inner.id, &share.plan)
    }

    /// Waits in the queue of the class until `cost` tokens are granted; see [`Limiter::consume`].
    ///
    /// # Errors
    ///
    /// The same as [`Limiter::consume`]. [`Closed`](ConsumeError::Closed) also if the class was removed, and
    /// [`QueueFull`](ConsumeError::QueueFull) also if [`Share::max_waiting`] callers wait in the class.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time; see [`ClassConsume`].
    #[inline]
    pub fn consume(&self, cost: u64) -> ClassConsume<'_> {
        ClassConsume { claim: Claim::new(InClass(&self.inner), cost) }
    }

    /// Waits like [`consume`](Self::consume), with a future and a grant that own the class, for spawned tasks.
    ///
    /// # Errors
    ///
    /// The same as [`consume`](Self::consume).
    ///
    /// # Cancel safety
    ///
    /// The same as [`consume`](Self::consume).
    pub fn consume_owned(self, cost: u64) -> ClassConsumeOwned {
        ClassConsumeOwned { claim: Claim::new(InClass(self.inner), cost) }
    }

    /// Blocks the current thread until `cost` tokens are granted; see [`Limiter::blocking_consume`].
    ///
    /// # Errors
    ///
    /// The same as [`consume`](Self::consume), except [`NoRuntime`](ConsumeError::NoRuntime), which it never returns.
    pub fn blocking_consume(&self, cost: u64) -> Result<ClassGrant<'_>, ConsumeError> {
        blocking::consume(InClass(&*self.inner), cost, Allowed::ANY).map(ClassGrant)
    }

    /// Takes `cost` tokens if they are there, no ceiling holds them back, and no claim is ahead of this one. Claims that
    /// a ceiling holds back are ahead only of claims under the same ceiling.
    ///
    /// While claims wait, [`retry_after`](crate::Denied::retry_after) is the time in which the limiter could serve all
    /// claims that wait now, and this one.
    ///
    /// # Errors
    ///
    /// The same as [`Limiter::try_acquire`]. [`TooLarge`](TryAcquireError::TooLarge) also if the cost exceeds the burst
    /// of a ceiling, and [`Closed`](TryAcquireError::Closed) also if the class was removed.
    #[inline]
    pub fn try_acquire(&self, cost: u64) -> Result<ClassGrant<'_>, TryAcquireError> {
        let inner = &*self.inner;
        let remaining = inner.core.try_acquire_in_class(inner.id, &inner.flags, cost)?;
        Ok(ClassGrant(Permit::new(InClass(inner), cost, remaining)))
    }

    /// Returns how long a [`consume`](Self::consume) of `cost` made now would wait, if from now on no caller arrived,
    /// left or released anything. It ignores the in-flight cap, as [`Limiter::estimate`] does.
    ///
    /// It is a forecast, and neither an upper nor a lower bound: later claims of other classes can delay this one, and
    /// claims that leave can hasten it. `None` for the same reasons as [`Limiter::estimate`].
    ///
    /// The forecast is exact if the claim is granted within about a thousand installments of all classes. The rest of a
    /// longer wait is estimated from the shares of the classes in which claims wait then. The running time grows with
    /// the number of classes.
    pub fn estimate(&self, cost: u64) -> Option<Duration> {
        let class = self.inner.id;
        self.inner.core.look_at(|state, rovers, sample| state.estimate_in_class(rovers, class, cost, sample.now))
    }

    /// Returns how many tokens [`try_acquire`](Self::try_acquire) could take now: at most what the ceilings have.
    ///
    /// Returns 0 while any claim of the limiter waits, although `try_acquire` can pass while ceilings hold back all
    /// claims that wait.
    pub fn available(&self) -> u64 {
        let class = self.inner.id;
        self.inner.core.look_at(|state, rovers, _| state.available_to_class(rovers, class))
    }

    /// Returns the state of the class.
    pub fn snapshot(&self) -> ClassSnapshot {
        let class = self.inner.id;
        self.inner.core.look_at(|state, _, _| ClassSnapshot::of(state, class))
    }

    /// Removes the class and the classes in it. Their waiters and later callers get `Closed`. Grants stay valid.
    ///
    /// A class of the same name and parent that is made afterwards takes over the state of this one: how far it was
    /// served ahead of its siblings, what its ceiling has left, and when its floor is due again. Debts that this class
    /// has not paid stay with it, and a ceiling that was full is full again: a program that makes classes anew can exceed a
    /// ceiling by a burst each time. The limiter's own quotas hold whatever classes come and go.
    pub fn remove(&self) {
        self.inner.core.remove_class(self.inner.id);
    }
}

impl fmt::Debug for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Class").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

impl Limiter {
    /// Makes a class of this limiter, which must have been built with [`classes`](crate::Builder::classes).
    ///
    /// # Errors
    ///
    /// * [`NoClasses`](ConfigError::NoClasses): the limiter was built without classes.
    /// * [`DuplicateClass`](ConfigError::DuplicateClass): there is a class of this name.
    /// * [`BadWeight`](ConfigError::BadWeight), [`ManualShare`](ConfigError::ManualShare),
    ///   [`BadShare`](ConfigError::BadShare): a part of the share is not valid.
    /// * [`FloorsAboveRate`](ConfigError::FloorsAboveRate), [`FloorsAboveCeiling`](ConfigError::FloorsAboveCeiling),
    ///   [`CeilingBelowBurst`](ConfigError::CeilingBelowBurst): the floors could not all be kept.
    /// * [`ClassTooDeep`](ConfigError::ClassTooDeep): classes nest 16 deep at most.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{ConfigError, Limiter, Quota, Share};
    /// # fn main() -> Result<(), ConfigError> {
    /// let limiter = Limiter::builder().quota(Quota::per_second(100)).classes().build()?;
    /// let class = limiter.class("nightly", Share::weight(1))?;
    /// assert_eq!(class.name(), "nightly");
    /// let refusal = limiter.class("greedy", Share::weight(0)).unwrap_err();
    /// assert!(matches!(refusal, ConfigError::BadWeight { weight: 0, .. }));
    /// # Ok(()) }
    /// ```
    pub fn class(&self, name: impl Into<Arc<str>>, share: Share) -> Result<Class, ConfigError> {
        Class::add(self.shared_core(), ROOT, None, name.into(), share)
    }
}

/// The state of a [`Class`] at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ClassSnapshot {
    /// The weight of the class.
    pub weight: u64,
    /// How many callers wait in the class itself.
    pub waiting_tasks: usize,
    /// How many tokens they ask for.
    pub waiting_tokens: u64,
    /// Tokens of the installments that the class itself was served. Those of claims that wait for further installments
    /// are included. Grants made at once, while no claim waits in the limiter and no ceiling is above the class, are not
    /// counted by class.
    pub served: u64,
    /// The part of `served` that was served after a wait because the floor of the class was due.
    pub served_by_floor: u64,
    /// True if claims wait in the class or in a class in it, and ceilings hold all of them back.
    pub is_held: bool,
    /// Tokens that the class's own ceiling has; negative after a debt, `None` without a ceiling.
    pub ceiling_level: Option<i64>,
}

impl ClassSnapshot {
    fn of(state: &mut State, class: ClassId) -> Self {
        let now = state.supply.synced();
        let Some(classes) = state.classes_mut() else { unreachable!("the class belongs to this limiter") };
        let (is_held, ceiling_level) = classes.scheduler.tree.view(class, now);
        let (entry, tree) = (classes.entry(class), &classes.scheduler.tree);
        Self {
            weight: tree.weight(class),
            waiting_tasks: entry.queue.len(),
            waiting_tokens: entry.queue.tokens(),
            served: entry.served,
            served_by_floor: entry.by_floor,
            is_held,
            ceiling_level,
        }
    }
}

/// How claims and grants hold a class.
struct InClass<I>(I);

impl<I: Deref<Target = Inner>> Deref for InClass<I> {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        &self.0.core
    }
}

impl<I: Clone> Clone for InClass<I> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<I> fmt::Debug for InClass<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InClass")
    }
}

impl<I: Deref<Target = Inner>> LimiterRef for InClass<I> {
    #[inline]
    fn class(&self) -> ClassId {
        self.0.id
    }

    #[inline]
    fn claim_fast(&self, cost: u64) -> Option<u64> {
        self.0.core.claim_in_class(&self.0.flags, cost)
    }
}

/// The future returned by [`Class::consume`].
///
/// # Cancel safety
///
/// The same as [`Consume`](crate::Consume). What was set aside for a claim that leaves between two installments goes
/// back to the limiter, as far as the quotas allow.
///
/// # Panics
///
/// The same as [`Consume`](crate::Consume).
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct ClassConsume<'a> {
    #[pin]
    claim: Claim<InClass<&'a Inner>>,
}

/// The future returned by [`Class::consume_owned`]: a [`ClassConsume`] that owns the class, for spawned tasks.
///
/// # Cancel safety
///
/// The same as [`ClassConsume`].
///
/// # Panics
///
/// The same as [`ClassConsume`].
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct ClassConsumeOwned {
    #[pin]
    claim: Claim<InClass<Arc<Inner>>>,
}

impl ClassConsume<'_> {
    /// Limits the wait to `allowed`; see [`Consume::within`](crate::Consume::within). Whether the wait would be longer is
    /// decided by [`Class::estimate`].
    pub fn within(self, allowed: Duration) -> Self {
        Self { claim: self.claim.within(allowed) }
    }
}

impl ClassConsumeOwned {
    /// Limits the wait to `allowed`; see [`ClassConsume::within`].
    pub fn within(self, allowed: Duration) -> Self {
        Self { claim: self.claim.within(allowed) }
    }
}

impl<'a> Future for ClassConsume<'a> {
    type Output = Result<ClassGrant<'a>, ConsumeError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll_paid(cx).map_ok(ClassGrant)
    }
}

impl Future for ClassConsumeOwned {
    type Output = Result<OwnedClassGrant, ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().claim.poll_paid(cx).map_ok(OwnedClassGrant)
    }
}

/// A [`Grant`](crate::Grant) made in a class. What [`settle`](Self::settle) charges above the grant is a debt of the
/// class.
#[must_use = "with an in-flight cap, dropping a grant releases it: bind it for as long as the work lasts"]
#[derive(Debug)]
pub struct ClassGrant<'a>(Permit<InClass<&'a Inner>>);

/// A [`ClassGrant`] that owns the class, for spawned tasks.
#[must_use = "with an in-flight cap, dropping a grant releases it: bind it for as long as the work lasts"]
#[derive(Debug)]
pub struct OwnedClassGrant(Permit<InClass<Arc<Inner>>>);

macro_rules! grant_methods {
    () => {
        /// Returns the cost of this grant in tokens: the latest value passed to [`settle`](Self::settle), if any.
        pub fn cost(&self) -> u64 {
            self.0.cost
        }

        /// Returns how many tokens the limiter had left after this grant; see [`Grant::remaining`](crate::Grant::remaining).
        pub fn remaining(&self) -> u64 {
            self.0.remaining()
        }

        /// Sets the real cost, known afterwards; see [`Grant::settle`](crate::Grant::settle).
        ///
        /// Less than before: the difference is refunded to the limiter's quotas, not to ceilings. More than before: the
        /// difference is a debt at the end of the queue of the class, which is paid in the turns of the class. If no
        /// claim waits in the limiter, it is charged at once and delays all later callers, as in a limiter without
        /// classes.
        ///
        /// # Panics
        ///
        /// Panics if the limiter's [clock](crate::Clock) panics. Nothing has changed then.
        pub fn settle(&mut self, actual: u64) {
            self.0.settle(actual);
        }

        /// Charges `tokens` more at once, as [`settle`](Self::settle) does; see [`Grant::grow`](crate::Grant::grow).
        ///
        /// # Panics
        ///
        /// The same as [`settle`](Self::settle).
        pub fn grow(&mut self, tokens: u64) {
            self.0.grow(tokens);
        }

        /// Waits in the queue of the class for `tokens` more, and adds them to this grant; see
        /// [`Grant::grow_within`](crate::Grant::grow_within).
        ///
        /// # Errors
        ///
        /// The same as [`Class::consume`]. The grant has then not grown.
        ///
        /// # Cancel safety
        ///
        /// The same as [`ClassConsume`]: a future that is dropped has not grown the grant.
        pub fn grow_within(&mut self, tokens: u64) -> ClassGrowWithin<'_> {
            ClassGrowWithin { growth: Growth::new(&mut self.0, |class| InClass(&*class.0), tokens) }
        }

        /// Consumes the grant without releasing its tokens; see [`Grant::forget`](crate::Grant::forget).
        pub fn forget(self) {
            self.0.forget();
        }
    };
}

impl ClassGrant<'_> {
    grant_methods!();
}

impl OwnedClassGrant {
    grant_methods!();
}

/// The future returned by [`ClassGrant::grow_within`].
///
/// # Cancel safety
///
/// The same as [`ClassConsume`].
///
/// # Panics
///
/// The same as [`ClassConsume`].
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[pin_project]
#[derive(Debug)]
pub struct ClassGrowWithin<'a> {
    #[pin]
    growth: Growth<'a, InClass<&'a Inner>>,
}

impl Future for ClassGrowWithin<'_> {
    type Output = Result<(), ConsumeError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().growth.poll(cx)
    }
}
