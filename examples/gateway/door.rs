//! Through which limits a request goes: its own first, then that of all.
//!
//! Its own first, so that whoever floods stands in a line of its own and takes nothing from the others. A request that gets
//! no further gives back what it took.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::Request;
use tokio::time::Instant;
use tollgate::http::{Advertise, RateLimits, Terms, View};
use tollgate::tower::{Gate, Patience, Refused};
use tollgate::{OwnedGrant, OwnedKeyedGrant};

use super::books::{Books, Fate};
use super::limits::Limits;
use super::who::Who;

/// What a request asks for. It is among its extensions when it comes to the door.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) who: Who,
    pub(crate) cost: u64,
    /// How long it may stand in both lines together.
    pub(crate) allowed: Duration,
    /// Which limit refused it.
    pub(crate) refused: Arc<OnceLock<Fate>>,
}

#[derive(Clone)]
pub(crate) struct Door(Arc<Post>);

struct Post {
    limits: Arc<Limits>,
    books: Arc<Books>,
}

impl Door {
    pub(crate) fn new(limits: Arc<Limits>, books: Arc<Books>) -> Self {
        Self(Arc::new(Post { limits, books }))
    }

    async fn admit_claim(self, claim: Claim) -> Result<OwnedGrant, Refused> {
        let Claim { who, cost, allowed, refused } = claim;
        let Post { limits, books } = &*self.0;
        let note = |fate, is_admitted| {
            books.asked(&who, is_admitted);
            if !is_admitted {
                refused.get_or_init(|| fate);
            }
        };
        let came = Instant::now();
        let own = limits.each.clone().consume_owned(who.clone(), cost).within(allowed).await;
        let mut own = Unused(Some(own.inspect_err(|_| note(Fate::RefusedEach, false))?));
        let left = allowed.saturating_sub(came.elapsed());
        let all = limits.all.clone().consume_owned(cost).within(left).await;
        note(Fate::RefusedAll, all.is_ok());
        let all = all?;
        own.0 = None;
        Ok(all)
    }
}

fn claim_of<B>(request: &Request<B>) -> Claim {
    request.extensions().get::<Claim>().expect("it was given one before it came to the door").clone()
}

impl<B> Gate<Request<B>> for Door {
    type Pass = OwnedGrant;
    type Admission = Pin<Box<dyn Future<Output = Result<OwnedGrant, Refused>> + Send>>;

    fn admit(&self, request: &Request<B>, _: Patience) -> Self::Admission {
        Box::pin(self.clone().admit_claim(claim_of(request)))
    }
}

impl<B> Advertise<Request<B>> for Door {
    type View = Standing;

    fn admit_in_view(&self, request: &Request<B>, _: Patience) -> (Self::Admission, Standing) {
        let claim = claim_of(request);
        let standing = Standing {
            limits: Arc::clone(&self.0.limits),
            who: claim.who.clone(),
            refused: Arc::clone(&claim.refused),
        };
        (Box::pin(self.clone().admit_claim(claim)), standing)
    }
}

/// Where one who asks stands: what the response's fields say.
pub(crate) struct Standing {
    limits: Arc<Limits>,
    who: Who,
    refused: Arc<OnceLock<Fate>>,
}

impl View for Standing {
    /// How much all others ask for concerns nobody, unless it is why.
    fn look(&self, terms: &Terms) -> RateLimits {
        let mut told = RateLimits::of_key(&self.limits.each, &self.who, terms);
        if self.refused.get() == Some(&Fate::RefusedAll) {
            let all = RateLimits::of(&self.limits.all.snapshot(), &Terms::default().name("all"));
            told.policies.extend(all.policies);
            told.limits.extend(all.limits);
        }
        told
    }
}

/// Tokens of one's own with which nothing was done yet.
struct Unused(Option<OwnedKeyedGrant<Who, std::hash::RandomState>>);

impl Drop for Unused {
    fn drop(&mut self) {
        if let Some(grant) = &mut self.0 {
            grant.settle(0);
        }
    }
}
