//! The five documents that the crate started from: each of their tables and each of their tests. `004` is the course.
//!
//! Most are scripts. A step is a call, and after `->` the answer that it must get:
//!
//! | call | answer |
//! |---|---|
//! | `at 650ms`, `pass 5ms`, `back 5ms`, `tick` | |
//! | `try 5` | `3 left`, or `denied, 3 left, retry in 50ms`, or `at most 3` |
//! | `ones 12`: twelve requests for one token each | `10 granted, 2 denied` |
//! | `available`; `minted`: how many more than at the last call | the tokens |
//! | `updated`: the tables' `lastUpdate`, a token's time before the next one | the time |
//! | `estimate 3` | the wait, or `never` |
//! | `consume 7 2`: claims, numbered from 0 | the number of those granted at once |
//! | `woken`: the claims to be polled; `served`: these are polled | the claims, or `none` |
//! | `cancel 1`, `replenish 3` | |
//! | `requests`: how many; `granted`: their tokens | the numbers |
//! | `key b`: the key of the next steps | |
//!
//! The steps of a line that begins with `20 times:` are repeated. `seastar.rs` has the calls of a `Bucket`.

mod better_bucket;
mod bucket_histories;
mod chronos;
mod course;
mod races;
mod seastar;
mod small_bucket;

use crate::fixture::*;
use futures::future::LocalBoxFuture;

const YEAR: Duration = Duration::from_secs(365 * 86_400);
/// The largest burst.
const MOST: u64 = 1 << 61;

/// Makes each row a test: its name, where its script runs, and the script.
macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident: $on:expr, $script:expr;)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            $on.run(&String::from($script));
        }
    )*};
}
use scripts;

/// Where the script of a row runs.
enum On {
    /// On a limiter, on one whose rovers wrap, on one that is read by its callers' requests alone, and on a key.
    Each(Quota),
    /// On each of these, with a clock that shows this time at the start.
    From(Duration, Quota),
    /// On several keys.
    Keys(Quota),
    Bucket(Quota),
    Capped(Quota, u64),
}

impl On {
    fn run(self, script: &str) {
        match self {
            // Not a multiple of any period.
            Self::Each(quota) => Self::From(YEAR + NANO * 123_456_789, quota).run(script),
            Self::From(start, quota) => {
                for (rovers_at, is_read) in [(0, true), (u64::MAX - 7, true), (0, false)] {
                    let clock = starting_at(start);
                    let builder = Limiter::builder().quota(quota).rovers_at(rovers_at);
                    let limiter = builder.clock(clock.clone()).build().unwrap();
                    Player::new(limiter, clock, quota).play(script, is_read);
                }
                Keys::play(starting_at(start), quota, script);
            }
            Self::Keys(quota) => Keys::play(ManualClock::new(), quota, script),
            Self::Bucket(quota) => seastar::run(quota, script),
            Self::Capped(quota, cap) => seastar::run_capped(quota, cap, script),
        }
    }
}

fn starting_at(time: Duration) -> ManualClock {
    let clock = ManualClock::new();
    clock.step_back(Duration::MAX);
    clock.advance(time);
    clock
}

/// Executes `script` with `call`, which returns the answer, or `None` for a call that it leaves out.
fn play(script: &str, mut call: impl FnMut(&str, &str) -> Option<String>) {
    for line in script.lines() {
        let (times, steps) = line.split_once(" times:").map_or((1, line), |(times, steps)| (number(times), steps));
        for turn in 0..times {
            for step in steps.split(';').map(str::trim).filter(|step| !step.is_empty()) {
                let (called, answer) = step.split_once("->").unwrap_or((step, ""));
                let (verb, value) = called.trim().split_once(' ').unwrap_or((called.trim(), ""));
                if let Some(answered) = call(verb, value.trim()) {
                    assert_eq!(answered, answer.trim(), "the answer to `{step}`, turn {turn} of `{line}`");
                }
            }
        }
    }
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or_else(|_| panic!("`{text}` is no number"))
}

fn numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split_whitespace().map(number)
}

/// A time such as `650ms` or `1s-1ns`.
fn span(text: &str) -> Duration {
    if let Some((time, less)) = text.split_once('-') {
        return span(time) - span(less);
    }
    let at = text.find(char::is_alphabetic).expect("a unit");
    let unit = match &text[at..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "d" => 86_400_000_000_000,
        "y" => 365 * 86_400_000_000_000,
        unit => panic!("`{unit}` is no unit"),
    };
    Duration::from_nanos(number(&text[..at]) * unit)
}

fn wait(wait: Option<Duration>) -> String {
    wait.map_or("never".to_owned(), |wait| format!("{wait:?}"))
}

/// A limiter, or a key of a keyed one. Grants are dropped at once.
trait Door {
    fn try_acquire(&self, cost: u64) -> Result<u64, TryAcquireError>;
    fn consume(&self, cost: u64) -> LocalBoxFuture<'static, ()>;
    fn available(&self) -> u64;
    fn estimate(&self, cost: u64) -> Option<Duration>;
    fn replenish(&self, tokens: u64);
    fn tick(&self);
    fn select(&mut self, key: &str);
}

impl Door for Limiter {
    fn try_acquire(&self, cost: u64) -> Result<u64, TryAcquireError> {
        self.try_acquire(cost).map(|grant| grant.remaining())
    }

    fn consume(&self, cost: u64) -> LocalBoxFuture<'static, ()> {
        self.clone().consume_owned(cost).map(move |grant| assert_eq!(grant.unwrap().cost(), cost)).boxed_local()
    }

    fn available(&self) -> u64 {
        self.available()
    }

    fn estimate(&self, cost: u64) -> Option<Duration> {
        self.estimate(cost)
    }

    fn replenish(&self, tokens: u64) {
        self.replenish(tokens);
    }

    fn tick(&self) {
        self.tick();
    }

    fn select(&mut self, key: &str) {
        panic!("the key {key} of a limiter without keys");
    }
}

struct Keys {
    keyed: KeyedLimiter<String>,
    key: String,
}

impl Keys {
    /// Keys start full: those of a quota that starts with less are brought to it. Manual quotas have no keys.
    fn play(clock: ManualClock, quota: Quota, script: &str) {
        if quota.is_manual() {
            return;
        }
        let full = quota.initial(quota.capacity());
        let keyed = KeyedLimiter::builder().quota(full).clock(clock.clone()).build().unwrap();
        drop(keyed.try_acquire(&"a".to_owned(), quota.capacity() - quota.filled_at_start()).unwrap());
        Player::new(Self { keyed, key: "a".to_owned() }, clock, quota).play(script, true);
    }
}

impl Door for Keys {
    fn try_acquire(&self, cost: u64) -> Result<u64, TryAcquireError> {
        self.keyed.try_acquire(&self.key, cost).map(|grant| grant.remaining())
    }

    fn consume(&self, cost: u64) -> LocalBoxFuture<'static, ()> {
        let claim = self.keyed.clone().consume_owned(self.key.clone(), cost);
        claim.map(|grant| drop(grant.unwrap())).boxed_local()
    }

    fn available(&self) -> u64 {
        self.keyed.available(&self.key)
    }

    fn estimate(&self, cost: u64) -> Option<Duration> {
        self.keyed.estimate(&self.key, cost)
    }

    fn replenish(&self, tokens: u64) {
        self.keyed.replenish(&self.key, tokens);
    }

    fn tick(&self) {
        self.keyed.tick();
    }

    fn select(&mut self, key: &str) {
        key.clone_into(&mut self.key);
    }
}

struct Player<D> {
    door: D,
    clock: ManualClock,
    quota: Quota,
    now: Duration,
    /// The tokens that the last call reported.
    level: u64,
    claims: BTreeMap<usize, Spawn<LocalBoxFuture<'static, ()>>>,
    entered: usize,
    /// Calls of `try_acquire`, and the tokens that these granted.
    requests: u64,
    granted: u128,
}

impl<D: Door> Player<D> {
    fn new(door: D, clock: ManualClock, quota: Quota) -> Self {
        let (now, level) = (Duration::ZERO, door.available());
        Self { door, clock, quota, now, level, claims: BTreeMap::new(), entered: 0, requests: 0, granted: 0 }
    }

    fn play(mut self, script: &str, is_read: bool) {
        let reads = ["available", "minted", "updated", "estimate"];
        play(script, |verb, value| (is_read || !reads.contains(&verb)).then(|| self.call(verb, value)));
    }

    fn call(&mut self, verb: &str, value: &str) -> String {
        match verb {
            "at" => self.pass(span(value) - self.now),
            "pass" => self.pass(span(value)),
            "back" => self.clock.step_back(span(value)),
            "tick" => self.door.tick(),
            "try" => return self.take(number(value)),
            "ones" => return self.ones(number(value)),
            "available" => return self.read().to_string(),
            "minted" => {
                let before = self.level;
                return (self.read() - before).to_string();
            }
            "updated" => return format!("{:?}", self.last_update()),
            "estimate" => return wait(self.door.estimate(number(value))),
            "consume" => return numbers(value).filter(|cost| self.enter(*cost)).count().to_string(),
            "woken" | "served" => return self.served(verb == "served"),
            "cancel" => drop(self.claims.remove(&(number(value) as usize)).expect("the claim waits")),
            "replenish" => self.door.replenish(number(value)),
            "granted" => return self.granted.to_string(),
            "requests" => return self.requests.to_string(),
            "key" => self.door.select(value),
            _ => panic!("`{verb}` is no call"),
        }
        String::new()
    }

    fn pass(&mut self, time: Duration) {
        self.clock.advance(time);
        self.now += time;
    }

    fn read(&mut self) -> u64 {
        self.level = self.door.available();
        self.level
    }

    fn take(&mut self, cost: u64) -> String {
        self.requests += 1;
        match self.door.try_acquire(cost) {
            Ok(left) => {
                (self.level, self.granted) = (left, self.granted + u128::from(cost));
                format!("{left} left")
            }
            Err(TryAcquireError::Denied(denied)) => {
                self.level = denied.remaining;
                assert!(denied.by == Bound::Quota(0) || !self.claims.is_empty(), "{denied:?}");
                format!("denied, {} left, retry in {}", denied.remaining, wait(denied.retry_after))
            }
            Err(TryAcquireError::TooLarge { cost: named, most, by: Bound::Quota(0), .. }) if named == cost => {
                format!("at most {most}")
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    fn ones(&mut self, requests: u64) -> String {
        let granted = (0..requests).filter(|_| !self.take(1).starts_with("denied")).count() as u64;
        format!("{granted} granted, {} denied", requests - granted)
    }

    fn last_update(&self) -> Duration {
        let next = self.door.estimate(self.door.available() + 1).expect("time brings the next token");
        self.now + next - self.quota.period() / self.quota.amount() as u32
    }

    /// Returns whether the claim is granted at once.
    fn enter(&mut self, cost: u64) -> bool {
        let mut claim = spawn(self.door.consume(cost));
        let is_granted = claim.poll().is_ready();
        if !is_granted {
            self.claims.insert(self.entered, claim);
        }
        self.entered += 1;
        is_granted
    }

    fn served(&mut self, polls: bool) -> String {
        self.door.tick();
        let woken = self.claims.iter().filter(|(_, claim)| claim.is_woken()).map(|(index, _)| *index);
        let woken: Vec<usize> = woken.collect();
        if polls {
            woken.iter().for_each(|index| assert!(self.claims.remove(index).unwrap().poll().is_ready()));
        }
        let woken: Vec<String> = woken.iter().map(usize::to_string).collect();
        if woken.is_empty() { "none".to_owned() } else { woken.join(" ") }
    }
}
