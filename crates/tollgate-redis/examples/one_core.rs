//! What one core of Redis serves: one busy quota, 10,000 keys of which few are busy, and keys with a single call. Beside each
//! the same calls with one script of GCRA (the generic cell rate algorithm) per call, in the same run.
//!
//! ```sh
//! cargo run --release -p tollgate-redis --example one_core          # 2 seconds for each line
//! cargo run --release -p tollgate-redis --example one_core -- 10
//! ```
//!
//! It starts a Redis of its own on a free loopback port, and uses no other. The server and this program share the machine,
//! so compare the times of the server's process, and the two lines of a case. A call that is refused counts as a call.

#[path = "fleet/server.rs"]
mod server;

use redis::aio::MultiplexedConnection;
use server::{Server, info};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tollgate::{KeyedLimiter, Limiter, Quota};
use tollgate_redis::RedisStore;

type Failure = Box<dyn Error + Send + Sync>;

const NODES: usize = 8;
const CALLERS: usize = 8;
const KEYS: u64 = 10_000;
/// Of the busy quota, which the server should not reach, and of each key.
const BUSY: (u64, u64) = (1_000_000, 100_000);
const KEY: (u64, u64) = (200, 20);

/// The instant at which the bucket is full again, in microseconds, is the value of the key.
const GCRA: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local full = math.max(now, tonumber(redis.call('GET', KEYS[1]) or now)) + interval
if full - now > interval * burst then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000))
return 1
";

#[derive(Clone, Copy)]
enum Case {
    Busy,
    Zipf,
    Strangers,
}

/// How one node makes a call. Returns whether it was granted.
#[derive(Clone)]
enum Node {
    Quota(Limiter, RedisStore),
    Keys(KeyedLimiter<u64>),
    Gcra(MultiplexedConnection, redis::Script),
}

impl Node {
    async fn call(&mut self, case: Case, key: u64) -> bool {
        match self {
            Node::Quota(limiter, _) => limiter.consume(1).await.is_ok(),
            Node::Keys(keys) => keys.consume(&key, 1).within(Duration::ZERO).await.is_ok(),
            Node::Gcra(connection, script) => {
                let (rate, burst) = if matches!(case, Case::Busy) { BUSY } else { KEY };
                let mut call = script.key(format!("gcra {key}"));
                call.arg(1_000_000 / rate).arg(burst);
                call.invoke_async::<u64>(connection).await.expect("the server answers") == 1
            }
        }
    }

    fn requests(&self) -> u64 {
        match self {
            Node::Quota(_, store) => store.snapshot().round_trips,
            Node::Keys(keys) => keys.snapshot().store.map_or(0, |store| store.round_trips),
            Node::Gcra(..) => 0,
        }
    }
}

/// The keys that the callers use: always the same, those of a Zipf distribution, or a new one for each call.
struct Choice {
    case: Case,
    /// The sums of the weights 1, 1/2, 1/3, ...
    sums: Vec<f64>,
    next: AtomicU64,
}

impl Choice {
    fn new(case: Case) -> Self {
        let mut sum = 0.0;
        let sums = (1..=KEYS).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        Self { case, sums: sums.collect(), next: AtomicU64::new(KEYS) }
    }

    fn key(&self) -> u64 {
        match self.case {
            Case::Busy => 0,
            Case::Strangers => self.next.fetch_add(1, Relaxed),
            Case::Zipf => {
                let at = fastrand::f64() * self.sums.last().expect("there are keys");
                self.sums.partition_point(|sum| *sum < at) as u64
            }
        }
    }
}

struct Figures {
    calls: f64,
    granted: f64,
    requests: f64,
    seconds: f64,
    /// In microseconds.
    server: f64,
}

/// The time that the server's process has used so far, in microseconds.
fn cpu(server: &Server) -> Result<f64, Failure> {
    let text = info(&server.url(), "cpu")?;
    let seconds = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    let both = seconds("used_cpu_sys:").zip(seconds("used_cpu_user:")).ok_or("Redis reports no used_cpu_sys")?;
    Ok((both.0 + both.1) * 1e6)
}

async fn measure(nodes: Vec<Node>, case: Case, time: Duration, server: &Server) -> Result<Figures, Failure> {
    let choice = Arc::new(Choice::new(case));
    let (calls, granted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (used, began) = (cpu(server)?, Instant::now());
    let mut callers = Vec::new();
    for mut node in nodes.iter().cloned().flat_map(|node| vec![node; CALLERS]) {
        let (choice, calls, granted) = (Arc::clone(&choice), Arc::clone(&calls), Arc::clone(&granted));
        callers.push(tokio::spawn(async move {
            while began.elapsed() < time {
                let is_granted = node.call(case, choice.key()).await;
                calls.fetch_add(1, Relaxed);
                granted.fetch_add(is_granted.into(), Relaxed);
            }
        }));
    }
    for caller in callers {
        caller.await?;
    }
    let (seconds, server) = (began.elapsed().as_secs_f64(), cpu(server)? - used);
    let calls = calls.load(Relaxed) as f64;
    let requests = nodes.iter().map(Node::requests).sum::<u64>() as f64;
    let requests = if matches!(nodes[0], Node::Gcra(..)) { calls } else { requests };
    Ok(Figures { calls, granted: granted.load(Relaxed) as f64, requests, seconds, server })
}

async fn nodes(case: Case, name: &str, server: &Server) -> Result<(Vec<Node>, Vec<Node>), Failure> {
    let client = redis::Client::open(server.url())?;
    let (mut ours, mut gcra) = (Vec::new(), Vec::new());
    for _ in 0..NODES {
        let store = RedisStore::connect(server.url(), name).await?;
        ours.push(match case {
            Case::Busy => {
                let quota = Quota::per_second(BUSY.0).burst(BUSY.1);
                let limiter = Limiter::builder().quota(quota).distributed(store.clone()).build()?;
                Node::Quota(limiter, store)
            }
            Case::Zipf | Case::Strangers => {
                let quota = Quota::per_second(KEY.0).burst(KEY.1);
                Node::Keys(KeyedLimiter::builder().quota(quota).max_keys(100_000).distributed(store).build()?)
            }
        });
        gcra.push(Node::Gcra(client.get_multiplexed_async_connection().await?, redis::Script::new(GCRA)));
    }
    Ok((ours, gcra))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let seconds = std::env::args().nth(1).map_or(Ok(2.0), |text| text.parse())?;
    let time = Duration::from_secs_f64(seconds);
    let server = Server::start()?;
    println!(
        "{:36} {:>9} {:>9} {:>10} {:>10} {:>10}",
        "", "calls/s", "granted/s", "requests/s", "us/request", "us/call"
    );
    for (title, case) in [("one quota", Case::Busy), ("10,000 keys", Case::Zipf), ("a key per call", Case::Strangers)] {
        let (ours, gcra) = nodes(case, title, &server).await?;
        let mut of_calls = Vec::new();
        for (kind, nodes) in [("tollgate", ours), ("GCRA per call", gcra)] {
            let Figures { calls, granted, requests, seconds, server } = measure(nodes, case, time, &server).await?;
            println!(
                "{:36} {:>9.0} {:>9.0} {:>10.0} {:>10.1} {:>10.2}",
                format!("{title}, {kind}"),
                calls / seconds,
                granted / seconds,
                requests / seconds,
                server / requests,
                server / calls
            );
            of_calls.push(server / calls);
        }
        println!("{title}: server time of a call, tollgate / GCRA: {:.2}", of_calls[0] / of_calls[1]);
    }
    Ok(())
}
