//! What does a grant cost when 10,000 tasks wait in classes of one limiter? CPU time of the whole process per grant,
//! compared with as many tasks in one queue. The same ratio without any limiter is printed beside it (`bare/mod.rs`):
//! tasks in many queues are not woken in the order in which they are in memory, and that costs more than the work.
//!
//! Tasks of one queue keep the order in which they began, so they begin twice: in the order in which they are in memory,
//! and shuffled. The processor fetches ahead what is read in the order of memory, and no program that does more than to
//! wait has its tasks in that order. What is judged is classes against one queue if all tasks begin shuffled.
//!
//! ```sh
//! cargo bench --bench classes
//! # The work of the limiter alone, for 100,000 waits in 100 classes; 0 is one queue.
//! valgrind --tool=callgrind --cache-sim=yes --collect-atstart=no --toggle-collect='*serve_counted*' \
//!     target/release/deps/classes-* count 100
//! # One row, shuffled, for a profiler.
//! perf record -e cpu-clock target/release/deps/classes-* time 100
//! ```

mod bare;
mod by_hand;
mod cpu;
mod start;

use start::Start;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio::time::sleep;
use tollgate::{AsLimiter, Builder as LimiterBuilder, Class, Limiter, Quota, Share};

const TASKS: usize = 10_000;
const RATE: u64 = 100_000;
const TIME: Duration = Duration::from_millis(500);
/// In which each task has its turn twice.
const WARM_UP: Duration = Duration::from_millis(200);
const ROUNDS: usize = 11;

/// The number of classes, and the largest ratio to the cost of a grant without classes.
const CASES: [(usize, f64); 3] = [(2, 1.2), (100, 1.4), (10_000, 2.0)];

/// What a grant costs, by [`Start`].
type Costs = [f64; 2];

/// Ratios of a case in one round.
struct Ratios {
    /// Both begin in the order of memory.
    in_order: f64,
    /// Both begin shuffled.
    shuffled: f64,
    /// The classes begin shuffled, and the queue in the order of memory.
    crossed: f64,
}

impl Ratios {
    fn new(classes: Costs, queue: Costs) -> Self {
        Self { in_order: classes[0] / queue[0], shuffled: classes[1] / queue[1], crossed: classes[1] / queue[0] }
    }
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).take_while(|argument| argument != "--bench").collect();
    if let [command, classes] = &arguments[..] {
        let classes = classes.parse().expect("a number of classes");
        return match &command[..] {
            "count" => by_hand::run(TASKS, classes),
            "time" => println!("{:.0} ns", of_limiter(Start::Shuffled, classes) * 1e9),
            other => panic!("{other}? It is `count` or `time`, and a number of classes."),
        };
    }
    let mut ratios = CASES.map(|_| (Vec::new(), Vec::new()));
    for round in 0..ROUNDS {
        let queue = Start::BOTH.map(|start| of_limiter(start, 0));
        let bare_queue = Start::BOTH.map(|start| bare::per_grant(start, TASKS, 0, RATE, TIME));
        print_costs(round, "one queue", queue, bare_queue);
        for ((classes, _), (ratios, bare_ratios)) in CASES.iter().zip(&mut ratios) {
            let costs = Start::BOTH.map(|start| of_limiter(start, *classes));
            let bare = Start::BOTH.map(|start| bare::per_grant(start, TASKS, *classes, RATE, TIME));
            print_costs(round, &format!("{classes} classes"), costs, bare);
            ratios.push(Ratios::new(costs, queue));
            bare_ratios.push(Ratios::new(bare, bare_queue));
        }
    }
    println!("\nmedian ratios to one queue; behind each the same without a limiter");
    println!(
        "{:>8} {:>15} {:>5} {:>7} {:>20} {:>20}",
        "classes", "both shuffled", "must", "", "both in order", "shuffled / in order"
    );
    for ((classes, must), (ratios, bare)) in CASES.iter().zip(&ratios) {
        let pair = |of: fn(&Ratios) -> f64| (median(ratios, of), median(bare, of));
        let [shuffled, in_order, crossed] = [pair(|it| it.shuffled), pair(|it| it.in_order), pair(|it| it.crossed)];
        let verdict = if shuffled.0 <= *must { "ok" } else { "MISSED" };
        let text = |(ratio, bare): (f64, f64)| format!("{ratio:.2} ({bare:.2})");
        let [shuffled, in_order, crossed] = [shuffled, in_order, crossed].map(text);
        println!("{classes:>8} {shuffled:>15} {must:>5} {verdict:>7} {in_order:>20} {crossed:>20}");
    }
}

fn print_costs(round: usize, what: &str, limiter: Costs, bare: Costs) {
    let nanos = |costs: Costs| format!("{:.0}, {:.0}", costs[0] * 1e9, costs[1] * 1e9);
    println!("{round}: {what:<15} ns in order, shuffled: {:>12}; bare {:>12}", nanos(limiter), nanos(bare));
}

fn median(ratios: &[Ratios], of: fn(&Ratios) -> f64) -> f64 {
    let mut ratios: Vec<_> = ratios.iter().map(of).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// A limiter, and so many classes of it.
fn limiter_with(builder: LimiterBuilder, classes: usize) -> (Limiter, Vec<Class>) {
    let limiter = builder.classes().build().expect("a quota");
    let share = |index: usize| Share::weight(1 + index as u64 % 3);
    let classes = (0..classes).map(|index| limiter.class(format!("{index}"), share(index)).expect("a valid share"));
    let classes = classes.collect();
    (limiter, classes)
}

fn quota() -> Quota {
    Quota::per_second(RATE).burst(100)
}

fn of_limiter(start: Start, classes: usize) -> f64 {
    if classes == 0 {
        let limiter = Limiter::new(quota()).expect("a quota");
        return per_grant(start, &limiter, std::slice::from_ref(&limiter));
    }
    let (limiter, classes) = limiter_with(Limiter::builder().quota(quota()), classes);
    per_grant(start, &limiter, &classes)
}

/// Returns the CPU time of a grant while all tasks wait, equally many in each queue.
fn per_grant<L: AsLimiter>(start: Start, limiter: &Limiter, queues: &[L]) -> f64 {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let local = LocalSet::new();
    let grants = Rc::new(Cell::new(0_u64));
    let (signals, begins) = start.signals(TASKS);
    for (task, begins) in begins.into_iter().enumerate() {
        let (queue, grants) = (queues[task % queues.len()].clone(), Rc::clone(&grants));
        local.spawn_local(async move {
            begins.await.expect("a signal");
            while let Ok(grant) = queue.clone().consume_owned(1).await {
                drop(grant);
                grants.set(grants.get() + 1);
            }
        });
    }
    runtime.block_on(local.run_until(async {
        sleep(Duration::from_millis(1)).await;
        signals.send();
        sleep(WARM_UP).await;
        let before = (cpu::seconds(), grants.get());
        sleep(TIME).await;
        let after = (cpu::seconds(), grants.get());
        limiter.close();
        (after.0 - before.0) / (after.1 - before.1) as f64
    }))
}
