//! A hundred thousand keys, two tasks asking for each again and again, beside as many tasks on one limiter of the same rate
//! in all. On a runtime of one thread, where a task that takes its number and then asks does both before anybody else.

use cpu_time::ThreadTime;
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;
use tollgate::{KeyedLimiter, Limiter, Quota};

const KEYS: usize = 100_000;
const TASKS_PER_KEY: usize = 2;
const WATCHED: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Line {
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
    /// Of the configured rate, the key that had least.
    worst: f64,
}

pub fn report() {
    println!("\n{KEYS} keys at 1/s each, {TASKS_PER_KEY} tasks waiting for each, one thread\n");
    let keyed = KeyedLimiter::<usize>::new(Quota::per_second(1)).expect("valid");
    let ours = watch(KEYS, 1.0, move |key| {
        let keyed = keyed.clone();
        async move { drop(keyed.consume(&key, 1).await.expect("open")) }
    });
    print("keyed", &ours);
    let single = Limiter::new(Quota::per_second(KEYS as u64).burst(1_000)).expect("valid");
    let one = watch(1, KEYS as f64, move |_| {
        let single = single.clone();
        async move { drop(single.consume(1).await.expect("open")) }
    });
    print("one limiter", &one);
    let ratio = ours.cpu_per_grant() / one.cpu_per_grant();
    println!("CPU per grant: {ratio:.2} x the single limiter's");
}

impl Outcome {
    fn cpu_per_grant(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.grants.max(1) as f64 / 1e3
    }
}

fn print(name: &str, outcome: &Outcome) {
    println!(
        "{name:12} {} grants, {:.2} us CPU each, out of order {}, achieved/configured of the worst key {:.4}",
        outcome.grants,
        outcome.cpu_per_grant(),
        outcome.out_of_order,
        outcome.worst
    );
}

fn watch<F: Future<Output = ()> + 'static>(
    lines: usize,
    rate: f64,
    ask: impl Fn(usize) -> F + Clone + 'static,
) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = LocalSet::new();
    let state: Rc<RefCell<Vec<Line>>> = Rc::new(RefCell::new((0..lines).map(|_| Line::default()).collect()));
    // What watching costs is to be the same: with one line the records of keys are not elsewhere in memory, so something is.
    let elsewhere: Rc<RefCell<Vec<[u64; 9]>>> = Rc::new(RefCell::new(vec![[0; 9]; if lines == 1 { KEYS } else { 1 }]));
    let total = KEYS * TASKS_PER_KEY;
    let (cpu, grants) = local.block_on(&runtime, async {
        for task in 0..total {
            let (state, ask, line) = (state.clone(), ask.clone(), task % lines);
            let (elsewhere, other) = (elsewhere.clone(), task % if lines == 1 { KEYS } else { 1 });
            tokio::task::spawn_local(async move {
                loop {
                    let number = {
                        let own = &mut state.borrow_mut()[line];
                        own.asked += 1;
                        own.asked
                    };
                    ask(line).await;
                    elsewhere.borrow_mut()[other][0] += 1;
                    let own = &mut state.borrow_mut()[line];
                    own.served += 1;
                    own.out_of_order += u64::from(own.served != number);
                    let now = Instant::now();
                    own.first.get_or_insert(now);
                    own.last = Some(now);
                    own.counted += 1;
                }
            });
            // They come over a second, not all at once.
            if task % 200 == 0 {
                tokio::time::sleep(Duration::from_micros(500)).await;
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        for own in state.borrow_mut().iter_mut() {
            (own.first, own.last, own.counted) = (None, None, 0);
        }
        let cpu = ThreadTime::now();
        tokio::time::sleep(WATCHED).await;
        let grants: u64 = state.borrow().iter().map(|own| own.counted).sum();
        (cpu.elapsed(), grants)
    });
    let lines = state.borrow();
    let achieved = |own: &Line| match (own.first, own.last) {
        (Some(first), Some(last)) if last > first => (own.counted - 1) as f64 / (last - first).as_secs_f64() / rate,
        _ => 0.0,
    };
    Outcome {
        cpu,
        grants,
        out_of_order: lines.iter().map(|own| own.out_of_order).sum(),
        worst: lines.iter().map(achieved).fold(f64::INFINITY, f64::min),
    }
}
