//! How many requests PostgreSQL answers, and how much time of its processes each one takes, beside Redis in the same run.
//! It starts servers of its own:
//!
//! ```sh
//! cargo run --release -p tollgate-postgres --example asks          # 2 seconds for each line
//! cargo run --release -p tollgate-postgres --example asks -- 10
//! ```
//!
//! `hot` is one store and 8 nodes, `keys` single claims on 10,000 stores. The servers and this program share the machine.

#[path = "../tests/it/server.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod server;

use server::{FOR_EVER, Server};
use std::error::Error;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tollgate::Quota;
use tollgate::distributed::{LeaseRequest, QuotaTerms, Store, Stores};
use tollgate_postgres::{PostgresStore, pool};
use tollgate_redis::RedisStore;

/// The number of nodes, or of callers of single claims.
const CALLERS: u64 = 8;
const KEYS: u64 = 10_000;

/// What one line measures.
struct Figures {
    per_second: f64,
    /// Time of the processes of the server for each request, in microseconds.
    cpu: f64,
    /// The median time from the request to the answer, in microseconds.
    median: u64,
}

/// The time that a process and its children have used so far, in microseconds.
fn cpu(server: u32) -> u64 {
    let stat = |id: u32| std::fs::read_to_string(format!("/proc/{id}/stat")).ok();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter_map(|id| {
        let text = stat(id)?;
        // After the name, in parentheses: a space, the state, the parent, and ten fields further on the times in hundredths of a second.
        let fields: Vec<u64> =
            text.rsplit(')').next()?.split(' ').skip(2).map(|field| field.parse().unwrap_or(0)).collect();
        (id == server || fields[0] == u64::from(server)).then(|| (fields[10] + fields[11]) * 10_000)
    })
    .sum()
}

async fn measure(stores: &[Arc<dyn Store>], is_keyed: bool, time: Duration, server: u32) -> Figures {
    let terms = QuotaTerms::of(&Quota::per_second(1_000_000).burst(1_000), 0).unwrap();
    let asks = Arc::new(AtomicU64::new(0));
    let (used, began) = (cpu(server), Instant::now());
    let mut callers = Vec::new();
    for _ in 0..CALLERS {
        // Nodes of an earlier line are not forgotten yet.
        let node = u128::from(fastrand::u64(1..));
        let (stores, asks) = (stores.to_vec(), Arc::clone(&asks));
        callers.push(tokio::spawn(async move {
            let mut took = Vec::new();
            for number in 1.. {
                if began.elapsed() > time {
                    break;
                }
                let mut ask = LeaseRequest::new(node, number, terms);
                ask.want = 1;
                (ask.leave, ask.at_once) = (is_keyed, is_keyed);
                let sent = Instant::now();
                stores[fastrand::usize(..stores.len())].ask(ask).await.unwrap();
                took.push(sent.elapsed().as_micros() as u64);
                asks.fetch_add(1, Relaxed);
            }
            took
        }));
    }
    let mut took = Vec::new();
    for caller in callers {
        took.extend(caller.await.unwrap());
    }
    took.sort_unstable();
    let asks = asks.load(Relaxed) as f64;
    let per_second = asks / began.elapsed().as_secs_f64();
    Figures { per_second, cpu: (cpu(server) - used) as f64 / asks, median: took[took.len() / 2] }
}

/// A server that ends with the program.
struct Redis(Child, u16);

impl Redis {
    fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--save", ""]).stdout(Stdio::null());
        Some(Self(command.spawn().ok()?, port))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn named(store: &impl Stores) -> Vec<Arc<dyn Store>> {
    (0..KEYS).map(|key| store.named(&format!("user {key}"))).collect()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(2.0), |text| text.parse())?;
    let time = Duration::from_secs_f64(seconds);
    let (Some(redis), Some(mut postgres)) = (Redis::start(), Server::start().await) else {
        println!("NOT RUN: needs redis-server and PostgreSQL");
        return Ok(());
    };
    let url = format!("redis://127.0.0.1:{}/", redis.1);
    let in_redis = loop {
        match RedisStore::connect(&*url, "asks").await {
            Ok(store) => break store.answer_timeout(FOR_EVER),
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    };
    println!("{:34} {:>8} {:>12} {:>10} {:>9}", "", "asks/s", "server us", "median us", "x Redis");
    let mut of_redis = Vec::new();
    for (name, is_keyed) in [("hot", false), ("keys", true)] {
        let stores = if is_keyed { named(&in_redis) } else { vec![Arc::new(in_redis.clone()) as Arc<dyn Store>] };
        let figures = measure(&stores, is_keyed, time, redis.0.id()).await;
        let Figures { per_second, cpu, median } = figures;
        println!("{:34} {per_second:>8.0} {cpu:>12.1} {median:>10}", format!("{name}, Redis"));
        of_redis.push(figures);
    }
    for (options, durability) in
        [(&["-c", "synchronous_commit=off"][..], "no wait for the disk"), (&["-c", "fsync=on"], "on the disk")]
    {
        postgres.restart_with(&[options, &["-c", "shared_buffers=128MB"]].concat()).await;
        let store = PostgresStore::over(pool(&postgres.address())?, "asks").await?.answer_timeout(FOR_EVER);
        for ((name, is_keyed), beside) in [("hot", false), ("keys", true)].into_iter().zip(&of_redis) {
            let stores = if is_keyed { named(&store) } else { vec![Arc::new(store.clone()) as Arc<dyn Store>] };
            let Figures { per_second, cpu, median } = measure(&stores, is_keyed, time, postgres.process()).await;
            let ratios = format!("{:.2} / {:.1}", per_second / beside.per_second, cpu / beside.cpu);
            let line = format!("{name}, PostgreSQL, {durability}");
            println!("{line:34} {per_second:>8.0} {cpu:>12.1} {median:>10} {ratios:>9}");
        }
    }
    println!("x Redis: requests a second / time of the server");
    Ok(())
}
