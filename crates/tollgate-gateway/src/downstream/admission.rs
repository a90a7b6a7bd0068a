//! Admission: a request waits for the limit of its own key first, then for those of its model and of all models, of its
//! route and of its block of addresses (`rules.rs`), then for the limit of all requests. A request that waits for a narrow
//! limit holds no tokens of a wider one.
//!
//! The own limit comes first, so that a client that floods the gateway fills its own queue and takes nothing from the
//! others. The clients that wait for the limit of all share it (`fair_queue.rs`). A request that a later limit refuses gives
//! back the tokens of the earlier ones. All requests take the limits in this order, so no two wait for each other.

use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tollgate::Refused;
use tollgate::{Bound, ConsumeError, Denied, KeyedGrant, OwnedKeyedGrant};

use super::connection::Connection;
use crate::limits::distributed::DistributedGrants;
use crate::limits::refusing_limit::RefusingLimit;
use crate::limits::rule_grants::RuleGrants;
use crate::limits::time_left::TimeLeft;
use crate::llm::estimate::Estimate;
use crate::request::client::Client;
use crate::request::outcome::Outcome;
use crate::request::rule::Charge;

/// A request to be admitted.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) client: Client,
    pub(crate) cost: u64,
    /// What it takes from the limits besides those of its client and of all.
    pub(crate) charges: Vec<Charge>,
    /// What it takes from the limits of language models, if it is for one.
    pub(crate) estimate: Option<Estimate>,
    /// How long it may wait in all queues together.
    pub(crate) max_wait: Duration,
    /// How many bytes of its body are read before.
    pub(crate) body_buffer: usize,
    /// The longest pause in its body.
    pub(crate) client_timeout: Duration,
    /// Whether it may open a WebSocket.
    pub(crate) websockets: bool,
}

/// The tokens in flight of a request: those of its key, if keys have a cap, those of its rules, and those of the limit of
/// all.
pub(crate) type InFlight = (Option<InFlightOfKey>, RuleGrants, OwnedKeyedGrant<Client>);

/// The tokens of an admitted request.
pub(crate) struct Admitted {
    pub(crate) in_flight: InFlight,
    /// Those of a language model, which are settled when its usage is known.
    pub(crate) tokens: RuleGrants,
}

/// A refusal: the limit that refused, and the reason.
#[derive(Debug)]
pub(crate) struct Rejected {
    pub(crate) by: Outcome,
    /// The limit, if it is none of this gateway's own of the client or of all.
    pub(crate) refused_by: Option<RefusingLimit>,
    pub(crate) why: Refused,
}

impl Rejected {
    fn by_own(why: Refused) -> Self {
        Self { by: Outcome::RefusedEach, refused_by: None, why }
    }

    fn by_all(why: impl Into<Refused>) -> Self {
        Self { by: Outcome::RefusedAll, refused_by: None, why: why.into() }
    }

    fn by_distributed((refused_by, why): (RefusingLimit, ConsumeError)) -> Self {
        let by = match refused_by {
            RefusingLimit::DistributedClient(_) => Outcome::RefusedEach,
            _ => Outcome::RefusedAll,
        };
        Self { by, refused_by: Some(refused_by), why: why.into() }
    }

    fn by_rule((refused_by, why): (RefusingLimit, ConsumeError)) -> Self {
        let why = match refused_by {
            RefusingLimit::Client(_) => as_own_refusal(why),
            // Other gateways may hold these up, and their server too.
            RefusingLimit::Rule(_) | RefusingLimit::Distributed(_) | RefusingLimit::DistributedClient(_) => why.into(),
        };
        Self { by: Outcome::RefusedRule, refused_by: Some(refused_by), why }
    }
}

impl Admission {
    /// Refuses a request that would wait for too long in one of the queues, as far as their schedules tell, or that finds
    /// too many others. Takes no tokens.
    pub(crate) fn check_wait(&self, connection: &Connection) -> Result<(), Rejected> {
        let Self { client, cost, max_wait, .. } = self;
        let limits = &*connection.limits;
        // In dry run this is the wait that there would be.
        let own = limits.clients.of(client).estimate(client, *cost).filter(|_| !limits.config().keys.dry_run);
        check_estimate(own, *max_wait).map_err(|why| {
            // The limiter counts the refusals of each client.
            if let Some(Ok(grant)) = limits.clients.of(client).consume(client, *cost).within(*max_wait).now_or_never() {
                drop(RefundOnDrop(Some(grant)));
            }
            Rejected::by_own(why)
        })?;
        self.check_rules(connection)?;
        let all = limits.fair_queue.check_full(client, *cost).map_err(Refused::from);
        let all = all.and_then(|()| check_estimate(limits.fair_queue.estimate(client, *cost), *max_wait));
        all.map_err(Rejected::by_all)
    }

    fn check_rules(&self, connection: &Connection) -> Result<(), Rejected> {
        if self.charges.is_empty() {
            return Ok(());
        }
        let rules = &connection.limits.rules;
        rules.check_full(&self.client, &self.charges).map_err(Rejected::by_rule)?;
        let Some((refused_by, wait)) = rules.estimate(&self.client, &self.charges) else { return Ok(()) };
        let refused = |why| Rejected { by: Outcome::RefusedRule, refused_by: Some(refused_by), why };
        check_estimate(Some(wait), self.max_wait).map_err(refused)
    }

    /// Waits in both queues. If the future is dropped, the request leaves the queue and its tokens are given back. An
    /// unlisted client for which there is no space becomes the one that they share.
    pub(crate) async fn admit(&mut self, connection: &Arc<Connection>) -> Result<Admitted, Rejected> {
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

    /// Parts that most requests do not need are in boxes, so that the futures of the others are small.
    async fn pass(&self, connection: &Arc<Connection>) -> Result<Admitted, Rejected> {
        let Self { client, cost, charges, estimate, max_wait, .. } = self;
        let limits = &*connection.limits;
        let mut left = TimeLeft::new(*max_wait);
        let distributed = limits.distributed.is_used().then_some(&*limits.distributed);
        let own = left.spend(limits.clients.of(client).consume(client, *cost).within(*max_wait)).await;
        let own = RefundOnDrop(Some(own.map_err(|why| Rejected::by_own(as_own_refusal(why)))?));
        let key_distributed = match &distributed {
            Some(quotas) => {
                Box::pin(quotas.admit_key(client, *cost, &mut left)).await.map_err(Rejected::by_distributed)?
            }
            None => DistributedGrants::default(),
        };
        let tokens = match estimate {
            Some(estimate) => Box::pin(limits.rules.admit(client, &estimate.charges(*client), &mut left)).await,
            None => Ok(RuleGrants::default()),
        };
        let tokens = tokens.map_err(Rejected::by_rule)?;
        let of_rules = if charges.is_empty() {
            RuleGrants::default()
        } else {
            Box::pin(limits.rules.admit(client, charges, &mut left)).await.map_err(Rejected::by_rule)?
        };
        let all_distributed = match &distributed {
            Some(quotas) => {
                Box::pin(quotas.admit_all(client, *cost, &mut left)).await.map_err(Rejected::by_distributed)?
            }
            None => DistributedGrants::default(),
        };
        let all = limits.fair_queue.admit(client, *cost, left.get()).await.map_err(Rejected::by_all)?;
        // Without a cap the key's tokens are not counted in flight, so nothing has to be released.
        own.used().forget();
        key_distributed.used();
        all_distributed.used();
        let of_key = || InFlightOfKey { connection: Arc::clone(connection), client: *client, cost: *cost };
        let in_flight = (limits.clients.is_capped.then(of_key), of_rules.used(), all);
        Ok(Admitted { in_flight, tokens: tokens.used() })
    }
}

/// An error if a wait is known to be too long.
fn check_estimate(estimate: Option<Duration>, max_wait: Duration) -> Result<(), Refused> {
    match estimate.filter(|wait| *wait > max_wait) {
        Some(wait) => Err(Denied::new(Some(wait.saturating_sub(max_wait)), 0, Bound::Quota(0)).into()),
        None => Ok(()),
    }
}

/// The queue of its own key is full or held up: that is the client's own doing, and answered with 429. With the common
/// queue it would be 503.
fn as_own_refusal(refused: ConsumeError) -> Refused {
    match refused {
        ConsumeError::QueueFull { .. } | ConsumeError::TimedOut { .. } => Denied::new(None, 0, Bound::Queue).into(),
        refused => refused.into(),
    }
}

/// Tokens of the request's own key that are not used yet. They are given back on drop.
struct RefundOnDrop<'a>(Option<KeyedGrant<'a, Client, RandomState>>);

impl<'a> RefundOnDrop<'a> {
    fn used(mut self) -> KeyedGrant<'a, Client, RandomState> {
        self.0.take().expect("the grant is taken only once")
    }
}

impl Drop for RefundOnDrop<'_> {
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
        let released = self.connection.limits.clients.of(&self.client).release(&self.client, self.cost);
        debug_assert_eq!(released, Ok(()), "the grant was forgotten, and is released once");
    }
}
