//! What does a grant cost when 10,000 tasks wait in classes of one limiter? CPU time of the whole process per grant,
//! compared with as many tasks in one queue. The same ratio without any limiter is printed beside it (`bare/mod.rs`):
//! tasks in many queues are not woken in the order in which they are in memory, and that costs more than the work.
//!
//! ```sh
//! cargo bench --bench classes
//! ```

mod bare;
mod cpu;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio::time::sleep;
use tollgate::{AsLimiter, Limiter, Quota, Share};

const TASKS: usize = 10_000;
const RATE: u64 = 100_000;
const TIME: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;

/// The number of classes, and the largest ratio to the cost of a grant without classes.
const CASES: [(usize, f64); 3] = [(2, 1.2), (100, 1.4), (10_000, 2.0)];

fn main() {
    println!("{:<14} {:>14} {:>8} {:>8} {:>8}", "", "us of CPU each", "ratio", "must", "bare");
    let mut ratios = CASES.map(|_| Vec::new());
    let mut bare_ratios = CASES.map(|_| Vec::new());
    for round in 0..ROUNDS {
        let quota = Quota::per_second(RATE).burst(100);
        let limiter = Limiter::new(quota).expect("a quota");
        let alone = per_grant(&limiter, std::slice::from_ref(&limiter));
        println!("{:<14} {alone:>14.2} {:>8}", format!("one queue, {round}"), 1);
        let bare_alone = bare::per_grant(TASKS, 0, RATE, TIME);
        for (((classes, must), ratios), bare_ratios) in CASES.iter().zip(&mut ratios).zip(&mut bare_ratios) {
            let limiter = Limiter::builder().quota(quota).classes().build().expect("a quota");
            let share = |index: usize| Share::weight(1 + index as u64 % 3);
            let classes: Vec<_> = (0..*classes)
                .map(|index| limiter.class(format!("{index}"), share(index)).expect("a valid share"))
                .collect();
            let cost = per_grant(&limiter, &classes);
            ratios.push(cost / alone);
            let (name, ratio) = (format!("{} classes", classes.len()), cost / alone);
            let bare = bare::per_grant(TASKS, classes.len(), RATE, TIME) / bare_alone;
            bare_ratios.push(bare);
            println!("{name:<14} {cost:>14.2} {ratio:>8.2} {must:>8} {bare:>8.2}");
        }
    }
    for (((classes, must), ratios), bare) in CASES.iter().zip(ratios).zip(bare_ratios) {
        let (ratio, bare) = (median(ratios), median(bare));
        let verdict = if ratio <= *must { "ok" } else { "MISSED" };
        println!("{classes} classes: median {ratio:.2}, must {must}: {verdict}; bare {bare:.2}");
    }
}

fn median(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios[ROUNDS / 2]
}

/// Returns the CPU time of a grant while all tasks wait, equally many in each queue.
fn per_grant<L: AsLimiter>(limiter: &Limiter, queues: &[L]) -> f64 {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let local = LocalSet::new();
    let grants = Rc::new(Cell::new(0_u64));
    for task in 0..TASKS {
        let (queue, grants) = (queues[task % queues.len()].clone(), Rc::clone(&grants));
        local.spawn_local(async move {
            while let Ok(grant) = queue.clone().consume_owned(1).await {
                drop(grant);
                grants.set(grants.get() + 1);
            }
        });
    }
    runtime.block_on(local.run_until(async {
        sleep(TIME / 4).await;
        let before = (cpu::seconds(), grants.get());
        sleep(TIME).await;
        let after = (cpu::seconds(), grants.get());
        limiter.close();
        (after.0 - before.0) * 1e6 / (after.1 - before.1) as f64
    }))
}
