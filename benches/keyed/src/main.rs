//! Benchmarks of keyed limiters, one subcommand for each.
//!
//! ```text
//! cargo run --release --manifest-path benches/keyed/Cargo.toml -- all
//! ```
//!
//! Contenders take turns, round by round, in one process. Compare the ratios and medians.

mod bare;
mod calls;
mod churn;
#[allow(dead_code, reason = "only a part of it is measured")]
#[path = "../../../src/keyed/groups.rs"]
mod groups;
mod heap;
mod maps;
mod stalls;
mod state;
mod waiters;

/// As in `src/keyed/mod.rs`.
fn mix(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

#[derive(clap::Parser)]
enum Command {
    /// Bytes per key, at several numbers of keys
    Memory,
    /// A random existing key of a million, granted, and a hot key
    Calls(calls::Options),
    /// Ten million keys through a bound of a hundred thousand
    Churn,
    /// A hundred thousand keys with waiters, compared with one limiter
    Waiters(waiters::Options),
    /// The longest single calls on a map of a million keys
    Stalls(stalls::Options),
    /// Saving and restoring a million keys
    State,
    /// The candidates for the map underneath
    Maps,
    /// All of them
    All,
}

fn main() {
    match clap::Parser::parse() {
        Command::Memory => calls::memory(),
        Command::Calls(options) => calls::report(&options),
        Command::Churn => churn::report(),
        Command::Waiters(options) => waiters::report(&options),
        Command::Stalls(options) => stalls::report(&options),
        Command::State => state::report(),
        Command::Maps => maps::report(),
        Command::All => {
            calls::memory();
            calls::report(&calls::Options::default());
            churn::report();
            waiters::report(&waiters::Options::default());
            stalls::report(&stalls::Options::default());
            state::report();
            maps::report();
        }
    }
}
