//! Through which limits a request goes: its own first, then that of all.
//!
//! Its own first, so that whoever floods stands in a line of its own and takes nothing from the others. A request that gets
//! no further gives back what it took.

use std::future::Future;
use std::hash::RandomState;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use futures::poll;
use tokio::time::Instant;
use tollgate::http::{Advertise, RateLimits, Terms, View};
use tollgate::tower::{Gate, Patience, Refused};
use tollgate::{Bound, ConsumeError, Denied, KeyedGrant, OwnedGrant};

use super::books::Fate;
use super::caller::Caller;
use super::who::Who;

/// A request that comes to the door.
pub(crate) struct Asked {
    pub(crate) request: Request<Body>,
    pub(crate) claim: Arc<Claim>,
}

/// What a request asks for.
pub(crate) struct Claim {
    pub(crate) caller: Arc<Caller>,
    pub(crate) who: Who,
    pub(crate) cost: u64,
    /// How long it may stand in both lines together.
    pub(crate) allowed: Duration,
    /// Which limit refused it.
    pub(crate) refused: OnceLock<Fate>,
}

/// One's own tokens in flight, where each key has a cap on them, and those of all.
pub(crate) type Pass = (Option<Landing>, OwnedGrant);

impl Claim {
    async fn admit(self: Arc<Self>) -> Result<Pass, Refused> {
        let Self { caller, who, cost, allowed, .. } = &*self;
        let limits = &*caller.limits;
        let mut own = pin!(limits.each.consume(who, *cost).within(*allowed));
        let (own, left) = match poll!(own.as_mut()) {
            Poll::Ready(own) => (own, *allowed),
            // Only who waits looks at the clock.
            Poll::Pending => {
                let came = Instant::now();
                (own.await, allowed.saturating_sub(came.elapsed()))
            }
        };
        let own = own.map_err(|refused| self.refuse(Fate::RefusedEach, its_own_doing(refused)))?;
        let own = Unused(Some(own));
        let all = limits.all.clone().consume_owned(*cost).within(left).await;
        let all = all.map_err(|refused| self.refuse(Fate::RefusedAll, refused.into()))?;
        caller.books.asked(who, true);
        // Without a cap nothing is in flight, and nothing has to land.
        own.used().forget();
        Ok((limits.each_is_capped.then(|| Landing(Arc::clone(&self))), all))
    }

    fn refuse(&self, fate: Fate, refused: Refused) -> Refused {
        self.caller.books.asked(&self.who, false);
        self.refused.get_or_init(|| fate);
        refused
    }
}

/// A line that is full or held up is no business of a client's, and answered 503; its own is, and answered 429.
fn its_own_doing(refused: ConsumeError) -> Refused {
    match refused {
        ConsumeError::LineFull { .. } | ConsumeError::TimedOut { .. } => Denied::new(None, 0, Bound::Line).into(),
        refused => refused.into(),
    }
}

/// Tokens of one's own with which nothing was done yet.
struct Unused<'a>(Option<KeyedGrant<'a, Who, RandomState>>);

impl<'a> Unused<'a> {
    fn used(mut self) -> KeyedGrant<'a, Who, RandomState> {
        self.0.take().expect("it was made with it")
    }
}

impl Drop for Unused<'_> {
    fn drop(&mut self) {
        if let Some(grant) = &mut self.0 {
            grant.settle(0);
        }
    }
}

/// Releases what a claim was granted of its own limit and forgot, once that has landed.
pub(crate) struct Landing(Arc<Claim>);

impl Drop for Landing {
    fn drop(&mut self) {
        let Claim { caller, who, cost, .. } = &*self.0;
        let released = caller.limits.each.release(who, *cost);
        debug_assert_eq!(released, Ok(()), "it was forgotten, once");
    }
}

/// What requests go through. They bring along all it has to know.
#[derive(Clone)]
pub(crate) struct Door;

impl Gate<Asked> for Door {
    type Pass = Pass;
    type Admission = Pin<Box<dyn Future<Output = Result<Pass, Refused>> + Send>>;

    fn admit(&self, asked: &Asked, _: Patience) -> Self::Admission {
        Box::pin(Arc::clone(&asked.claim).admit())
    }
}

impl Advertise<Asked> for Door {
    type View = Standing;

    fn admit_in_view(&self, asked: &Asked, patience: Patience) -> (Self::Admission, Standing) {
        (self.admit(asked, patience), Standing(Arc::clone(&asked.claim)))
    }
}

/// Where one who asks stands: what the response's fields say.
pub(crate) struct Standing(Arc<Claim>);

impl View for Standing {
    /// How much all others ask for concerns nobody, unless it is why.
    fn look(&self, terms: &Terms) -> RateLimits {
        let Claim { caller, who, refused, .. } = &*self.0;
        let mut told = RateLimits::of_key(&caller.limits.each, who, terms);
        if refused.get() == Some(&Fate::RefusedAll) {
            let all = RateLimits::of(&caller.limits.all.snapshot(), &Terms::default().name("all"));
            told.policies.extend(all.policies);
            told.limits.extend(all.limits);
        }
        told
    }
}
