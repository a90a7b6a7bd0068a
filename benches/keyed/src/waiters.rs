//! A hundred thousand keys with two tasks each that claim again and again, compared with as many tasks on one limiter
//! with the same total rate. On a runtime of one thread, where a task that takes its number and then claims does both
//! before any other task.

use crate::bare::Bare;
use cpu_time::ThreadTime;
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;
use tollgate::{KeyedLimiter, Limiter, Quota};

/// Grants per second of all keys together.
const RATE: usize = 100_000;

#[derive(clap::Args)]
pub struct Options {
    #[arg(long, default_value_t = 100_000)]
    keys: usize,
    #[arg(long, default_value_t = 2)]
    tasks_per_key: usize,
    /// How long each contender is measured after all tasks wait
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// The number of rounds, in which the contenders take turns
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// The number of shards, instead of the default
    #[arg(long)]
    shards: Option<usize>,
    /// Only this contender: keyed, one or floor
    #[arg(long)]
    only: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { keys: 100_000, tasks_per_key: 2, seconds: 10.0, rounds: 1, shards: None, only: None }
    }
}

#[derive(Default)]
struct QueueRecord {
    asked: u64,
    served: u64,
    out_of_order: u64,
    first: Option<Instant>,
    last: Option<Instant>,
    counted: u64,
}

struct Outcome {
    cpu: Duration,
    grants: u64,
    out_of_order: u64,
    /// The share of the configured rate that the worst key got.
    worst: f64,
}

pub fn report(options: &Options) {
    let Options { keys, tasks_per_key, rounds, .. } = *options;
    let per_key = (RATE / keys).max(1) as u64;
    println!("\n{keys} keys at {per_key}/s each, {tasks_per_key} tasks waiting for each, one thread\n");
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| only == name);
    let mut prices: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        if wanted("keyed") {
            let builder = KeyedLimiter::<usize>::builder().quota(Quota::per_second(per_key).burst(1));
            let builder = options.shards.into_iter().fold(builder, |builder, shards| builder.shards(shards));
            let keyed = builder.build().expect("valid");
            let ours = watch(options, keys, per_key as f64, move |key| {
                let keyed = keyed.clone();
                async move { drop(keyed.consume(&key, 1).await.expect("open")) }
            });
            print("keyed", &ours, &mut prices[0]);
        }
        if wanted("one") {
            let single = Limiter::new(Quota::per_second(RATE as u64).burst(1_000)).expect("valid");
            let one = watch(options, 1, RATE as f64, move |_| {
                let single = single.clone();
                async move { drop(single.consume(1).await.expect("open")) }
            });
            print("one limiter", &one, &mut prices[1]);
        }
        if wanted("floor") {
            let bare = Bare::new(Duration::from_secs(1) / per_key as u32);
            let floor = watch(options, keys, per_key as f64, move |key| bare.clone().wait(key));
            print("floor", &floor, &mut prices[2]);
        }
    }
    let [ours, one, floor] = prices.map(|mut prices| {
        prices.sort_by(f64::total_cmp);
        prices.get(prices.len() / 2).copied()
    });
    if let (Some(ours), Some(one)) = (ours, one) {
        println!("CPU per grant, medians: {ours:.2} and {one:.2} us, {:.2} x the single limiter's", ours / one);
    }
    if let (Some(floor), Some(one)) = (floor, one) {
        println!("the floor: {floor:.2} us, {:.2} x", floor / one);
    }
}

impl Outcome {
    fn cpu_per_grant(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.grants.max(1) as f64 / 1e3
    }
}

fn print(name: &str, outcome: &Outcome, prices: &mut Vec<f64>) {
    prices.push(outcome.cpu_per_grant());
    println!(
        "{name:12} {} grants, {:.2} us CPU each, out of order {}, achieved/configured of the worst key {:.4}",
        outcome.grants,
        outcome.cpu_per_grant(),
        outcome.out_of_order,
        outcome.worst
    );
}

fn watch<F: Future<Output = ()> + 'static>(
    options: &Options,
    queues: usize,
    rate: f64,
    ask: impl Fn(usize) -> F + Clone + 'static,
) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = LocalSet::new();
    let state: Rc<RefCell<Vec<QueueRecord>>> =
        Rc::new(RefCell::new((0..queues).map(|_| QueueRecord::default()).collect()));
    let others = if queues == 1 { options.keys } else { 1 };
    // The cost of measuring must be the same: with one queue the records of the keys would not be spread in memory, so
    // other memory is touched instead.
    let elsewhere: Rc<RefCell<Vec<[u64; 9]>>> = Rc::new(RefCell::new(vec![[0; 9]; others]));
    let total = options.keys * options.tasks_per_key;
    let (cpu, grants) = local.block_on(&runtime, async {
        for task in 0..total {
            let (state, ask, queue) = (state.clone(), ask.clone(), task % queues);
            let (elsewhere, other) = (elsewhere.clone(), task % others);
            tokio::task::spawn_local(async move {
                loop {
                    let number = {
                        let own = &mut state.borrow_mut()[queue];
                        own.asked += 1;
                        own.asked
                    };
                    ask(queue).await;
                    elsewhere.borrow_mut()[other][0] += 1;
                    let own = &mut state.borrow_mut()[queue];
                    own.served += 1;
                    own.out_of_order += u64::from(own.served != number);
                    let now = Instant::now();
                    own.first.get_or_insert(now);
                    own.last = Some(now);
                    own.counted += 1;
                }
            });
            // They arrive over a second, not all at once.
            if task % 200 == 0 {
                tokio::time::sleep(Duration::from_micros(500)).await;
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        for own in state.borrow_mut().iter_mut() {
            (own.first, own.last, own.counted) = (None, None, 0);
        }
        let cpu = ThreadTime::now();
        tokio::time::sleep(Duration::from_secs_f64(options.seconds)).await;
        let grants: u64 = state.borrow().iter().map(|own| own.counted).sum();
        (cpu.elapsed(), grants)
    });
    let queues = state.borrow();
    let achieved = |own: &QueueRecord| match (own.first, own.last) {
        (Some(first), Some(last)) if last > first => (own.counted - 1) as f64 / (last - first).as_secs_f64() / rate,
        _ => 0.0,
    };
    Outcome {
        cpu,
        grants,
        out_of_order: queues.iter().map(|own| own.out_of_order).sum(),
        worst: queues.iter().map(achieved).fold(f64::INFINITY, f64::min),
    }
}
