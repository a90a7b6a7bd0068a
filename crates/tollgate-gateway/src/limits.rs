//! The limiters. They are built from a configuration and changed by the next one, while requests wait.

pub(crate) mod builders;
pub(crate) mod client_limits;
pub(crate) mod distributed;
pub(crate) mod dry_run_rule;
pub(crate) mod dry_runs;
pub(crate) mod fair_queue;
pub(crate) mod limit;
pub(crate) mod model_pauses;
pub(crate) mod reason;
pub(crate) mod refusing_limit;
pub(crate) mod rule_client_limits;
pub(crate) mod rule_grants;
pub(crate) mod rules;
pub(crate) mod saved_level;
pub(crate) mod shared_limit;
pub(crate) mod state;
pub(crate) mod state_keys;
pub(crate) mod time_left;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::Notify;
use tollgate::{Builder, Limiter};

use crate::config::Config;
use crate::config::problem::Problem;
use crate::request::client::{Client, use_secret};
use builders::{Builders, KeyedBuilder};
use client_limits::ClientLimits;
use distributed::version::check_version;
use distributed::{BuildError, Distributed};
use fair_queue::FairQueue;
use model_pauses::{change_pauses, end_saved_pauses};
use rules::Rules;
use state::{RuleStates, State};

/// Stands for an absent cap: more tokens than can ever be in flight. The limiter is built with a cap so that one can be
/// set later, and so that the tokens in flight are counted.
pub(crate) const UNCAPPED: u64 = 1 << 48;

/// The lock of the limits that follow the upstreams.
pub(crate) type Following<'a> = MutexGuard<'a, ()>;

pub(crate) struct Limits {
    /// All requests together.
    pub(crate) all: Limiter,
    /// The requests of each client.
    pub(crate) clients: ClientLimits,
    /// Whether every response reports the remaining tokens, or only refusals.
    pub(crate) reports_always: bool,
    /// How clients share the limit of all.
    pub(crate) fair_queue: FairQueue,
    /// The limits of routes, blocks of addresses and models.
    pub(crate) rules: Rules,
    /// The quotas that all gateways share, if there are any. Each has a limit of this gateway in front of it.
    pub(crate) distributed: Arc<Distributed>,
    /// An `ArcSwap`: threads that read it do not write to memory that other threads read.
    config: Arc<ArcSwap<Config>>,
    /// Locked while the limits are changed.
    changes: Mutex<()>,
    /// Locked while limits are set from the responses of upstreams, and while a change of the configuration ends that. So no
    /// task applies an older state than another task has applied.
    following: Mutex<()>,
    /// Notified after each change, for the task that checks the upstreams.
    changed: Notify,
}

impl Limits {
    pub(crate) fn new(config: Config) -> Result<Self, BuildError> {
        Self::with(config, &Builders::default())
    }

    /// Continues from `state`. Quotas that have changed since keep their tokens, as after a change of the file.
    pub(crate) fn restored(config: Config, mut state: State) -> Result<Self, BuildError> {
        state.use_secret();
        let now = SystemTime::now();
        let rules = state.take_rules(now);
        let State { all, listed, unlisted, upstreams, .. } = state;
        let all = Limiter::builder().restore(all, now);
        let builders = Builders::default();
        let each = [listed, unlisted].map(|each| builders.keyed().restore(each, now));
        let limits = Self::of(config, all, each, rules, &builders)?;
        limits.clients.forget_removed_quotas(&limits.config());
        end_saved_pauses(&limits, upstreams.as_deref());
        Ok(limits)
    }

    pub(crate) fn with(config: Config, builders: &Builders) -> Result<Self, BuildError> {
        Self::of(config, builders.limiter(), [(); 2].map(|()| builders.keyed()), RuleStates::default(), builders)
    }

    /// Builds the limits: of all requests and of each listed key and unlisted client from builders, those of rules from
    /// their states.
    fn of(
        config: Config,
        all: Builder,
        each: [KeyedBuilder<Client>; 2],
        rule_states: RuleStates,
        builders: &Builders,
    ) -> Result<Self, BuildError> {
        if let Some(secret) = config.redis.as_ref().and_then(|redis| redis.fixed.secret.as_ref()) {
            use_secret(secret);
        }
        let cap = config.in_flight.unwrap_or(UNCAPPED);
        let all = all.quota(config.quota).max_in_flight(cap).classes().build()?;
        let clients = ClientLimits::new(&config, each)?;
        let reports_always = config.fixed.reports_always.value;
        let config = Arc::new(ArcSwap::from_pointee(config));
        let fair_queue = FairQueue::new(&all, &config, [(); 2].map(|()| builders.keyed()))?;
        let distributed = Arc::new(Distributed::new(&config, builders)?);
        let rules = Rules::new(&config, builders, &distributed, rule_states)?;
        let (changes, following, changed) = (Mutex::default(), Mutex::default(), Notify::new());
        Ok(Self { all, clients, reports_always, fair_queue, rules, distributed, config, changes, following, changed })
    }

    /// The current configuration. Do not keep the guard.
    pub(crate) fn config(&self) -> Guard<Arc<Config>> {
        self.config.load()
    }

    /// Applies `new`, which was read from `path`. Waiting requests are re-timed and none is lost. On a `Problem`
    /// nothing has changed.
    pub(crate) fn change(&self, mut new: Config, path: &Path) -> Result<(), Problem> {
        let _one_at_a_time = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.config.load_full();
        new.check_fixed(path, &old.fixed)?;
        if let (Err(what), Some(redis)) = (check_version(&old, &new), &new.redis) {
            return Err(Problem::at_line(path, redis.quota_version.line, what));
        }
        let checked = "the configuration was checked";
        self.clients.change(&old, &new);
        self.fair_queue.change(&old, &new);
        if new.quota != old.quota {
            self.all.set_quota(0, new.quota).expect(checked);
        }
        if new.in_flight != old.in_flight {
            self.all.set_max_in_flight(new.in_flight.unwrap_or(UNCAPPED)).expect(checked);
        }
        new.upstreams.adopt(&old.upstreams);
        let following = self.lock_following();
        self.rules.change(&old, &new);
        self.config.store(Arc::new(new));
        self.rules.renew();
        self.distributed.renew(&old);
        change_pauses(self, &old, &following);
        drop(following);
        self.changed.notify_one();
        Ok(())
    }

    /// Locks what follows the upstreams. The configuration that is read meanwhile stays in force.
    pub(crate) fn lock_following(&self) -> Following<'_> {
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change since the last call. Only one task may wait.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Refuses all requests that wait, and all later ones.
    pub(crate) fn close(&self) {
        self.clients.close();
        self.rules.close();
        self.distributed.close();
        self.all.close();
    }
}
