//! A line in memory, which can be made slow or unreachable.

use super::bucket::Bucket;
use super::{Answer, Ask, Outage, Store, StoreError, StoreSnapshot, Stores, Tally, key, key_among};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A line in the memory of this process: for tests of code that shares a quota, under paused time too, and for simulations of
/// many nodes. Clones are the same line.
///
/// It answers as Redis would, and can be made slow or unreachable.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Limiter, Quota, lease::MemoryStore};
/// let store = MemoryStore::new();
/// let one = Limiter::builder().quota(Quota::per_second(10)).distributed(store.clone()).build()?;
/// let two = Limiter::builder().quota(Quota::per_second(10)).distributed(store).build()?;
/// one.consume(7).await?;
/// two.consume(3).await?; // these were the burst of both
/// let begun = tokio::time::Instant::now();
/// two.consume(1).await?;
/// assert!(begun.elapsed() >= std::time::Duration::from_millis(100));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryStore {
    all: Arc<All>,
    key: Arc<str>,
    tally: Arc<Tally>,
    outage: Outage,
}

/// What would be the server.
#[derive(Debug)]
struct All {
    book: Mutex<Book>,
    began: Instant,
}

/// What there is, and how it is reached.
#[derive(Debug, Default)]
struct Book {
    buckets: HashMap<Arc<str>, Bucket>,
    /// Once there are so many, those that need not be remembered are looked for.
    crowd: usize,
    /// What its clock is ahead of the time since the line was made.
    skew: i64,
    latency: Duration,
    is_out: bool,
    asks: u64,
    /// How many of the next answers get lost.
    to_lose: u64,
}

impl MemoryStore {
    /// A line that nobody has used.
    pub fn new() -> Self {
        let all = All { book: Mutex::default(), began: Instant::now() };
        Self { all: Arc::new(all), key: key("").into(), tally: Arc::default(), outage: Outage::Wait }
    }

    /// Another line in the same memory, as slow and as reachable as this one.
    pub fn beside(&self, name: &str) -> Self {
        Self { key: key(name).into(), tally: Arc::default(), ..self.clone() }
    }

    /// What the limiters that are built with this clone do while the line cannot be reached.
    #[must_use = "this returns the changed line"]
    pub fn outage(mut self, outage: Outage) -> Self {
        self.outage = outage;
        self
    }

    /// From now on an ask takes `latency` there, and its answer as long back.
    pub fn set_latency(&self, latency: Duration) {
        self.book().latency = latency;
    }

    /// From now on it cannot be reached, or again.
    pub fn set_reachable(&self, reachable: bool) {
        self.book().is_out = !reachable;
    }

    /// The next `count` asks are carried out, and their answers lost.
    pub fn lose_answers(&self, count: u64) {
        self.book().to_lose = count;
    }

    /// Moves the line's clock by so many microseconds, forward or back.
    pub fn step_clock(&self, micros: i64) {
        self.book().skew += micros;
    }

    /// What the limiters that share this line, or a clone of it, have asked for; those of a keyed limiter on all its keys.
    pub fn snapshot(&self) -> StoreSnapshot {
        self.tally.snapshot()
    }

    /// Forgets everything, as a Redis that was restarted empty.
    pub fn forget(&self) {
        self.book().buckets.clear();
    }

    /// How many asks it and the lines beside it have answered.
    pub fn asks(&self) -> u64 {
        self.book().asks
    }

    /// Answers as of `micros` of the line's clock: what the script does in one call.
    ///
    /// # Errors
    /// [`StoreError::Refused`] for another quota than the line's, or an ask that was overtaken by a later one.
    pub fn answer(&self, ask: &Ask, micros: u64) -> Result<Answer, StoreError> {
        self.book().answer(&self.key, ask, micros as i64)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.all.book.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn answer_now(&self, ask: &Ask) -> Result<Answer, StoreError> {
        let mut book = self.book();
        if book.is_out {
            return Err(StoreError::Unreachable("it was made so".to_owned()));
        }
        let now = self.all.began.elapsed().as_micros() as i64 + book.skew;
        let answer = book.answer(&self.key, ask, now);
        if book.to_lose > 0 {
            book.to_lose -= 1;
            return Err(StoreError::Unreachable("the answer was lost".to_owned()));
        }
        answer
    }
}

impl Stores for MemoryStore {
    fn named(&self, name: &str) -> Arc<dyn Store> {
        Arc::new(Self { key: key_among(&self.key, name).into(), ..self.clone() })
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    fn ask(&self, ask: Ask) -> Pin<Box<dyn Future<Output = Result<Answer, StoreError>> + Send + '_>> {
        Box::pin(async move {
            let latency = self.book().latency;
            if latency.is_zero() {
                return self.answer_now(&ask);
            }
            sleep(latency).await;
            let answer = self.answer_now(&ask);
            sleep(latency).await;
            answer
        })
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    fn outage(&self) -> Outage {
        self.outage
    }
}

impl Book {
    fn answer(&mut self, key: &Arc<str>, ask: &Ask, now: i64) -> Result<Answer, StoreError> {
        self.asks += 1;
        if self.buckets.get(key).is_some_and(|bucket| bucket.is_forgotten(now)) {
            self.buckets.remove(key);
        }
        if self.buckets.len() >= self.crowd {
            self.buckets.retain(|_, bucket| !bucket.is_forgotten(now));
            self.crowd = (2 * self.buckets.len()).max(64);
        }
        self.buckets.entry(Arc::clone(key)).or_insert_with(|| Bucket::new(ask.terms, now)).answer(ask, now)
    }
}
