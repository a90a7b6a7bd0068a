//! Admission: a request waits for the limit of its own key first, then for those of its model and of all models, of its
//! route and of its block of addresses (`rules.rs`), then for the limit of all requests. A request that waits for a narrow
//! limit holds no tokens of a wider one.
//!
//! The own limit comes first, so that a client that floods the gateway fills its own queue and takes nothing from the
//! others. The clients that wait for the limit of all share it (`fair_queue.rs`). A request that a later limit refuses gives
//! back the tokens of the earlier ones. All requests take the limits in this order, so no two wait for each other.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tollgate::Refused;
use tollgate::{Bound, ConsumeError, Denied};

use super::connection::Connection;
use crate::limits::Limits;
use crate::limits::builders::KeyedGrant;
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
    pub(crate) estimate: Option<Box<Estimate>>,
    /// How long it may wait in all queues together.
    pub(crate) max_wait: Duration,
    /// How many bytes of its body are read before.
    pub(crate) body_buffer: usize,
}

/// The tokens in flight of a request, which are released when this is dropped.
pub(crate) struct InFlight {
    /// With the limits of the client and of all, whose grants were forgotten. A connection has few requests at a time, so
    /// its threads rarely wait for each other to count this reference, as they would for one to the limits.
    connection: Arc<Connection>,
    client: Client,
    cost: u64,
    /// Those of its rules.
    rules: Option<Box<RuleGrants>>,
}

/// The tokens of an admitted request.
pub(crate) struct Admitted {
    pub(crate) in_flight: InFlight,
    /// Those of a language model.
    pub(crate) model: Option<Box<ModelGrants>>,
}

/// The tokens that a request has of the limits of language models, and settles when its usage is known.
pub(crate) struct ModelGrants {
    pub(crate) estimate: Estimate,
    pub(crate) grants: Box<RuleGrants>,
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
    fn by_own(why: Refused) -> Box<Self> {
        Box::new(Self { by: Outcome::RefusedEach, refused_by: None, why })
    }

    fn by_all(why: impl Into<Refused>) -> Box<Self> {
        Box::new(Self { by: Outcome::RefusedAll, refused_by: None, why: why.into() })
    }

    fn by_limit((refused_by, why): (RefusingLimit, ConsumeError)) -> Box<Self> {
        let why = match refused_by {
            RefusingLimit::Client(_) => as_own_refusal(why),
            // Other gateways may hold these up, and their server too.
            RefusingLimit::Rule(_) | RefusingLimit::Distributed(_) | RefusingLimit::DistributedClient(_) => why.into(),
        };
        Self::refused_by(refused_by, why)
    }

    fn refused_by(refused_by: RefusingLimit, why: Refused) -> Box<Self> {
        Box::new(Self { by: refused_by.outcome(), refused_by: Some(refused_by), why })
    }

    /// Whether there is no space for a bucket of the client.
    fn has_no_bucket(&self) -> bool {
        self.by == Outcome::RefusedEach && matches!(self.why, Refused::InLine(ConsumeError::TooManyKeys { .. }))
    }
}

impl Admission {
    /// Refuses a request that would wait for too long in one of the queues, as far as their schedules tell, or that finds
    /// too many others. Takes no tokens.
    pub(crate) fn check_wait(&self, connection: &Connection) -> Result<(), Box<Rejected>> {
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
        self.check_rules(limits)?;
        self.check_distributed(limits)?;
        let all = limits.fair_queue.check_full(client, *cost).map_err(Refused::from);
        let all = all.and_then(|()| check_estimate(limits.fair_queue.estimate(client, *cost), *max_wait));
        all.map_err(Rejected::by_all)
    }

    fn check_rules(&self, limits: &Limits) -> Result<(), Box<Rejected>> {
        if self.charges.is_empty() {
            return Ok(());
        }
        limits.rules.check_full(&self.client, &self.charges).map_err(Rejected::by_limit)?;
        self.check_longest(limits.rules.estimate(&self.client, &self.charges))
    }

    fn check_distributed(&self, limits: &Limits) -> Result<(), Box<Rejected>> {
        if !limits.distributed.is_used() {
            return Ok(());
        }
        let Self { client, cost, charges, max_wait, .. } = self;
        self.check_longest(limits.distributed.estimate(client, *cost, charges))?;
        limits.distributed.check(client, *cost, charges, *max_wait).map_err(Rejected::by_limit)
    }

    /// Refuses the request if the longest wait, and the limit that causes it, are known and too long.
    fn check_longest(&self, longest: Option<(RefusingLimit, Duration)>) -> Result<(), Box<Rejected>> {
        let Some((refused_by, wait)) = longest else { return Ok(()) };
        check_estimate(Some(wait), self.max_wait).map_err(|why| Rejected::refused_by(refused_by, why))
    }

    /// Waits in all queues, and subtracts the wait from `left`. If the future is dropped, the request leaves the queue and
    /// its tokens are given back. An unlisted client for which there is no space becomes the one that they share.
    pub(crate) async fn admit(
        &mut self,
        connection: &Arc<Connection>,
        left: &mut TimeLeft,
    ) -> Result<Admitted, Box<Rejected>> {
        // Waits are in boxes, so that the futures of most requests, and the code for them, are small.
        match self.take_now(connection) {
            Ok(admitted) => return Ok(admitted),
            Err(own) => match self.wait(connection, own, left).boxed().await {
                Err(rejected) if rejected.has_no_bucket() => {}
                waited => return waited,
            },
        }
        self.client = Client::Overflow;
        self.wait(connection, None, left).boxed().await
    }

    /// The tokens of a request that needs only those of its client and of all, if both are there, as for most requests.
    /// Otherwise those of its client, if they are there.
    #[inline(never)]
    fn take_now<'a>(&'a self, connection: &'a Arc<Connection>) -> Result<Admitted, Option<RefundOnDrop<'a>>> {
        let Self { client, cost, .. } = self;
        let limits = &*connection.limits;
        let Ok(own) = limits.clients.of(client).consume(client, *cost).try_now() else { return Err(None) };
        let own = RefundOnDrop(Some(own));
        if !self.needs_other_limits(limits) && limits.fair_queue.take_now(client, *cost) {
            return Ok(self.admitted(connection, own, None));
        }
        Err(Some(own))
    }

    /// Waits in the queue of the client, unless its tokens are `own`, and in those after it.
    async fn wait<'a>(
        &'a self,
        connection: &'a Arc<Connection>,
        own: Option<RefundOnDrop<'a>>,
        left: &mut TimeLeft,
    ) -> Result<Admitted, Box<Rejected>> {
        let Self { client, cost, .. } = self;
        let limits = &*connection.limits;
        let own = match own {
            Some(own) => own,
            None => {
                let claim = limits.clients.of(client).consume(client, *cost).within(left.get());
                let granted = left.spend(pin!(claim)).await;
                RefundOnDrop(Some(granted.map_err(|why| Rejected::by_own(as_own_refusal(why)))?))
            }
        };
        let others =
            if self.needs_other_limits(limits) { Some(self.take_from_other_limits(limits, left).await?) } else { None };
        let max_wait = left.get();
        let all = left.spend(pin!(limits.fair_queue.admit(client, *cost, max_wait))).await.map_err(Rejected::by_all)?;
        all.forget();
        Ok(self.admitted(connection, own, others))
    }

    /// Whether it takes tokens between those of the client and those of all.
    fn needs_other_limits(&self, limits: &Limits) -> bool {
        self.estimate.is_some() || !self.charges.is_empty() || limits.distributed.is_used()
    }

    /// The tokens of the request, which has all of them.
    fn admitted(&self, connection: &Arc<Connection>, own: RefundOnDrop<'_>, others: Option<OtherGrants>) -> Admitted {
        let Self { client, cost, .. } = *self;
        let (rules, model) = others.map_or((None, None), OtherGrants::used);
        let in_flight = InFlight { connection: Arc::clone(connection), client, cost, rules };
        // From here on `in_flight` releases them.
        own.used().forget();
        Admitted { in_flight, model }
    }

    /// Waits for the tokens between those of the client and those of all.
    async fn take_from_other_limits(&self, limits: &Limits, left: &mut TimeLeft) -> Result<OtherGrants, Box<Rejected>> {
        let Self { client, cost, charges, estimate, .. } = self;
        let distributed = &limits.distributed;
        let mut others = OtherGrants {
            key: distributed.admit_key(client, *cost, left).await.map_err(Rejected::by_limit)?,
            ..OtherGrants::default()
        };
        if let Some(estimate) = estimate {
            let grants = limits.rules.admit(client, &estimate.charges(*client), left).await;
            let grants = Box::new(grants.map_err(Rejected::by_limit)?);
            others.model = Some(Box::new(ModelGrants { estimate: Estimate::clone(estimate), grants }));
        }
        if !charges.is_empty() {
            let rules = limits.rules.admit(client, charges, left).await;
            others.rules = Some(Box::new(rules.map_err(Rejected::by_limit)?));
        }
        others.all = distributed.admit_all(client, *cost, left).await.map_err(Rejected::by_limit)?;
        Ok(others)
    }
}

/// The tokens of a request besides those of its client and of all. If it is dropped before it is [used](Self::used), they
/// are given back.
#[derive(Default)]
struct OtherGrants {
    /// Those of the client's quota that all gateways share.
    key: DistributedGrants,
    model: Option<Box<ModelGrants>>,
    rules: Option<Box<RuleGrants>>,
    /// Those of the quota of all requests that all gateways share.
    all: DistributedGrants,
}

impl OtherGrants {
    /// Says that the request is forwarded. Returns the tokens of its rules, and of its language model.
    fn used(mut self) -> (Option<Box<RuleGrants>>, Option<Box<ModelGrants>>) {
        self.key.mark_used();
        self.all.mark_used();
        let of_model = self.model.as_mut().map(|model| &mut model.grants);
        self.rules.iter_mut().chain(of_model).for_each(|grants| grants.mark_used());
        (self.rules, self.model)
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
struct RefundOnDrop<'a>(Option<KeyedGrant<'a, Client>>);

impl<'a> RefundOnDrop<'a> {
    fn used(mut self) -> KeyedGrant<'a, Client> {
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

impl InFlight {
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Self { connection, client, cost, rules } = self;
        let limits = &*connection.limits;
        // Without a cap the tokens of the key are not counted in flight.
        let of_key = if limits.clients.is_capped { limits.clients.of(client).release(client, *cost) } else { Ok(()) };
        drop(rules.take());
        let of_all = limits.all.release(*cost);
        debug_assert_eq!((of_key, of_all), (Ok(()), Ok(())), "the grants were forgotten, and are released once");
    }
}
