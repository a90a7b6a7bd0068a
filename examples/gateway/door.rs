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
use tollgate::{Bound, ConsumeError, Denied, OwnedGrant, OwnedKeyedGrant};

use super::books::{Books, Fate};
use super::limits::Limits;
use super::who::Who;

/// A request that comes to the door.
pub(crate) struct Asked {
    pub(crate) request: Request<Body>,
    pub(crate) claim: Arc<Claim>,
}

/// What a request asks for.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) who: Who,
    pub(crate) cost: u64,
    /// How long it may stand in both lines together.
    pub(crate) allowed: Duration,
    /// Which limit refused it.
    pub(crate) refused: OnceLock<Fate>,
}

/// Two threads that count clones of one thing wait for each other: so each connection has a door of its own.
#[derive(Clone)]
pub(crate) struct Door(Arc<Post>);

struct Post {
    limits: Arc<Limits>,
    books: Arc<Books>,
}

/// Tokens in flight, one's own and those of all.
pub(crate) type Pass = (OwnedKeyedGrant<Who, RandomState>, OwnedGrant);

impl Door {
    pub(crate) fn new(limits: Arc<Limits>, books: Arc<Books>) -> Self {
        Self(Arc::new(Post { limits, books }))
    }

    async fn admit_claim(self, claim: Arc<Claim>) -> Result<Pass, Refused> {
        let Post { limits, books } = &*self.0;
        let Claim { who, cost, allowed, refused } = &*claim;
        let note = |fate, is_admitted| {
            books.asked(who, is_admitted);
            if !is_admitted {
                refused.get_or_init(|| fate);
            }
        };
        let mut own = pin!(limits.each.clone().consume_owned(who.clone(), *cost).within(*allowed));
        let (own, left) = match poll!(own.as_mut()) {
            Poll::Ready(own) => (own, *allowed),
            // Only who waits looks at the clock.
            Poll::Pending => {
                let came = Instant::now();
                (own.await, allowed.saturating_sub(came.elapsed()))
            }
        };
        let own = Unused(Some(own.inspect_err(|_| note(Fate::RefusedEach, false)).map_err(its_own_doing)?));
        let all = limits.all.clone().consume_owned(*cost).within(left).await;
        note(Fate::RefusedAll, all.is_ok());
        let all = all?;
        Ok((own.used(), all))
    }
}

/// A line that is full or held up is no business of a client's, and answered 503; its own is, and answered 429.
fn its_own_doing(refused: ConsumeError) -> Refused {
    match refused {
        ConsumeError::LineFull { .. } | ConsumeError::TimedOut { .. } => Denied::new(None, 0, Bound::Line).into(),
        refused => refused.into(),
    }
}

impl Gate<Asked> for Door {
    type Pass = Pass;
    type Admission = Pin<Box<dyn Future<Output = Result<Pass, Refused>> + Send>>;

    fn admit(&self, asked: &Asked, _: Patience) -> Self::Admission {
        Box::pin(self.clone().admit_claim(Arc::clone(&asked.claim)))
    }
}

impl Advertise<Asked> for Door {
    type View = Standing;

    fn admit_in_view(&self, asked: &Asked, patience: Patience) -> (Self::Admission, Standing) {
        let standing = Standing { door: self.clone(), claim: Arc::clone(&asked.claim) };
        (self.admit(asked, patience), standing)
    }
}

/// Where one who asks stands: what the response's fields say.
pub(crate) struct Standing {
    door: Door,
    claim: Arc<Claim>,
}

impl View for Standing {
    /// How much all others ask for concerns nobody, unless it is why.
    fn look(&self, terms: &Terms) -> RateLimits {
        let Post { limits, .. } = &*self.door.0;
        let mut told = RateLimits::of_key(&limits.each, &self.claim.who, terms);
        if self.claim.refused.get() == Some(&Fate::RefusedAll) {
            let all = RateLimits::of(&limits.all.snapshot(), &Terms::default().name("all"));
            told.policies.extend(all.policies);
            told.limits.extend(all.limits);
        }
        told
    }
}

/// Tokens of one's own with which nothing was done yet.
struct Unused(Option<OwnedKeyedGrant<Who, RandomState>>);

impl Unused {
    fn used(mut self) -> OwnedKeyedGrant<Who, RandomState> {
        self.0.take().expect("it was made with it")
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        if let Some(grant) = &mut self.0 {
            grant.settle(0);
        }
    }
}
