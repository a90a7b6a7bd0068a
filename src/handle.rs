//! The handles of a limiter and of a class: what callers clone, and make claims through.
//!
//! The public methods are in `limiter.rs` and `class.rs`. The modules of futures and grants depend on this module and not
//! on those two.

use crate::core::Core;
use crate::core::claim_scope::ClaimScope;
use crate::core::classes::ClassId;
use crate::error::TryAcquireError;
use crate::observe::{ClassLabel, GrantWord};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Weak};

/// A [`Limiter`] or a [`Class`]. The trait cannot be named outside of this crate.
pub trait Handle: Clone + fmt::Debug + Send + Sync + 'static {
    /// The state that the handles, claims and grants share.
    type Scope: ClaimScope + Send + Sync + ?Sized;

    #[doc(hidden)]
    fn scope(&self) -> &Self::Scope;

    #[doc(hidden)]
    fn into_scope(self) -> Arc<Self::Scope>;
}

/// A waiting rate limiter: one first-come-first-served queue in front of one token bucket.
///
/// Cloning is cheap: all clones share one queue and one bucket. See the [crate documentation](crate) for an overview.
#[derive(Clone)]
pub struct Limiter {
    core: Arc<Core>,
}

impl Limiter {
    pub(crate) fn from_core(core: Arc<Core>) -> Self {
        Self { core }
    }

    #[inline]
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn into_core(self) -> Arc<Core> {
        self.core
    }
}

impl Handle for Limiter {
    type Scope = Core;

    #[inline]
    fn scope(&self) -> &Core {
        self.core()
    }

    fn into_scope(self) -> Arc<Core> {
        self.into_core()
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
///   other classes, and is granted with the last one. If the claim leaves before that, the tokens that were set aside
///   for it go back, but never so many that other claims could exceed `burst + rate x window`.
/// * *Floors and ceilings.* See [`Share`](crate::Share). A class that is held back by its ceiling delays no class
///   outside of it.
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
    scope: Arc<Scope>,
}

impl Class {
    pub(crate) fn from_scope(scope: Scope) -> Self {
        Self { scope: Arc::new(scope) }
    }

    pub(crate) fn weak_scope(&self) -> Weak<Scope> {
        Arc::downgrade(&self.scope)
    }
}

impl Handle for Class {
    type Scope = Scope;

    #[inline]
    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn into_scope(self) -> Arc<Scope> {
        self.scope
    }
}

impl fmt::Debug for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.scope.fmt(f)
    }
}

/// A [`Limiter`] or a [`Class`], as one type: for [joint claims](crate::join) over both, and for collections of them.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{AnyLimiter, Limiter, Quota, Share, join};
/// let requests = Limiter::new(Quota::per_minute(60).burst(5))?;
/// let tokens = Limiter::builder().quota(Quota::per_minute(90_000)).classes().build()?;
/// let interactive = tokens.class("interactive", Share::weight(3))?;
///
/// let [requests, interactive] = [AnyLimiter::from(requests), AnyLimiter::from(interactive)];
/// let [_request, mut spent] = join([(&requests, 1), (&interactive, 1_500)]).await?;
/// spent.settle(1_117);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyLimiter {
    /// A limiter.
    Limiter(Limiter),
    /// A class of a limiter.
    Class(Class),
}

impl From<Limiter> for AnyLimiter {
    fn from(limiter: Limiter) -> Self {
        Self::Limiter(limiter)
    }
}

impl From<Class> for AnyLimiter {
    fn from(class: Class) -> Self {
        Self::Class(class)
    }
}

impl Handle for AnyLimiter {
    type Scope = dyn ClaimScope + Send + Sync;

    fn scope(&self) -> &Self::Scope {
        match self {
            Self::Limiter(limiter) => limiter.core(),
            Self::Class(class) => class.scope(),
        }
    }

    fn into_scope(self) -> Arc<Self::Scope> {
        match self {
            Self::Limiter(limiter) => limiter.into_core(),
            Self::Class(class) => class.into_scope(),
        }
    }
}

/// The state that the handles, the claims and the grants of a class share. Dropping it ends the class.
///
/// The field order, fixed by `repr(C)`, puts the fields that each wait reads next to the counts of the `Arc`, on one
/// cache line.
#[repr(C)]
pub struct Scope {
    pub(crate) limiter: Limiter,
    pub(crate) id: ClassId,
    pub(crate) name: Arc<str>,
    pub(crate) label: Arc<ClassLabel>,
    /// The parent class, which must exist as long as this one; `None` if the parent is the limiter itself.
    pub(crate) parent: Option<Class>,
}

/// As its limiter. The rest of a class is atomic, or is never changed once it is set.
impl UnwindSafe for Scope {}
impl RefUnwindSafe for Scope {}

impl ClaimScope for Scope {
    #[inline]
    fn core(&self) -> &Core {
        self.limiter.core()
    }

    #[inline]
    fn class(&self) -> ClassId {
        self.id
    }

    #[inline]
    fn claim_fast(&self, _cost: u64) -> Option<GrantWord> {
        None
    }

    #[inline]
    fn label(&self) -> Option<&ClassLabel> {
        Some(&self.label)
    }

    #[inline]
    fn try_acquire(&self, cost: u64) -> Result<GrantWord, TryAcquireError> {
        self.core().try_acquire_in_class(self.id, &self.label, cost)
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Class").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.core().free_class(self.id);
    }
}
