//! Many keys on several nodes, and a Redis that stalls for a moment: how long it takes to recover.
//!
//! ```text
//! cargo run --release -p tollgate-redis --example fleet_stall
//! cargo run --release -p tollgate-redis --example fleet_stall -- --nodes 4 --rate 2250 --keys 10000 --runs 20
//! ```
//!
//! It starts a Redis of its own for each run, stops its process for 1.5 seconds (SIGSTOP), and continues it. Calls are
//! made all the time, at random keys, whether earlier ones were granted or not. The nodes have *recovered* when as many
//! calls are granted in 100 ms as are made in 100 ms. They have *caught up* when every call made by then is granted;
//! how long that takes depends on how much faster than the calls the machine is. The last line printed is
//! machine-readable. The exit code is 1 if a run made more than four connections per node or did not recover within
//! half a second, and 2 if it could not run.

#[path = "fleet/server.rs"]
mod server;

use clap::Parser;
use server::{Server, info};
use std::collections::VecDeque;
use std::error::Error;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::time::{interval, sleep};
use tollgate::{KeyedLimiter, Quota};
use tollgate_redis::RedisStore;

type Failure = Box<dyn Error + Send + Sync>;

const STALL: Duration = Duration::from_millis(1_500);
const WARM_UP: Duration = Duration::from_millis(1_000);
const LONGEST: Duration = Duration::from_secs(10);
/// The example fails if the nodes have not recovered after this time.
const TARGET: Duration = Duration::from_millis(500);
/// Grants are counted over this time.
const WINDOW: Duration = Duration::from_millis(100);
const TICK: Duration = Duration::from_millis(5);

/// Stop a Redis for a moment under keyed limiters
#[derive(Clone, Parser)]
struct Options {
    /// Nodes that share the keys
    #[arg(long, default_value_t = 4)]
    nodes: usize,
    /// Calls per second on each node
    #[arg(long, default_value_t = 2_250)]
    rate: u64,
    /// Keys that are called at random
    #[arg(long, default_value_t = 10_000)]
    keys: u64,
    /// The number of runs
    #[arg(long, default_value_t = 20)]
    runs: usize,
}

#[derive(Default)]
struct Counts {
    made: AtomicU64,
    granted: AtomicU64,
}

struct Run {
    recovered: Option<Duration>,
    caught_up: Option<Duration>,
    /// New connections of all nodes together: each node has one before the stall.
    connections: u64,
    /// Grants in the second after the stall, per call made in it.
    granted: f64,
    calls: u64,
    asks: u64,
}

fn main() -> ExitCode {
    match run_all(&Options::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("fleet_stall: {error}");
            ExitCode::from(2)
        }
    }
}

fn run_all(options: &Options) -> Result<ExitCode, Failure> {
    let mut runs = Vec::new();
    for number in 1..=options.runs {
        // A runtime of its own for each run: calls of an earlier run that still wait end with it.
        let runtime = tokio::runtime::Runtime::new()?;
        let run = runtime.block_on(run_once(options))?;
        runtime.shutdown_background();
        println!(
            "run {number:>2}: recovered after {:?}, caught up after {:?}, {} new connections of {} nodes, {} requests for {} calls, \
             {:.2} grants per call in the next second",
            run.recovered, run.caught_up, run.connections, options.nodes, run.asks, run.calls, run.granted
        );
        runs.push(run);
    }
    let mut times: Vec<Duration> = runs.iter().map(|run| run.recovered.unwrap_or(LONGEST)).collect();
    times.sort();
    let connections = runs.iter().map(|run| run.connections).max().unwrap_or(0);
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    let in_time = times.iter().filter(|time| **time <= TARGET).count();
    println!(
        "fleet_stall: runs={} median_ms={} worst_ms={} within_500_ms={in_time} new_connections={connections}",
        runs.len(),
        median.as_millis(),
        worst.as_millis()
    );
    Ok(ExitCode::from(u8::from(connections > 3 * options.nodes as u64 || worst > TARGET)))
}

async fn run_once(options: &Options) -> Result<Run, Failure> {
    let server = Server::start()?;
    let (mut stores, mut callers) = (Vec::new(), Vec::new());
    let counts = Arc::new(Counts::default());
    for node in 0..options.nodes {
        let store = RedisStore::connect(&*server.url(), "users").await?;
        stores.push(store.clone());
        let quota = Quota::per_second(100).burst(100);
        let users = KeyedLimiter::builder().quota(quota).max_keys(100_000).distributed(store).build()?;
        callers.push(tokio::spawn(call(users, node as u64, options.clone(), Arc::clone(&counts))));
    }
    sleep(WARM_UP).await;
    let process = number(&server.url(), "server", "process_id")?;
    let connections = number(&server.url(), "stats", "total_connections_received")?;
    signal("-STOP", process)?;
    sleep(STALL).await;
    signal("-CONT", process)?;
    let (continued, before) = (Instant::now(), counts.granted.load(Relaxed));
    let (mut recovered, mut caught_up, mut granted) = (None, None, None);
    let mut recent = VecDeque::from([(continued, before)]);
    while caught_up.is_none() || recovered.is_none() || granted.is_none() {
        let made = counts.made.load(Relaxed);
        sleep(TICK).await;
        let elapsed = continued.elapsed();
        recent.push_back((Instant::now(), counts.granted.load(Relaxed)));
        while recent.len() > 2 && recent[1].0.elapsed() >= WINDOW {
            recent.pop_front();
        }
        let (since, then) = recent[0];
        let due = since.elapsed().as_secs_f64() * (options.rate * options.nodes as u64) as f64;
        if recovered.is_none()
            && since.elapsed() >= WINDOW
            && (counts.granted.load(Relaxed) - then) as f64 >= 0.95 * due
        {
            recovered = Some(elapsed);
        }
        // Calls made within the last round trips are not waited for.
        let on_their_way = options.rate * options.nodes as u64 / 100;
        if caught_up.is_none() && counts.granted.load(Relaxed) + on_their_way >= made {
            caught_up = Some(elapsed);
        }
        if granted.is_none() && elapsed >= Duration::from_secs(1) {
            let came = elapsed.as_secs_f64() * (options.rate * options.nodes as u64) as f64;
            granted = Some((counts.granted.load(Relaxed) - before) as f64 / came);
        }
        if elapsed > LONGEST {
            break;
        }
    }
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    // Except the connection of this query.
    let connections = number(&server.url(), "stats", "total_connections_received")? - connections - 1;
    if recovered.is_none() {
        for store in &stores {
            println!("not recovered: {:?} {:?}", store.servers(), store.snapshot());
        }
    }
    let asks = stores.iter().map(|store| store.snapshot().round_trips).sum();
    let calls = counts.made.load(Relaxed);
    let due = (WARM_UP + STALL).as_secs_f64() * (options.rate * options.nodes as u64) as f64;
    if (calls as f64) < due / 2.0 {
        return Err(format!("the machine is too busy: {calls} calls were made and {due:.0} were due").into());
    }
    Ok(Run { recovered, caught_up, connections, granted: granted.unwrap_or(0.0), calls, asks })
}

/// A number that Redis reports.
fn number(url: &str, section: &str, name: &str) -> Result<u64, Failure> {
    let text = info(url, section)?;
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    Ok(found.ok_or_else(|| format!("Redis does not report its {name}"))?.trim().parse()?)
}

/// Stops or continues a process.
fn signal(name: &str, process: u64) -> Result<(), Failure> {
    let done = Command::new("kill").args([name, &process.to_string()]).status()?;
    if done.success() { Ok(()) } else { Err(format!("kill {name} {process} failed").into()) }
}

/// Calls at random keys, at the given rate.
async fn call(users: KeyedLimiter<u64>, seed: u64, options: Options, counts: Arc<Counts>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut ticks, mut made, began) = (interval(TICK), 0, Instant::now());
    loop {
        ticks.tick().await;
        let due = (began.elapsed().as_secs_f64() * options.rate as f64) as u64;
        for _ in made..due {
            counts.made.fetch_add(1, Relaxed);
            let (claim, counts) = (users.clone().consume_owned(random.u64(..options.keys), 1), Arc::clone(&counts));
            tokio::spawn(async move {
                if claim.await.is_ok() {
                    counts.granted.fetch_add(1, Relaxed);
                }
            });
        }
        made = due;
    }
}
