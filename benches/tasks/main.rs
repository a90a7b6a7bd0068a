//! What does a grant cost while many tasks wait, in CPU time of the whole process? In classes of one limiter, compared
//! with one queue, and with a lower bound for the same tasks without a limiter (`bare.rs`); on many threads and in many
//! runtimes, compared with one runtime. Each measured number is a line: case, contender, measure and number, separated
//! by tabs.
//!
//! Tasks begin in random order: the processor fetches ahead what is read in the order of memory, and no program that does
//! more than to wait has its tasks in that order.
//!
//! ```sh
//! cargo bench --bench tasks [-- --quick]
//! ```

mod bare;
mod drivers;

use std::cell::Cell;
use std::future::{Future, pending};
use std::rc::Rc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::sleep;
use tollgate::{AsLimiter, Limiter, Quota, Share};

const TASKS: usize = 10_000;
const RATE: u64 = 100_000;
const TIME: Duration = Duration::from_millis(500);
/// In which each task has its turn twice.
const WARM_UP: Duration = Duration::from_millis(200);

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    for _ in 0..if quick { 3 } else { 11 } {
        for count in [0, 2, 100, 10_000] {
            let name = if count == 0 { "one queue".to_owned() } else { format!("{count} classes") };
            print("classes", &name, "us", in_classes(count));
            print("classes, without a limiter", &name, "us", bare::per_grant(count));
        }
    }
    (0..if quick { 1 } else { 3 }).for_each(|_| drivers::run());
}

/// Prints microseconds.
fn print(case: &str, name: &str, measure: &str, seconds: f64) {
    println!("{case}\t{name}\t{measure}\t{}", seconds * 1e6);
}

/// The CPU time of all threads, of each as of when it last slept.
fn cpu_seconds() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
    // A thread that has just ended has no such file.
    let nanos = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() * 1e-9
}

fn in_classes(count: usize) -> f64 {
    let builder = Limiter::builder().quota(Quota::per_second(RATE).burst(100));
    if count == 0 {
        let limiter = builder.build().expect("a quota");
        return in_queues(&[limiter]);
    }
    let limiter = builder.classes().build().expect("a quota");
    let share = |index: usize| Share::weight(1 + index as u64 % 3);
    let class = |index: usize| limiter.class(format!("{index}"), share(index)).expect("a valid share");
    in_queues(&(0..count).map(class).collect::<Vec<_>>())
}

/// Equally many tasks wait in each queue.
fn in_queues<L: AsLimiter + 'static>(queues: &[L]) -> f64 {
    let wait = |task: usize| {
        let queue = queues[task % queues.len()].clone();
        async move |_: usize| drop(queue.clone().consume_owned(1).await.expect("open"))
    };
    per_grant(wait, pending())
}

/// The CPU time of a grant while all tasks wait, and another future runs beside them.
fn per_grant<W: AsyncFn(usize) + 'static>(
    wait: impl Fn(usize) -> W,
    beside: impl Future<Output = ()> + 'static,
) -> f64 {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let local = LocalSet::new();
    let grants = Rc::new(Cell::new(0_u64));
    let (mut signals, begins): (Vec<_>, Vec<_>) = (0..TASKS).map(|_| oneshot::channel()).unzip();
    for (task, begins) in begins.into_iter().enumerate() {
        let (wait, grants) = (wait(task), Rc::clone(&grants));
        local.spawn_local(async move {
            begins.await.expect("a signal");
            loop {
                wait(task).await;
                grants.set(grants.get() + 1);
            }
        });
    }
    fastrand::Rng::with_seed(18).shuffle(&mut signals);
    runtime.block_on(local.run_until(async {
        sleep(Duration::from_millis(1)).await;
        signals.into_iter().for_each(|signal| signal.send(()).expect("the task waits"));
        spawn_local(beside);
        sleep(WARM_UP).await;
        let before = (cpu_seconds(), grants.get());
        sleep(TIME).await;
        (cpu_seconds() - before.0) / (grants.get() - before.1) as f64
    }))
}
