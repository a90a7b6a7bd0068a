//! Classes of a limiter: weighted, nested shares of its tokens, each with a queue of its own.
//!
//! | file | holds |
//! |---|---|
//! | `class.rs` | the public methods of a class |
//! | `share.rs` | weight, floor and ceiling, as configured |
//! | `snapshot.rs` | the state of a class at one instant |

mod share;
mod snapshot;

pub use share::Share;
pub use snapshot::ClassSnapshot;

use crate::blocking;
use crate::consume::{Consume, ConsumeOwned};
use crate::core::claim_scope::ClaimScope;
use crate::core::classes::{ClassId, ROOT};
use crate::deadline::Allowed;
use crate::error::{ConfigError, ConsumeError, TryAcquireError};
use crate::grant::{Grant, OwnedGrant};
use crate::handle::{Class, Handle, Limiter, Scope};
use crate::observe::ClassLabel;
use crate::wait::Wait;
use std::sync::Arc;
use std::time::Duration;

impl Class {
    fn add(
        limiter: &Limiter,
        id: ClassId,
        parent: Option<Self>,
        name: Arc<str>,
        share: Share,
    ) -> Result<Self, ConfigError> {
        let label = Arc::new(ClassLabel::new(parent.as_ref().map(|parent| &*parent.scope().label), &name));
        let id = limiter.core().add_class(id, Arc::clone(&name), &share.plan, &label)?;
        let class = Self::from_scope(Scope { limiter: limiter.clone(), id, name, label, parent });
        limiter.core().set_scope(id, class.weak_scope());
        Ok(class)
    }

    /// Makes a class in this class, which shares what this class receives. Claims made on this class itself then share
    /// it too, with a weight of 1.
    ///
    /// # Errors
    ///
    /// The same as [`Limiter::class`]. Also [`FloorWithClasses`](ConfigError::FloorWithClasses) if this class has a
    /// floor, and [`ClassRemoved`](ConfigError::ClassRemoved) if it was removed.
    pub fn class(&self, name: impl AsRef<str>, share: Share) -> Result<Self, ConfigError> {
        Self::add(&self.scope().limiter, self.scope().id, Some(self.clone()), name.as_ref().into(), share)
    }

    /// Returns the name of the class.
    pub fn name(&self) -> &str {
        &self.scope().name
    }

    /// Returns the limiter of the class: what applies to all its classes, such as quotas, pauses and the in-flight cap, is
    /// set there.
    pub fn limiter(&self) -> &Limiter {
        &self.scope().limiter
    }

    /// Returns the class that this one is in; `None` if the limiter itself is its parent.
    pub fn parent(&self) -> Option<&Self> {
        self.scope().parent.as_ref()
    }

    /// Changes weight, floor, ceiling and `max_waiting` of the class from now on, all at once: no claim is granted by a
    /// part of the change.
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
        self.scope().core().set_share(self.scope().id, &share.plan)
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
    /// The future can be dropped at any time; see [`Consume`]. If a claim leaves between two installments, the tokens
    /// that were set aside for it go back to the limiter, as far as the quotas allow.
    #[inline]
    pub fn consume(&self, cost: u64) -> Consume<'_, Self> {
        Consume::new(self.scope(), cost)
    }

    /// Waits like [`consume`](Self::consume), and returns no grant: for a limiter without an in-flight cap, where a
    /// grant holds nothing; see [`Limiter::wait`].
    ///
    /// # Errors
    ///
    /// The same as [`consume`](Self::consume), and [`MustHold`](ConsumeError::MustHold), at once and always, if the
    /// limiter has an in-flight cap.
    ///
    /// # Cancel safety
    ///
    /// The same as [`consume`](Self::consume).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Quota, Share};
    /// let limiter = Limiter::builder().quota(Quota::per_second(1_000).burst(5)).classes().build()?;
    /// let batch = limiter.class("batch", Share::weight(1))?;
    /// for _ in 0..10 {
    ///     batch.wait(1).within(Duration::from_secs(1)).await?; // 5 at once, then one each millisecond
    /// }
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn wait(&self, cost: u64) -> Wait<Consume<'_, Self>> {
        Wait::new(self.consume(cost), self.scope().core().capped)
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
    pub fn consume_owned(self, cost: u64) -> ConsumeOwned<Self> {
        ConsumeOwned::new(self.into_scope(), cost)
    }

    /// Blocks the current thread until `cost` tokens are granted; see [`Limiter::blocking_consume`].
    ///
    /// # Errors
    ///
    /// The same as [`consume`](Self::consume), except [`NoRuntime`](ConsumeError::NoRuntime), which it never returns.
    pub fn blocking_consume(&self, cost: u64) -> Result<Grant<'_, Self>, ConsumeError> {
        blocking::consume(self.scope(), cost, Allowed::ANY, || ()).map(Grant::new)
    }

    /// Waits like [`blocking_consume`](Self::blocking_consume), for at most `allowed`; see
    /// [`Limiter::blocking_consume_within`].
    ///
    /// # Errors
    ///
    /// The same as [`blocking_consume`](Self::blocking_consume), [`TooLate`](ConsumeError::TooLate) and
    /// [`TimedOut`](ConsumeError::TimedOut).
    pub fn blocking_consume_within(&self, cost: u64, allowed: Duration) -> Result<Grant<'_, Self>, ConsumeError> {
        blocking::consume(self.scope(), cost, Allowed::at_most(allowed), || ()).map(Grant::new)
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
    pub fn try_acquire(&self, cost: u64) -> Result<Grant<'_, Self>, TryAcquireError> {
        Grant::acquire(self.scope(), cost)
    }

    /// Like [`try_acquire`](Self::try_acquire), with a grant that owns the class: for adapters and spawned tasks.
    ///
    /// # Errors
    ///
    /// The same as [`try_acquire`](Self::try_acquire).
    pub fn try_acquire_owned(self, cost: u64) -> Result<OwnedGrant<Self>, TryAcquireError> {
        OwnedGrant::acquire(self.into_scope(), cost)
    }

    /// Returns how long a [`consume`](Self::consume) of `cost` made now would wait if no caller arrived, left or
    /// released tokens from now on. It ignores the in-flight cap, as [`Limiter::estimate`] does.
    ///
    /// It is a forecast, and neither an upper nor a lower bound: later claims of other classes can delay this one, and
    /// claims that leave can hasten it. `None` for the same reasons as [`Limiter::estimate`].
    ///
    /// The forecast is exact if the claim is granted within about a thousand installments of all classes. The rest of a
    /// longer wait is estimated from the shares of the classes in which claims wait then. The running time grows with
    /// the number of classes.
    pub fn estimate(&self, cost: u64) -> Option<Duration> {
        let class = self.scope().id;
        self.scope().core().look_at(|state, rovers, sample| state.estimate(rovers, class, cost, sample.now))
    }

    /// Returns how many tokens [`try_acquire`](Self::try_acquire) could take now: never more than the ceilings have
    /// left.
    ///
    /// Returns 0 while a claim waits that no ceiling holds back, or that waits below a ceiling that this class is also
    /// below. In the second case `try_acquire` can pass, if it is the turn of this class.
    pub fn available(&self) -> u64 {
        let class = self.scope().id;
        self.scope().core().look_at(|state, rovers, _| state.available_in(rovers, class))
    }

    /// Returns the state of the class.
    pub fn snapshot(&self) -> ClassSnapshot {
        let class = self.scope().id;
        self.scope().core().look_at(|state, _, _| ClassSnapshot::of(state, class))
    }

    /// Returns true once the class was removed or its limiter was closed.
    pub fn is_closed(&self) -> bool {
        let class = self.scope().id;
        self.scope().core().look_at(|state, _, _| state.is_closed(class))
    }

    /// Removes the class and the classes in it. Their waiters and later callers get `Closed`. Grants stay valid. Until this
    /// returns, other threads can still make claims in a class that has classes in it.
    ///
    /// A class of the same name and parent that is made afterwards takes over the state of this one: how far it was
    /// served ahead of its siblings, what its ceiling has left, and when its floor is due again. Debts that this class
    /// has not paid stay with it, and a ceiling that was full is full again: a program that makes classes anew can exceed a
    /// ceiling by a burst each time. The limiter's own quotas hold whatever classes come and go.
    pub fn remove(&self) {
        self.scope().core().remove_class(self.scope().id);
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
    /// * [`DistributedShare`](ConfigError::DistributedShare), [`TooManyClasses`](ConfigError::TooManyClasses): a
    ///   distributed limiter has at most 64 classes, without floors and ceilings.
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
    pub fn class(&self, name: impl AsRef<str>, share: Share) -> Result<Class, ConfigError> {
        Class::add(self, ROOT, None, name.as_ref().into(), share)
    }
}
