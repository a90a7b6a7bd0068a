//! A quota per user on several nodes: the cost of the many users with a single call, of a busy user, and of a user that
//! ignores refusals.
//!
//! ```text
//! cargo run --release -p tollgate-redis --example fleet_keys
//! cargo run --release -p tollgate-redis --example fleet_keys -- --nodes 8 --keys 200000 --seconds 10
//! ```
//!
//! It starts a Redis of its own on a free loopback port, and uses no other. The nodes are tasks of this process, each
//! with a connection, a limiter and a memory of its own; they share only Redis. Three kinds of users call on every
//! node: users with a single call, busy users with more tasks than their quota can serve, and stubborn users that retry
//! as soon as they are refused. The last line printed is machine-readable. The exit code is 1 if a user was granted
//! more than the quota, and 2 if the program could not run.

#[path = "../../../examples/fleet_sim/law.rs"]
#[allow(dead_code, reason = "this program has no instants of other processes")]
mod law;
#[path = "fleet/server.rs"]
mod server;

use clap::{Parser, value_parser};
use law::{Batch, Law};
use server::Server;
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout_at};
use tollgate::{KeyedLimiter, Quota};
use tollgate_redis::RedisStore;

type Failure = Box<dyn Error + Send + Sync>;
type Users = KeyedLimiter<u64>;

/// The quota of each user, in tokens per second and burst.
const LAW: Law = Law { rate: 200, burst: 20 };
const BUSY: u64 = 5;
const STUBBORN: u64 = 20;
/// The number of tasks of each busy user on each node.
const CALLERS: u64 = 40;
/// The number of single-call users at a time on each node.
const ABREAST: u64 = 16;
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Let several nodes share the quota of each of many users through a Redis of their own
#[derive(Clone, Parser)]
struct Options {
    /// Nodes that share the quotas
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u64).range(1..=100))]
    nodes: u64,
    /// Users with a single call, on all nodes together
    #[arg(long, default_value_t = 30_000, value_parser = value_parser!(u64).range(1..))]
    keys: u64,
    /// Seconds to run for the users with many calls
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u64).range(1..))]
    seconds: u64,
}

fn main() -> ExitCode {
    run(&Options::parse()).unwrap_or_else(|error| {
        eprintln!("fleet_keys: {error}");
        ExitCode::from(2)
    })
}

/// The limiters of one kind of users on each node, and the grants of those users.
struct Kind {
    nodes: Vec<Users>,
    grants: Mutex<Vec<Vec<Batch>>>,
    tries: AtomicU64,
    began: Instant,
}

impl Kind {
    async fn on(url: &str, name: &str, users: u64, options: &Options) -> Result<Arc<Kind>, Failure> {
        let mut nodes = Vec::new();
        for _ in 0..options.nodes {
            let store = RedisStore::connect(url, name).await?;
            let quota = Quota::per_second(LAW.rate).burst(LAW.burst);
            nodes.push(KeyedLimiter::builder().quota(quota).max_keys(10_000).distributed(store).build()?);
        }
        let grants = Mutex::new(vec![Vec::new(); users as usize]);
        Ok(Arc::new(Kind { nodes, grants, tries: AtomicU64::new(0), began: Instant::now() }))
    }

    /// A call of a user on a node; true if a token was granted.
    async fn call(&self, node: usize, key: u64, max_wait: Option<Duration>) -> bool {
        self.tries.fetch_add(1, Relaxed);
        let claim = self.nodes[node].consume(&key, 1);
        let claim = if let Some(max_wait) = max_wait { claim.within(max_wait) } else { claim };
        let is_granted = claim.await.is_ok();
        if is_granted {
            self.note(key);
        }
        is_granted
    }

    fn note(&self, key: u64) {
        let at = self.began.elapsed().as_nanos() as u64;
        self.grants.lock().expect("no thread panics with the lock")[key as usize].push(Batch {
            first: at,
            last: at,
            tokens: 1,
        });
    }

    /// The tokens granted to all users, the fewest and the most of one user, and the worst excess.
    fn judge(&self) -> Verdict {
        let mut verdict = Verdict { tokens: 0, least: u64::MAX, most: 0, excess: 0 };
        for batches in self.grants.lock().expect("no thread panics with the lock").iter_mut() {
            batches.sort_by_key(|batch| batch.last);
            let tokens = batches.len() as u64;
            verdict.tokens += tokens;
            verdict.least = verdict.least.min(tokens);
            verdict.most = verdict.most.max(tokens);
            verdict.excess = verdict.excess.max(LAW.excess_since(0, batches));
        }
        verdict
    }

    fn trips(&self) -> u64 {
        self.nodes.iter().map(|node| node.snapshot().store.unwrap().round_trips).sum()
    }
}

struct Verdict {
    tokens: u64,
    least: u64,
    most: u64,
    excess: u64,
}

#[tokio::main]
async fn run(options: &Options) -> Result<ExitCode, Failure> {
    let server = Server::start()?;
    let (url, end) = (server.url(), Duration::from_secs(options.seconds));
    let passers = Kind::on(&url, "passers", options.keys, options).await?;
    let busy = Kind::on(&url, "busy", BUSY, options).await?;
    let stubborn = Kind::on(&url, "stubborn", STUBBORN, options).await?;
    let (began, end) = (Instant::now(), tokio::time::Instant::now() + end);
    let stayed = end.into_std() - busy.began;

    let mut staying = JoinSet::new();
    for node in 0..options.nodes as usize {
        for caller in 0..BUSY * CALLERS {
            let busy = Arc::clone(&busy);
            let calls = async move { while busy.call(node, caller % BUSY, None).await {} };
            staying.spawn(timeout_at(end, calls));
        }
        for key in 0..STUBBORN {
            let stubborn = Arc::clone(&stubborn);
            let calls = async move {
                loop {
                    stubborn.call(node, key, Some(Duration::ZERO)).await;
                    sleep(Duration::from_micros(200)).await;
                }
            };
            staying.spawn(timeout_at(end, calls));
        }
    }
    let mut passing = JoinSet::new();
    for caller in 0..options.nodes * ABREAST {
        let (passers, options) = (Arc::clone(&passers), options.clone());
        passing.spawn(async move {
            let node = (caller % options.nodes) as usize;
            for key in (caller..options.keys).step_by((options.nodes * ABREAST) as usize) {
                passers.call(node, key, Some(MAX_WAIT)).await;
                yield_now().await;
            }
        });
    }
    while passing.join_next().await.transpose()?.is_some() {}
    let passed = began.elapsed();
    while staying.join_next().await.transpose()?.is_some() {}
    Ok(report(options, [&passers, &busy, &stubborn], [passed, stayed]))
}

fn report(options: &Options, kinds: [&Kind; 3], [passed, stayed]: [Duration; 2]) -> ExitCode {
    println!("each user: {} tokens per second, {} at once; on {} nodes", LAW.rate, LAW.burst, options.nodes);
    println!(
        "{:<10} {:>8} {:>9} {:>9} {:>10} {:>9} {:>10}",
        "", "users", "calls", "tokens", "each", "trips", "per 1,000"
    );
    let judged = ["passers", "busy", "stubborn"].into_iter().zip(kinds).map(|(name, kind)| {
        let (verdict, trips, tries) = (kind.judge(), kind.trips(), kind.tries.load(Relaxed));
        let users = kind.grants.lock().expect("no thread panics with the lock").len();
        let per_thousand = trips as f64 * 1_000.0 / verdict.tokens.max(1) as f64;
        let each = format!("{}-{}", verdict.least, verdict.most);
        let tokens = verdict.tokens;
        println!("{name:<10} {users:>8} {tries:>9} {tokens:>9} {each:>10} {trips:>9} {per_thousand:>10.0}");
        let allowed = (LAW.burst as f64 + LAW.rate as f64 * stayed.as_secs_f64()) * users as f64;
        (verdict, per_thousand, tokens as f64 / allowed, trips as f64 / tries as f64)
    });
    let judged: Vec<_> = judged.collect();
    println!("the single calls took {:.1} s", passed.as_secs_f64());
    let excess = judged.iter().map(|(verdict, ..)| verdict.excess).max().unwrap_or(0);
    let served = judged[0].0.tokens as f64 / options.keys as f64;
    println!(
        "fleet_keys: served={served:.3} excess={excess} trips_per_passer={:.2} busy={:.3} busy_per_1000={:.0} \
         stubborn={:.3} stubborn_per_1000={:.0} stubborn_trips_per_call={:.3}",
        judged[0].1 / 1_000.0,
        judged[1].2,
        judged[1].1,
        judged[2].2,
        judged[2].1,
        judged[2].3,
    );
    ExitCode::from(u8::from(excess > 0 || served < 1.0))
}
