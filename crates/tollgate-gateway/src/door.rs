//! Through which limits a request goes: its own first, then that of all.
//!
//! Its own first, so that whoever floods stands in a line of its own and takes nothing from the others. A request that gets
//! no further gives back what it took.

use std::hash::RandomState;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::poll;
use tokio::time::Instant;
use tollgate::Refused;
use tollgate::{Bound, ConsumeError, Denied, KeyedGrant, OwnedGrant};

use super::books::Fate;
use super::caller::Caller;
use super::who::Who;

/// What a request asks for.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) who: Who,
    pub(crate) cost: u64,
    /// How long it may stand in both lines together.
    pub(crate) allowed: Duration,
}

/// One's own tokens in flight, where each key has a cap on them, and those of all.
pub(crate) type Pass = (Option<Landing>, OwnedGrant);

/// It was turned away: by which limit, and why.
#[derive(Debug)]
pub(crate) struct Turned {
    pub(crate) by: Fate,
    pub(crate) why: Refused,
}

impl Claim {
    /// Waits in both lines. Who is dropped meanwhile leaves them, and takes nothing along.
    pub(crate) async fn admit(&self, caller: &Arc<Caller>) -> Result<Pass, Turned> {
        let passed = self.pass(caller).await;
        caller.books.asked(&self.who, passed.is_ok());
        passed
    }

    async fn pass(&self, caller: &Arc<Caller>) -> Result<Pass, Turned> {
        let Self { who, cost, allowed } = self;
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
        let own = own.map_err(|why| Turned { by: Fate::RefusedEach, why: its_own_doing(why) })?;
        let own = Unused(Some(own));
        let all = limits.all.clone().consume_owned(*cost).within(left).await;
        let all = all.map_err(|why| Turned { by: Fate::RefusedAll, why: why.into() })?;
        // Without a cap nothing of it is in flight, and nothing has to land.
        own.used().forget();
        let landing = || Landing { caller: Arc::clone(caller), who: *who, cost: *cost };
        Ok((limits.each_is_capped.then(landing), all))
    }
}

/// A line that is full or held up is no business of a client's, and answered 503; its own is, and answered 429.
fn its_own_doing(refused: ConsumeError) -> Refused {
    match refused {
        ConsumeError::QueueFull { .. } | ConsumeError::TimedOut { .. } => Denied::new(None, 0, Bound::Queue).into(),
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

/// Releases tokens of one's own, whose grant was forgotten, once they have landed.
pub(crate) struct Landing {
    caller: Arc<Caller>,
    who: Who,
    cost: u64,
}

impl Drop for Landing {
    fn drop(&mut self) {
        let released = self.caller.limits.each.release(&self.who, self.cost);
        debug_assert_eq!(released, Ok(()), "they were forgotten, once");
    }
}
