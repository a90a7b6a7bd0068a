//! A hundred thousand keys with two tasks each that claim again and again, compared with as many tasks on one limiter
//! with the same total rate. On a runtime of one thread, where a task that takes its number and then claims does both
//! before any other task.

use super::bare::Bare;
use crate::rounds::print;
use cpu_time::ThreadTime;
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;
use tollgate::{KeyedLimiter, Limiter, Quota};

/// Grants per second of all keys together.
const RATE: usize = 100_000;

const KEYS: usize = 100_000;
const TASKS_PER_KEY: usize = 2;

#[derive(Default)]
struct QueueRecord {
    asked: u64,
    served: u64,
    out_of_order: u64,
    first: Option<Instant>,
    last: Option<Instant>,
    counted: u64,
}

/// Prints the CPU time of a grant, claims that were served out of order, and the share of its rate that the worst key got.
pub fn report(seconds: f64) {
    let per_key = (RATE / KEYS).max(1) as u64;
    let keyed = KeyedLimiter::<usize>::builder().quota(Quota::per_second(per_key).burst(1)).build().expect("valid");
    watch("keyed", seconds, KEYS, per_key as f64, move |key| {
        let keyed = keyed.clone();
        async move { drop(keyed.consume(&key, 1).await.expect("open")) }
    });
    let single = Limiter::new(Quota::per_second(RATE as u64).burst(1_000)).expect("valid");
    watch("one limiter", seconds, 1, RATE as f64, move |_| {
        let single = single.clone();
        async move { drop(single.consume(1).await.expect("open")) }
    });
    let bare = Bare::new(Duration::from_secs(1) / per_key as u32);
    watch("floor: a table of wakers", seconds, KEYS, per_key as f64, move |key| bare.clone().wait(key));
}

fn watch<F: Future<Output = ()> + 'static>(
    name: &str,
    seconds: f64,
    queues: usize,
    rate: f64,
    ask: impl Fn(usize) -> F + Clone + 'static,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = LocalSet::new();
    let state: Rc<RefCell<Vec<QueueRecord>>> =
        Rc::new(RefCell::new((0..queues).map(|_| QueueRecord::default()).collect()));
    let others = if queues == 1 { KEYS } else { 1 };
    // The cost of measuring must be the same: with one queue the records of the keys would not be spread in memory, so
    // other memory is touched instead.
    let elsewhere: Rc<RefCell<Vec<[u64; 9]>>> = Rc::new(RefCell::new(vec![[0; 9]; others]));
    let total = KEYS * TASKS_PER_KEY;
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
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        let grants: u64 = state.borrow().iter().map(|own| own.counted).sum();
        (cpu.elapsed(), grants)
    });
    let queues = state.borrow();
    let achieved = |own: &QueueRecord| match (own.first, own.last) {
        (Some(first), Some(last)) if last > first => (own.counted - 1) as f64 / (last - first).as_secs_f64() / rate,
        _ => 0.0,
    };
    let show = |measure, number| print("100,000 keys with 2 waiters each", name, measure, number);
    show("CPU per grant, us", cpu.as_nanos() as f64 / grants.max(1) as f64 / 1e3);
    show("out of order", queues.iter().map(|own| own.out_of_order).sum::<u64>() as f64);
    show("worst key, achieved / configured", queues.iter().map(achieved).fold(f64::INFINITY, f64::min));
}
