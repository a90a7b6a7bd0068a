//! Tests for implementations of [`Store`], without a test framework: a store that passes keeps the law over all nodes.
//!
//! The tests ask the store as nodes would, judge its answers by what the protocol promises, and compare them with those
//! of [`SharedBucket`](super::SharedBucket). They run in real time on a multi-threaded runtime, for some three seconds. Stores that use
//! tokio's clock, such as [`MemoryStore`](super::MemoryStore), can also run in paused time.
//!
//! A [`Subject`] makes the stores. A closure is enough:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! use std::sync::Arc;
//! use tollgate::distributed::conformance::{self, Case};
//! use tollgate::distributed::{MemoryStore, Store};
//!
//! let all = MemoryStore::new();
//! let report = conformance::run(Case::ALL, &|name: String| {
//!     let store: Arc<dyn Store> = Arc::new(all.beside(&name));
//!     async move { Ok(store) }
//! })
//! .await;
//! assert!(report.failures.is_empty(), "{report}");
//! # }
//! ```
//!
//! A closure can neither flush the store nor set its clock, so the cases that need it are in
//! [`Report::skipped`]. Implement `Subject` for a type to run them too: docs/distributed.md has an example, and the tests
//! of `tollgate-redis` and `tollgate-postgres` are others.

/// Ends a case with a failure, unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($what:tt)*) => {
        if !$holds {
            return Err(format!($($what)*));
        }
    };
}

mod classes;
mod client;
mod clock;
mod concurrency;
mod history;
mod law;
mod leases;
mod ledger;
mod random;
mod repeats;
mod state;

use super::{LeaseGrant, LeaseRequest, Store, StoreError};
use random::Random;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// No case takes so long: one that does hangs.
const LONGEST: Duration = Duration::from_secs(60);

/// The stores under test, and what a test can do to the server behind them.
pub trait Subject: Sync {
    /// Returns the store with this name, as a new process would: with a connection of its own, if that is possible.
    /// Names are made of letters, digits, spaces and `{}:-`.
    ///
    /// `skew` is by how many microseconds the clock of that process is ahead. A store that only reads the clock of its
    /// server ignores it. A store that reads another clock must add it there, or [`Case::ClientClock`] shows nothing.
    ///
    /// # Errors
    ///
    /// The error with which the store could not be made; the case fails.
    fn client(&self, name: &str, skew: i64) -> impl Future<Output = Result<Arc<dyn Store>, StoreError>> + Send;

    /// Deletes all that the server knows of the store with this name. Returns false if this subject cannot do that, as by
    /// default.
    fn flush(&self, _name: &str) -> impl Future<Output = bool> + Send {
        async { false }
    }

    /// Answers a request as of `micros` microseconds of the store's clock since the Unix epoch. Requests to one name come
    /// one after the other; the instants leap and step back. `None` if this subject cannot do that, as by default.
    fn ask_at(
        &self,
        _name: &str,
        _ask: LeaseRequest,
        _micros: u64,
    ) -> impl Future<Output = Option<Result<LeaseGrant, StoreError>>> + Send {
        async { None }
    }
}

impl<F, Made> Subject for F
where
    F: Fn(String) -> Made + Sync,
    Made: Future<Output = Result<Arc<dyn Store>, StoreError>> + Send,
{
    fn client(&self, name: &str, _skew: i64) -> impl Future<Output = Result<Arc<dyn Store>, StoreError>> + Send {
        self(name.to_owned())
    }
}

/// One of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Case {
    /// Tokens granted over any window are at most the burst and what is minted in it, and no token is lost.
    Law,
    /// Promised tokens are owed: later requests stand behind them, until they are minted.
    Debt,
    /// A repeated request gets the same answer and is counted once; an overtaken one is refused.
    Repeats,
    /// A request for tokens at once gets all of them or none.
    AtOnce,
    /// What nodes may keep unused is taken off the capacity of the bucket, and is at most half of it.
    Allowances,
    /// A silent node is forgotten with its allowance at the end of its lease, and not before.
    Leases,
    /// Requests of many clients at the same time are answered as if they came one after the other.
    Concurrency,
    /// The clocks of clients do not matter.
    ClientClock,
    /// The store's clock steps back or leaps. Needs [`Subject::ask_at`].
    Clock,
    /// Nodes can tell that the store has lost its state. Needs [`Subject::flush`].
    Flush,
    /// A newer quota takes over in place; two quotas of one version are a conflict.
    Versions,
    /// Stores with different names have nothing in common.
    Names,
    /// Random requests are answered as [`SharedBucket`](super::SharedBucket) answers them; the passing of time is not
    /// tested. A history in which an answer is lost starts again.
    History,
    /// The same for random requests at random instants, to the microsecond. Needs [`Subject::ask_at`].
    TimedHistory,
    /// The demand of classes is added up as [`SharedDemand`](super::SharedDemand) adds it up. Needs a store for which
    /// [`Store::shares_classes`] is true.
    Classes,
}

impl Case {
    /// All cases.
    pub const ALL: [Self; 15] = [
        Self::Law,
        Self::Debt,
        Self::Repeats,
        Self::AtOnce,
        Self::Allowances,
        Self::Leases,
        Self::Concurrency,
        Self::ClientClock,
        Self::Clock,
        Self::Flush,
        Self::Versions,
        Self::Names,
        Self::History,
        Self::TimedHistory,
        Self::Classes,
    ];
}

/// The results of [`run`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Cases that the store passed.
    pub passed: Vec<Case>,
    /// Cases that were not run, because the subject lacks what they need, or not to the end, because too many answers were
    /// lost.
    pub skipped: Vec<Case>,
    /// Cases that the store did not pass, each with what the store did, and what it should have done.
    pub failures: Vec<(Case, String)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (case, what) in &self.failures {
            writeln!(f, "{case:?}: {what}")?;
        }
        let Self { passed, skipped, failures } = self;
        write!(f, "{} passed, {} skipped: {skipped:?}, {} failed", passed.len(), skipped.len(), failures.len())
    }
}

/// Runs these cases, such as [`Case::ALL`], one after the other. Each uses stores of its own, whose names no earlier run
/// has used.
pub async fn run(cases: impl IntoIterator<Item = Case>, subject: &impl Subject) -> Report {
    let mut report = Report::default();
    for case in cases {
        match run_one(case, subject).await {
            Ok(true) => report.passed.push(case),
            Ok(false) => report.skipped.push(case),
            Err(what) => report.failures.push((case, what)),
        }
    }
    report
}

async fn run_one(case: Case, subject: &impl Subject) -> Outcome {
    let run = RandomState::new().build_hasher().finish();
    let trial = Trial { subject, prefix: format!("conformance {case:?} {run:016x}") };
    let passed = async {
        match case {
            Case::Law => law::law(&trial).await,
            Case::Debt => law::debt(&trial).await,
            Case::Repeats => repeats::repeats(&trial).await,
            Case::AtOnce => leases::at_once(&trial).await,
            Case::Allowances => leases::allowances(&trial).await,
            Case::Leases => leases::leases(&trial).await,
            Case::Concurrency => concurrency::concurrency(&trial).await,
            Case::ClientClock => clock::client_clock(&trial).await,
            Case::Clock => clock::clock(&trial).await,
            Case::Flush => state::flush(&trial).await,
            Case::Versions => state::versions(&trial).await,
            Case::Names => state::names(&trial).await,
            Case::History => history::history(&trial).await,
            Case::TimedHistory => history::timed_history(&trial).await,
            Case::Classes => classes::classes(&trial).await,
        }
    };
    let hangs = |_| Err(format!("the case does not end within {LONGEST:?}"));
    timeout(LONGEST, passed).await.unwrap_or_else(hangs)
}

/// Whether a case was run and passed, false if it was skipped, or why it failed.
type Outcome = Result<bool, String>;

/// One run of one case.
struct Trial<'a, S> {
    subject: &'a S,
    /// The names of all its stores begin with this.
    prefix: String,
}

impl<S: Subject> Trial<'_, S> {
    /// Returns the full name of a store of this trial.
    fn name(&self, name: &str) -> String {
        format!("{} {name}", self.prefix)
    }

    /// Returns a new client of a store.
    async fn client(&self, name: &str) -> Result<Arc<dyn Store>, String> {
        self.skewed(name, 0).await
    }

    async fn skewed(&self, name: &str, skew: i64) -> Result<Arc<dyn Store>, String> {
        let made = self.subject.client(&self.name(name), skew).await;
        made.map_err(|error| format!("the store cannot be made: {error}"))
    }
}
