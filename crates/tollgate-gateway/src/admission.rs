//! Admission: a request waits for the limit of its own key first, then for the limit of all requests.
//!
//! The own limit comes first, so that a client that floods the gateway fills its own queue and takes nothing from the
//! others. The clients that wait for the limit of all share it (`shares.rs`). A request that the second limit refuses gives
//! back the tokens of the first.

use std::hash::RandomState;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::{FutureExt, poll};
use tokio::time::Instant;
use tollgate::Refused;
use tollgate::{Bound, ConsumeError, Denied, KeyedGrant, OwnedKeyedGrant};

use super::client::Client;
use super::connection::Connection;
use super::counters::Outcome;

/// A request to be admitted.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) client: Client,
    pub(crate) cost: u64,
    /// How long it may wait in both queues together.
    pub(crate) allowed: Duration,
    /// How many bytes of its body are read before.
    pub(crate) body_buffer: usize,
    /// The longest pause in its body.
    pub(crate) client_timeout: Duration,
}

/// The tokens in flight of a request: those of its key, if keys have a cap, and those of the limit of all.
pub(crate) type InFlight = (Option<InFlightOfKey>, OwnedKeyedGrant<Client>);

/// A refusal: the limit that refused, and the reason.
#[derive(Debug)]
pub(crate) struct Rejected {
    pub(crate) by: Outcome,
    pub(crate) why: Refused,
}

impl Claim {
    /// Refuses a request that would wait for too long in one of the queues, as far as their schedules tell, or that finds
    /// too many others. Takes no tokens.
    pub(crate) fn check_wait(&self, connection: &Connection) -> Result<(), Rejected> {
        let Self { client, cost, allowed, .. } = self;
        let limits = &*connection.limits;
        // In dry run this is the wait that there would be.
        let own = limits.each.of(client).estimate(client, *cost).filter(|_| !limits.config().keys.dry_run);
        too_late(own, *allowed).map_err(|why| {
            // The limiter counts the refusals of each client.
            if let Some(Ok(grant)) = limits.each.of(client).consume(client, *cost).within(*allowed).now_or_never() {
                drop(Unused(Some(grant)));
            }
            Rejected { by: Outcome::RefusedEach, why }
        })?;
        let all = limits.shares.check_full(client, *cost).map_err(Refused::from);
        let all = all.and_then(|()| too_late(limits.shares.estimate(client, *cost), *allowed));
        all.map_err(|why| Rejected { by: Outcome::RefusedAll, why })
    }

    /// Waits in both queues. If the future is dropped, the request leaves the queue and its tokens are given back. An
    /// unlisted client for which there is no space becomes the one that they share.
    pub(crate) async fn admit(&mut self, connection: &Arc<Connection>) -> Result<InFlight, Rejected> {
        let mut passed = self.pass(connection).await;
        let has_no_bucket = |rejected: &Rejected| {
            rejected.by == Outcome::RefusedEach
                && matches!(rejected.why, Refused::InLine(ConsumeError::TooManyKeys { .. }))
        };
        if passed.as_ref().is_err_and(has_no_bucket) {
            self.client = Client::Overflow;
            passed = self.pass(connection).await;
        }
        passed
    }

    async fn pass(&self, connection: &Arc<Connection>) -> Result<InFlight, Rejected> {
        let Self { client, cost, allowed, .. } = self;
        let limits = &*connection.limits;
        let mut own = pin!(limits.each.of(client).consume(client, *cost).within(*allowed));
        let (own, left) = match poll!(own.as_mut()) {
            Poll::Ready(own) => (own, *allowed),
            // Only a request that has to wait reads the clock.
            Poll::Pending => {
                let came = Instant::now();
                (own.await, allowed.saturating_sub(came.elapsed()))
            }
        };
        let own = own.map_err(|why| Rejected { by: Outcome::RefusedEach, why: its_own_doing(why) })?;
        let own = Unused(Some(own));
        let all = limits.shares.admit(client, *cost, left).await;
        let all = all.map_err(|why| Rejected { by: Outcome::RefusedAll, why: why.into() })?;
        // Without a cap the key's tokens are not counted in flight, so nothing has to be released.
        own.used().forget();
        let of_key = || InFlightOfKey { connection: Arc::clone(connection), client: *client, cost: *cost };
        Ok((limits.each.is_capped.then(of_key), all))
    }
}

/// An error if a wait is known to be too long.
fn too_late(estimate: Option<Duration>, allowed: Duration) -> Result<(), Refused> {
    match estimate.filter(|wait| *wait > allowed) {
        Some(wait) => Err(Denied::new(Some(wait.saturating_sub(allowed)), 0, Bound::Quota(0)).into()),
        None => Ok(()),
    }
}

/// The queue of its own key is full or held up: that is the client's own doing, and answered with 429. With the common
/// queue it would be 503.
fn its_own_doing(refused: ConsumeError) -> Refused {
    match refused {
        ConsumeError::QueueFull { .. } | ConsumeError::TimedOut { .. } => Denied::new(None, 0, Bound::Queue).into(),
        refused => refused.into(),
    }
}

/// Tokens of the request's own key that are not used yet. They are given back on drop.
struct Unused<'a>(Option<KeyedGrant<'a, Client, RandomState>>);

impl<'a> Unused<'a> {
    fn used(mut self) -> KeyedGrant<'a, Client, RandomState> {
        self.0.take().expect("the grant is taken only once")
    }
}

impl Drop for Unused<'_> {
    fn drop(&mut self) {
        if let Some(grant) = &mut self.0 {
            grant.settle(0);
        }
    }
}

/// Releases the key's tokens when they are no longer in flight. Their grant was forgotten.
pub(crate) struct InFlightOfKey {
    connection: Arc<Connection>,
    client: Client,
    cost: u64,
}

impl Drop for InFlightOfKey {
    fn drop(&mut self) {
        let released = self.connection.limits.each.of(&self.client).release(&self.client, self.cost);
        debug_assert_eq!(released, Ok(()), "the grant was forgotten, and is released once");
    }
}
