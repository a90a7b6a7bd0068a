#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod clock;
mod concurrency;
mod history;
mod requests;

use clock::SLOTS;
use futures_util::future::join_all;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tollgate::distributed::{LeaseGrant, LeaseRequest, Store, StoreError};

/// No part of a check takes so long: one that does hangs.
const LONGEST: Duration = Duration::from_secs(180);

/// How many histories are tried with real concurrency.
const ROUNDS: usize = 4;

/// Ends of names: a store that cannot tell them apart mixes up its buckets.
const NAMES: [&str; 6] = ["a", "A", "b", "a{b}", "a {b}", "a:b"];

/// A part of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// Random requests at chosen instants, some of them of classes, compared to the microsecond: [`check_at`].
    TimedHistory,
    /// Random requests, by the store's own clock: [`check`].
    History,
    /// Requests of many nodes at the same time: [`check`].
    Concurrency,
}

/// What a store did, and what it should have done.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The part that failed.
    pub part: Part,
    /// The seed of the history: seeds from `seed` to `seed + 1` send the same requests again.
    pub seed: u64,
    /// The shortest beginning of the history that shows the difference: a line for each request, with its answer. Of several
    /// histories, the shortest one.
    pub history: Vec<String>,
    /// The difference.
    pub difference: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the store fails in {:?} with seed {}:", self.part, self.seed)?;
        self.history.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        write!(f, "{}", self.difference)
    }
}

/// As [`Display`](fmt::Display), so that `unwrap` and `?` in a test print lines to read.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failure {}

/// Tests a store by its own clock: with one random history for each of these seeds, such as `0..8`, and with requests at
/// the same time.
///
/// `open(name, skew)` opens the store with this name as a new process would: with a connection of its own, if that is
/// possible. Names are made of letters, digits, spaces and `{}:`; no two runs use the same ones. `skew` is by how many
/// microseconds the clock of that process is ahead. A store that only reads the clock of its server ignores it. A store that
/// reads another clock must add it there, or nothing shows that it does.
///
/// This takes some four seconds. Histories in which an answer is lost or late start again, more slowly. A store that uses
/// tokio's clock can be tested in paused time.
///
/// # Errors
///
/// The first [`Failure`].
///
/// # Panics
///
/// If there are no seeds.
pub async fn check(
    open: impl AsyncFn(&str, i64) -> Result<Arc<dyn Store>, StoreError>,
    seeds: Range<u64>,
) -> Result<(), Failure> {
    let open = async |name: &str, skew: i64| {
        open(name, skew).await.map_err(|error| format!("the store `{name}` cannot be opened: {error}"))
    };
    let (run, all) = (new_run(), listed(seeds));
    let mut late = all.clone();
    for (attempt, slot) in SLOTS.into_iter().enumerate() {
        let one = async |seed| {
            let name = named(&format!("{run} {attempt}"), seed);
            within(Part::History, seed, history::own(&open, &name, seed, slot)).await
        };
        let judged = shortest(join_all(late.iter().map(|seed| one(*seed))).await)?;
        late = late.into_iter().zip(judged).filter(|(_, judged)| !judged).map(|(seed, _)| seed).collect();
        if 2 * late.len() <= all.len() {
            break;
        }
    }
    if late.len() == all.len() {
        let difference = "no history was compared to its end: in each one an answer was lost or late".to_owned();
        return Err(Failure { part: Part::History, seed: all[0], history: Vec::new(), difference });
    }
    for seed in all.into_iter().take(ROUNDS) {
        let name = format!("{run} together {seed}");
        within(Part::Concurrency, seed, concurrency::concurrency(&open, &name, seed)).await?;
    }
    Ok(())
}

/// Tests the rules of a store at chosen instants, with one random history for each of these seeds, such as `0..100`.
///
/// `ask_at(name, ask, micros)` answers a request to the store with this name as of `micros` microseconds of the store's clock
/// since the Unix epoch. Requests to one name come one after the other; their instants leap and step back.
///
/// # Errors
///
/// The shortest [`Failure`].
///
/// # Panics
///
/// If there are no seeds.
pub async fn check_at(
    ask_at: impl AsyncFn(&str, LeaseRequest, u64) -> Result<LeaseGrant, StoreError>,
    seeds: Range<u64>,
) -> Result<(), Failure> {
    let run = new_run();
    let mut outcomes = Vec::new();
    for seed in listed(seeds) {
        let name = named(&format!("{run} timed"), seed);
        outcomes.push(within(Part::TimedHistory, seed, history::chosen(&ask_at, &name, seed)).await);
    }
    shortest(outcomes).map(|_| ())
}

/// Begins the names of a run.
fn new_run() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

fn listed(seeds: Range<u64>) -> Vec<u64> {
    assert!(!seeds.is_empty(), "there are no seeds, so nothing is tested: pass `0..8`");
    seeds.collect()
}

fn named(run: &str, seed: u64) -> String {
    format!("{run} {} {}", seed / 6, NAMES[(seed % 6) as usize])
}

/// Returns the shortest failure, if there is one.
fn shortest<T>(outcomes: Vec<Result<T, Failure>>) -> Result<Vec<T>, Failure> {
    let (mut passed, mut failures) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Ok(one) => passed.push(one),
            Err(failure) => failures.push(failure),
        }
    }
    failures.into_iter().min_by_key(|failure| failure.history.len()).map_or(Ok(passed), Err)
}

/// Waits for a test, but not for ever.
async fn within<T>(part: Part, seed: u64, test: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let hangs = |_| {
        let difference = format!("the test does not end within {LONGEST:?}: the store does not answer");
        Err(Failure { part, seed, history: Vec::new(), difference })
    };
    timeout(LONGEST, test).await.unwrap_or_else(hangs)
}
