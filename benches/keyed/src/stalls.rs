//! The longest single call on a map of many keys: it delays all other tasks of that thread.

use cpu_time::ThreadTime;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;
use tollgate::{KeyedLimiter, Quota};

const WAITERS: u64 = 60_000;
/// The number of calls among which the longest is found.
const CALLS: u64 = 20_000;

#[derive(clap::Args)]
pub struct Options {
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { keys: 1_000_000, rounds: 3 }
    }
}

/// A token per hour, so that every key stays in debt for the whole run.
fn quota(burst: u64) -> Quota {
    Quota::per_hour(1).burst(burst)
}

/// In CPU time: other processes on this machine do not count.
fn timed<R>(call: impl FnOnce() -> R) -> (Duration, R) {
    let start = ThreadTime::now();
    let result = call();
    (start.elapsed(), result)
}

fn longest(calls: impl Iterator<Item = Duration>) -> Duration {
    calls.max().unwrap_or_default()
}

/// The longest of many tries of keys that are there.
fn existing(limiter: &KeyedLimiter<u64>, keys: u64) -> Duration {
    longest((0..CALLS).map(|_| fastrand::u64(0..keys)).map(|key| timed(|| drop(limiter.try_acquire(&key, 1))).0))
}

/// The longest of many tries of keys that are new.
fn newcomers(limiter: &KeyedLimiter<u64>, keys: u64) -> Duration {
    longest((keys..keys + CALLS).map(|key| timed(|| drop(limiter.try_acquire(&key, 1))).0))
}

type Row = (&'static str, Duration);

fn round(limiter: KeyedLimiter<u64>, keys: u64) -> Vec<Row> {
    (0..keys).for_each(|key| drop(limiter.try_acquire(&key, 9)));
    let mut rows = vec![("existing key, no change", existing(&limiter, keys))];
    rows.push(("snapshot", timed(|| limiter.snapshot()).0));
    rows.push(("set_quota", timed(|| limiter.set_quota(quota(101))).0));
    rows.push(("first new keys after it", newcomers(&limiter, keys)));
    rows.push(("set_quota again", timed(|| limiter.set_quota(quota(102))).0));
    rows.push(("existing keys after it", existing(&limiter, keys)));
    let mut longest_of_many = Duration::ZERO;
    for hours in 2..42 {
        let rare = Quota::new(1, Duration::from_secs(3_600 * hours)).burst(100 + hours);
        longest_of_many = longest_of_many.max(timed(|| limiter.set_quota(rare)).0);
    }
    rows.push(("the longest of 40 set_quota in a row", longest_of_many));
    rows.push(("existing keys after them", existing(&limiter, keys)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _inside = runtime.enter();
    let waited_on: Vec<u64> = (0..WAITERS).collect();
    let mut waits: Vec<Pin<Box<_>>> = waited_on.iter().map(|key| Box::pin(limiter.consume(key, 200))).collect();
    for wait in &mut waits {
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    rows.push(("snapshot, 60,000 wait", timed(|| limiter.snapshot()).0));
    rows.push(("set_quota, 60,000 wait", timed(|| limiter.set_quota(quota(103))).0));
    drop(waits);
    rows.push(("new keys, 60,000 have left", newcomers(&limiter, keys)));
    rows.push(("close", timed(|| limiter.close()).0));
    rows
}

pub fn report(options: &Options) {
    let keys = options.keys;
    let builders: [(&str, &dyn Fn() -> KeyedLimiter<u64>); 3] = [
        ("no bound", &|| KeyedLimiter::builder().quota(quota(100)).build().expect("valid")),
        ("max_keys", &|| KeyedLimiter::builder().quota(quota(100)).max_keys(keys).build().expect("valid")),
        ("max_keys, quota_by", &|| {
            KeyedLimiter::builder().quota_by(|key| quota(100 + key % 3)).max_keys(keys).build().expect("valid")
        }),
    ];
    for (title, build) in builders {
        let rounds: Vec<Vec<Row>> = (0..options.rounds).map(|_| round(build(), keys)).collect();
        println!("\nlongest single call, {keys} keys, {title}: median of {} rounds\n", rounds.len());
        for (index, (name, _)) in rounds[0].iter().enumerate() {
            let mut figures: Vec<Duration> = rounds.iter().map(|rows| rows[index].1).collect();
            figures.sort();
            println!("{name:40} {:10.3} ms", figures[figures.len() / 2].as_secs_f64() * 1e3);
        }
    }
}
