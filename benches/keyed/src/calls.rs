//! Memory and calls that do not wait, compared with governor over dashmap.

use crate::heap::alive;
use ahash::RandomState;
use core_affinity::CoreId;
use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::{Barrier, LazyLock};
use std::thread;
use std::time::{Duration, Instant};
use tollgate::{KeyedLimiter, QuantaClock, Quota};

const KEYS: u64 = 1_000_000;
/// A token comes back each minute. All rounds together take less from the hot key.
const BURST: u32 = 36_000_000;

type Governor = governor::RateLimiter<u64, DashMapStateStore<u64, RandomState>, DefaultClock>;

/// A limiter with a quota so slow that every key still owes tokens at the end, and with a burst that is never used up.
fn tollgate<S: BuildHasher + Send + Sync + 'static>(hasher: S, quanta: bool) -> KeyedLimiter<u64, S> {
    let builder =
        KeyedLimiter::builder().quota(Quota::per_minute(1).burst(BURST.into())).unbounded_keys().hasher(hasher);
    let builder = if quanta { builder.clock(QuantaClock::new()) } else { builder };
    builder.build().expect("valid")
}

/// The same with a second quota, with a burst that fits a packed level too.
fn with_two_quotas() -> KeyedLimiter<u64, RandomState> {
    let second = Quota::per_minute(2).burst(BURST.into());
    let builder = KeyedLimiter::builder().quota(Quota::per_minute(1).burst(BURST.into())).quota(second);
    builder.unbounded_keys().hasher(RandomState::new()).build().expect("valid")
}

/// The same with ranks of the keys.
fn ranked() -> KeyedLimiter<u64, RandomState> {
    let builder = KeyedLimiter::builder().quota(Quota::per_minute(1).burst(BURST.into())).unbounded_keys();
    builder.hasher(RandomState::new()).top(Duration::from_secs(10)).build().expect("valid")
}

fn governor() -> Governor {
    let burst = NonZeroU32::new(BURST).expect("not zero");
    let quota = governor::Quota::with_period(Duration::from_secs(60)).expect("not zero").allow_burst(burst);
    governor::RateLimiter::dashmap_with_hasher(quota, RandomState::new())
}

pub fn memory() {
    println!(
        "\nheap bytes per key of u64, all of them in debt\n\n\
         | keys | tollgate | with two quotas | governor + dashmap | ratio |\n|---|---|---|---|---|"
    );
    for keys in [1_000, 100_000, 500_000, 700_000, 800_000, 880_000, 1_000_000, 1_400_000, 2_000_000] {
        let make: [fn() -> KeyedLimiter<u64, RandomState>; 2] =
            [|| tollgate(RandomState::new(), false), with_two_quotas];
        let [mine, two] = make.map(|make| {
            let before = alive();
            let ours = make();
            (0..keys).for_each(|key| assert!(ours.try_acquire(&key, 1).is_ok()));
            (alive() - before) as f64 / keys as f64
        });
        let before = alive();
        let theirs = governor();
        (0..keys).for_each(|key| assert!(theirs.check_key(&key).is_ok()));
        let other = (alive() - before) as f64 / keys as f64;
        println!("| {keys} | {mine:.1} | {two:.1} | {other:.1} | {:.2} |", mine / other);
    }
}

type Work<'a> = Box<dyn Fn(&[u64]) + Sync + 'a>;

fn ours<S: BuildHasher + Send + Sync + 'static>(limiter: KeyedLimiter<u64, S>) -> Work<'static> {
    (0..KEYS).for_each(|key| drop(limiter.try_acquire(&key, 9)));
    Box::new(move |keys| {
        for key in keys {
            assert!(black_box(limiter.try_acquire(key, 1)).is_ok());
        }
    })
}

#[derive(clap::Args)]
pub struct Options {
    /// Only these keys: random or hot
    #[arg(long)]
    keys: Option<String>,
    /// Only this number of threads: 1 or 2
    #[arg(long)]
    threads: Option<usize>,
    /// Only the contenders with this in their name, with or without the first one
    #[arg(long)]
    only: Option<String>,
    #[arg(long, default_value_t = 15)]
    rounds: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { keys: None, threads: None, only: None, rounds: 15 }
    }
}

pub fn report(options: &Options) {
    let theirs = governor();
    (0..KEYS).for_each(|key| assert!(theirs.check_key_n(&key, NonZeroU32::MIN.saturating_add(8)).is_ok()));
    let mut contenders: Vec<(&str, Work<'_>)> = vec![
        (
            "governor + dashmap + ahash",
            Box::new(move |keys| keys.iter().for_each(|key| assert!(black_box(theirs.check_key(key)).is_ok()))),
        ),
        ("tollgate + ahash", ours(tollgate(RandomState::new(), false))),
        ("tollgate + ahash, two quotas", ours(with_two_quotas())),
        ("tollgate + ahash, top", ours(ranked())),
        ("tollgate + ahash, quanta clock", ours(tollgate(RandomState::new(), true))),
        ("tollgate, default hasher", ours(tollgate(std::hash::RandomState::new(), false))),
    ];
    if let Some(only) = &options.only {
        contenders.retain(|(name, _)| name.contains(only.as_str()));
    }
    let random: Vec<u64> = (0..300_000).map(|_| fastrand::u64(0..KEYS)).collect();
    let hot = vec![7_u64; 600_000];
    for (title, keys) in [("random key of 1M", &random), ("hot key", &hot)] {
        for threads in [1, 2] {
            if options.keys.as_ref().is_some_and(|own| !title.starts_with(own.as_str()))
                || options.threads.is_some_and(|own| own != threads)
            {
                continue;
            }
            let rounds: Vec<Vec<f64>> = (0..options.rounds)
                .map(|_| contenders.iter().map(|(_, work)| on_threads(threads, keys, work)).collect())
                .collect();
            println!("\n{title}, granted, {threads} thread(s): median, and ratios of one round, quartiles\n");
            for (index, (name, _)) in contenders.iter().enumerate() {
                let [_, own, _] = quartiles(rounds.iter().map(|round| round[index]));
                let [low, ratio, high] = quartiles(rounds.iter().map(|round| round[index] / round[0]));
                println!("{name:32} {own:6.1} ns  {ratio:.2} x  ({low:.2} to {high:.2})");
            }
        }
    }
}

fn quartiles(figures: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut sorted: Vec<f64> = figures.collect();
    sorted.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| sorted[(sorted.len() - 1) * quarter / 4])
}

/// Nanoseconds per call. Each thread starts at a key of its own, and has a core of its own: otherwise two threads that
/// are woken together may spend a round on one core.
pub fn on_threads(threads: usize, keys: &[u64], work: &(dyn Fn(&[u64]) + Sync)) -> f64 {
    let barrier = Barrier::new(threads);
    // The cores of the process, read before the first thread is bound to one.
    static CORES: LazyLock<Vec<CoreId>> = LazyLock::new(|| core_affinity::get_core_ids().unwrap_or_default());
    let cores = &*CORES;
    let run = |thread: usize| {
        if let Some(core) = cores.get(thread) {
            core_affinity::set_for_current(*core);
        }
        let (back, front) = keys.split_at(keys.len() * thread / threads);
        barrier.wait();
        let start = Instant::now();
        work(front);
        work(back);
        start.elapsed()
    };
    let took = thread::scope(|scope| {
        let run = &run;
        let others: Vec<_> = (1..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        let own = run(0);
        others.into_iter().map(|other| other.join().expect("no panic")).fold(own, Duration::max)
    });
    took.as_nanos() as f64 / keys.len() as f64
}
