//! A line in memory: what `src/redis/line.lua` does, in Rust, to the integer.

use super::{Answer, Ask, Line, LineError, LineSnapshot, Outage, Tally, Terms};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long it is counted who had waiters, in microseconds.
const EPOCH: i64 = 250_000;

/// A line in the memory of this process: for tests of code that shares a quota, under paused time too, and for simulations of
/// many nodes. Clones are the same line.
///
/// It answers as Redis would, and can be made slow or unreachable.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Limiter, Quota, lease::MemoryLine};
/// let line = MemoryLine::new();
/// let one = Limiter::builder().quota(Quota::per_second(10)).shared(line.clone()).build()?;
/// let two = Limiter::builder().quota(Quota::per_second(10)).shared(line).build()?;
/// one.consume(7).await?;
/// two.consume(3).await?; // these were the burst of both
/// let begun = tokio::time::Instant::now();
/// two.consume(1).await?;
/// assert!(begun.elapsed() >= std::time::Duration::from_millis(100));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryLine {
    all: Arc<All>,
    outage: Outage,
}

#[derive(Debug)]
struct All {
    book: Mutex<Book>,
    began: Instant,
    tally: Tally,
}

/// What there is, and how it is reached.
#[derive(Debug, Default)]
struct Book {
    bucket: Option<Bucket>,
    /// What its clock is ahead of the time since the line was made.
    skew: i64,
    latency: Duration,
    is_out: bool,
    asks: u64,
    /// How many of the next answers get lost.
    to_lose: u64,
}

#[derive(Clone, Debug)]
struct Bucket {
    terms: Terms,
    level: i64,
    stamp: i64,
    part: i64,
    swept: i64,
    epoch: i64,
    busy: i64,
    was: i64,
    held: i64,
    nodes: HashMap<u128, Node>,
    /// When nobody need remember it any more.
    ends: i64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    number: u64,
    hold: i64,
    until: i64,
    epoch: i64,
    once: i64,
    later: i64,
    behind: i64,
    part: i64,
    at: i64,
}

impl MemoryLine {
    /// A line that nobody has used.
    pub fn new() -> Self {
        let all = All { book: Mutex::default(), began: Instant::now(), tally: Tally::default() };
        Self { all: Arc::new(all), outage: Outage::Wait }
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

    /// What the limiters that share this line, or a clone of it, have asked for.
    pub fn snapshot(&self) -> LineSnapshot {
        self.all.tally.snapshot()
    }

    /// Forgets everything, as a Redis that was restarted empty.
    pub fn forget(&self) {
        self.book().bucket = None;
    }

    /// How many asks it has answered.
    pub fn asks(&self) -> u64 {
        self.book().asks
    }

    /// Answers as of `micros` of the line's clock: what the script does in one call.
    ///
    /// # Errors
    /// [`LineError::Refused`] for another quota than the line's, or an ask that was overtaken by a later one.
    pub fn answer(&self, ask: &Ask, micros: u64) -> Result<Answer, LineError> {
        self.book().answer(ask, micros as i64)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.all.book.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn answer_now(&self, ask: &Ask) -> Result<Answer, LineError> {
        let mut book = self.book();
        if book.is_out {
            return Err(LineError::Unreachable("it was made so".to_owned()));
        }
        let now = self.all.began.elapsed().as_micros() as i64 + book.skew;
        let answer = book.answer(ask, now);
        if book.to_lose > 0 {
            book.to_lose -= 1;
            return Err(LineError::Unreachable("the answer was lost".to_owned()));
        }
        answer
    }
}

impl Default for MemoryLine {
    fn default() -> Self {
        Self::new()
    }
}

impl Line for MemoryLine {
    fn ask(&self, ask: Ask) -> Pin<Box<dyn Future<Output = Result<Answer, LineError>> + Send + '_>> {
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
        &self.all.tally
    }

    fn outage(&self) -> Outage {
        self.outage
    }
}

impl Book {
    fn answer(&mut self, ask: &Ask, now: i64) -> Result<Answer, LineError> {
        self.asks += 1;
        if self.bucket.as_ref().is_some_and(|bucket| bucket.ends < now) {
            self.bucket = None;
        }
        self.bucket.get_or_insert_with(|| Bucket::new(ask.terms, now)).answer(ask, now)
    }
}

impl Bucket {
    fn new(terms: Terms, now: i64) -> Self {
        Self {
            terms,
            level: terms.initial as i64,
            stamp: now,
            part: 0,
            swept: now,
            epoch: 0,
            busy: 0,
            was: 0,
            held: 0,
            nodes: HashMap::new(),
            ends: i64::MAX,
        }
    }

    fn answer(&mut self, ask: &Ask, now: i64) -> Result<Answer, LineError> {
        if self.terms != ask.terms {
            let (has, asked) = (self.terms, ask.terms);
            return Err(LineError::Refused(format!("TOLLGATE this line has the quota {has} and not {asked}")));
        }
        if let Some(Node { number, .. }) = self.nodes.get(&ask.node)
            && ask.number < *number
        {
            return Err(LineError::Refused(format!("TOLLGATE ask {} comes after {number}", ask.number)));
        }
        let ttl = ask.ttl as i64;
        if now >= self.swept + (ttl + 3) / 4 || now < self.swept {
            self.sweep(now, ttl);
        }
        self.mint(now);
        let known = self.nodes.get(&ask.node).copied();
        let before = known.unwrap_or_default();
        let others = self.held - before.hold;
        let node = match known {
            Some(node) if node.number == ask.number => Node { until: now + ttl, ..node },
            _ => self.grant(ask, now, others, known),
        };
        if ask.leave {
            self.nodes.remove(&ask.node);
            self.held = others;
        } else {
            self.nodes.insert(ask.node, node);
            self.held = others + node.hold;
        }
        let need = (self.terms.burst as i64 - self.level).max(0);
        let fills = div_ceil(need, self.terms.amount as i64) * self.terms.period as i64;
        self.ends = now + (div_ceil(fills.max(ttl), 1_000) + 1) * 1_000;
        Ok(Answer {
            before: before.number,
            age: (now - node.at).max(0) as u64,
            once: node.once as u64,
            later: node.later as u64,
            behind: node.behind as u64,
            part: node.part as u64,
            hold: if ask.leave { 0 } else { node.hold as u64 },
            nodes: self.nodes.len() as u64,
            busy: self.busy.max(self.was).max(1) as u64,
            left: self.level.max(0) as u64,
        })
    }

    /// Forgets the nodes that were not heard of for their time.
    fn sweep(&mut self, now: i64, ttl: i64) {
        self.nodes.retain(|_, node| node.until > now);
        for node in self.nodes.values_mut() {
            node.until = node.until.min(now + ttl);
        }
        self.held = self.nodes.values().map(|node| node.hold).sum();
        self.swept = now;
    }

    fn mint(&mut self, now: i64) {
        let Terms { amount, period, burst, .. } = self.terms;
        let (amount, period, full) =
            (i128::from(amount), i128::from(period), i128::from(burst) - i128::from(self.held));
        let level = i128::from(self.level);
        let minted = if self.terms.stepped {
            (i128::from(now) / period - i128::from(self.stamp) / period).max(0) * amount
        } else if now > self.stamp {
            let sum = i128::from(now - self.stamp) * amount + i128::from(self.part);
            let (minted, left) = (sum / period, sum % period);
            let burned = level + minted > full || (level + minted == full && left >= amount);
            self.part = if burned { 0 } else { left as i64 };
            minted
        } else {
            if level >= full && i128::from(self.part) >= amount {
                self.part = 0;
            }
            0
        };
        if minted > 0 {
            self.level = level.max(full.min(level + minted)) as i64;
        }
        self.stamp = now;
    }

    fn grant(&mut self, ask: &Ask, now: i64, others: i64, known: Option<Node>) -> Node {
        let burst = self.terms.burst as i64;
        let count = self.nodes.len() as i64 + i64::from(known.is_none());
        let held = if known.is_some() { ask.held as i64 } else { 0 };
        if known.is_some() {
            self.level += (ask.back as i64).min(self.held - others - held).max(0);
        }
        let half = burst / 2;
        let fair = (burst / (2 * (count + 1))).max(1);
        let hold = (ask.hold as i64).min(fair).max(ask.must as i64).min(half - others).max(held);
        let mut more = (ask.ahead as i64).min(hold - ask.bank as i64).max(0);
        if ask.want == 0 {
            more = more.min(self.level.max(ask.must as i64).max(0));
        }
        let tokens = ask.want as i64 + more;
        let hold = hold.min(ask.bank as i64 + more).max(held);
        let once = self.level.min(tokens).max(0);
        let behind = (-self.level).max(0);
        let part = if self.terms.stepped { now % self.terms.period as i64 } else { self.part };
        self.level -= tokens;
        if self.level > burst - others - hold {
            (self.level, self.part) = (burst - others - hold, 0);
        }
        let epoch = now / EPOCH;
        if epoch != self.epoch {
            self.was = if epoch == self.epoch + 1 { self.busy } else { 0 };
            (self.busy, self.epoch) = (0, epoch);
        }
        let mut seen = known.map_or(-1, |node| node.epoch);
        if ask.want > 0 && seen != epoch {
            self.busy += 1;
            seen = epoch;
        }
        Node {
            number: ask.number,
            hold,
            until: now + ask.ttl as i64,
            epoch: seen,
            once,
            later: tokens - once,
            behind,
            part,
            at: now,
        }
    }
}

fn div_ceil(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}
