//! What one core of Redis serves: one busy quota, 10,000 keys of which few are busy, and keys with a single call. Beside each
//! the same calls with one script of GCRA (`gcra.lua`) per call.
//!
//! ```text
//! cargo bench -p tollgate-redis --bench one_core          # 2 seconds for each line
//! cargo bench -p tollgate-redis --bench one_core -- 10
//! ```
//!
//! It starts a Redis of its own. The server and this program share the machine, so compare the times of the server's process.
//! A call that is refused counts as a call.

#[path = "../../tollgate-postgres/benches/cpu/mod.rs"]
mod cpu;
#[path = "../tests/it/server.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod server;

use cpu::cpu;
use redis::{Script, aio::MultiplexedConnection};
use server::Server;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tollgate::{DistributedKeyedLimiter, Limiter, Quota};
use tollgate_redis::RedisStore;

const NODES: usize = 8;
/// Of each node.
const CALLERS: usize = 8;
const KEYS: u64 = 10_000;
/// Tokens per second, and burst: of the busy quota, which the server should not reach, and of each key.
const BUSY: (u64, u64) = (1_000_000, 100_000);
const KEY: (u64, u64) = (200, 20);

const GCRA: &str = include_str!("gcra.lua");

#[derive(Clone, Copy)]
enum Case {
    /// One quota for all calls.
    Busy,
    /// The key of rank `n` has a share of about `1 / n`.
    Skewed,
    /// A new key for each call.
    Strangers,
}

impl Case {
    fn key(self, call: u64) -> u64 {
        match self {
            Case::Busy => 0,
            Case::Skewed => (KEYS as f64).powf(fastrand::f64()) as u64,
            Case::Strangers => call,
        }
    }
}

/// How one node makes a call.
#[derive(Clone)]
enum Node {
    Quota(Limiter),
    Keys(DistributedKeyedLimiter<u64>),
    Gcra(MultiplexedConnection, Script, (u64, u64)),
}

impl Node {
    async fn of(case: Case, name: &str, server: &Server) -> Result<(Self, RedisStore), Box<dyn Error>> {
        let store = RedisStore::connect(server.url(), name).await?;
        let shared = store.clone();
        let quota = |(rate, burst)| Quota::per_second(rate).burst(burst);
        let node = match case {
            Case::Busy => Node::Quota(Limiter::builder().quota(quota(BUSY)).distributed(shared).build()?),
            _ => Node::Keys(DistributedKeyedLimiter::builder(shared).quota(quota(KEY)).max_keys(100_000).build()?),
        };
        Ok((node, store))
    }

    /// Returns whether the call was granted.
    async fn call(&mut self, key: u64) -> bool {
        match self {
            Node::Quota(limiter) => limiter.consume(1).await.is_ok(),
            Node::Keys(keys) => keys.consume(&key, 1).within(Duration::ZERO).await.is_ok(),
            Node::Gcra(connection, script, (rate, burst)) => {
                let mut call = script.key(format!("gcra {key}"));
                call.arg(1_000_000 / *rate).arg(*burst);
                call.invoke_async::<u64>(connection).await.expect("the server answers") == 1
            }
        }
    }
}

/// Prints the calls of these nodes, and returns the server's time for each, in microseconds.
async fn measure(title: &str, case: Case, nodes: &[Node], stores: &[RedisStore], time: Duration, server: u32) -> f64 {
    let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let (used, began) = (cpu(server), Instant::now());
    let mut callers = Vec::new();
    for mut node in nodes.iter().cloned().flat_map(|node| vec![node; CALLERS]) {
        let counts = Arc::clone(&counts);
        callers.push(tokio::spawn(async move {
            while began.elapsed() < time {
                let is_granted = node.call(case.key(counts.0.fetch_add(1, Relaxed))).await;
                counts.1.fetch_add(is_granted.into(), Relaxed);
            }
        }));
    }
    for caller in callers {
        caller.await.expect("no caller panics");
    }
    let (seconds, used) = (began.elapsed().as_secs_f64(), (cpu(server) - used) as f64);
    let (calls, granted) = (counts.0.load(Relaxed) as f64, counts.1.load(Relaxed) as f64);
    let requests = stores.iter().map(|store| store.snapshot().round_trips).sum::<u64>() as f64;
    let requests = if stores.is_empty() { calls } else { requests };
    let [of_calls, granted, of_requests] = [calls, granted, requests].map(|count| count / seconds);
    let [per_request, per_call] = [used / requests, used / calls];
    println!("{title:32} {of_calls:>9.0} {granted:>9.0} {of_requests:>10.0} {per_request:>10.1} {per_call:>8.2}");
    per_call
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let time = Duration::from_secs_f64(seconds.map_or(Ok(2.0), |text| text.parse())?);
    let Some(server) = Server::start() else { return Ok(()) };
    let client = redis::Client::open(server.url())?;
    let process = server.process().expect("the server answers");
    println!(
        "{:32} {:>9} {:>9} {:>10} {:>10} {:>8}",
        "", "calls/s", "granted/s", "requests/s", "us/request", "us/call"
    );
    let cases =
        [("one quota", Case::Busy, BUSY), ("10,000 keys", Case::Skewed, KEY), ("a key per call", Case::Strangers, KEY)];
    for (title, case, quota) in cases {
        let (mut ours, mut stores, mut gcra) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..NODES {
            let (node, store) = Node::of(case, title, &server).await?;
            ours.push(node);
            stores.push(store);
            gcra.push(Node::Gcra(client.get_multiplexed_async_connection().await?, Script::new(GCRA), quota));
        }
        let own = measure(&format!("{title}, tollgate"), case, &ours, &stores, time, process).await;
        drop(ours);
        let per_call = measure(&format!("{title}, GCRA per call"), case, &gcra, &[], time, process).await;
        println!("{title}: server time of a call, tollgate / GCRA: {:.2}", own / per_call);
    }
    Ok(())
}
