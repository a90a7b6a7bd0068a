//! tollgate beside its peers and beside the floor: what the same work costs with bare atomics.
//!
//! ```text
//! cargo run --release --manifest-path benches/peers/Cargo.toml
//! ```
//!
//! All contenders of a table take turns, round by round, in one process, so that a noisy machine is noisy for all of
//! them. What counts are the ratios; nanoseconds only illustrate.

mod awaited;
mod hot;
mod line;
mod table;

use clap::Parser;

/// Measure tollgate, its peers and the floor in one run
#[derive(Parser)]
struct Options {
    /// Rounds that the contenders take in turn; the median counts
    #[arg(long, default_value_t = 25)]
    rounds: usize,
    /// Operations in each round
    #[arg(long, default_value_t = 200_000)]
    operations: u64,
    /// Seconds that each waiting line is watched
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

fn main() {
    let options = Options::parse();
    for threads in [1, 2] {
        let title = format!("try_acquire(1) in a hot loop, never empty, {threads} thread(s) on one limiter");
        table::print(&title, &table::measure(&hot::granted(), threads, options.rounds, options.operations));
    }
    table::print("a refused try_acquire(1)", &table::measure(&hot::denied(), 1, options.rounds, options.operations));
    for tasks in [1, 2] {
        let title = format!("consume(1).await in a hot loop, never empty, {tasks} task(s) on 2 workers");
        table::print(&title, &awaited::measure(tasks, options.rounds, options.operations));
    }
    line::report(options.seconds);
}
