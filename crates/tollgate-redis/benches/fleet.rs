//! Fleets of processes that share one quota, and beside them, in the same seconds, processes that send a script of GCRA
//! (`gcra.lua`) for each call to a Redis of their own. They report the instants of their grants to this program, which checks
//! the rate law over all. The last columns are the time of the server for each grant, and for each call of GCRA.
//!
//! ```text
//! cargo bench -p tollgate-redis --bench fleet                  # 20 seconds for each row, on Redis
//! cargo bench -p tollgate-redis --bench fleet -- 60 postgres   # a minute each, on PostgreSQL; GCRA stays on Redis
//! cargo bench -p tollgate-redis --bench fleet -- 60 redis far  # the rows whose titles contain "far"
//! ```
//!
//! This program starts the servers. A process that cannot run in time makes a row worse, so the machine must be idle.

#[path = "../../tollgate-postgres/benches/cpu/mod.rs"]
mod cpu;
#[path = "../../tollgate-postgres/tests/it/server.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod postgres;
#[path = "../tests/it/proxy.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod proxy;
#[path = "../tests/it/server.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod server;

use cpu::cpu;
use proxy::Proxy;
use redis::{Script, aio::MultiplexedConnection};
use server::Server;
use std::error::Error;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use tollgate::{Limiter, Quota};
use tollgate_postgres::{PostgresStore, pool};
use tollgate_redis::RedisStore;

type Failed = Box<dyn Error + Send + Sync>;

const GCRA: &str = include_str!("gcra.lua");
/// Longer than a busy machine takes: a row has no outage.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How a node makes a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// Waits for at most so many milliseconds, which the limiter knows.
    Within(u64),
    /// The caller gives up by itself after so many milliseconds.
    Timeout(u64),
    /// Does not wait.
    Try,
    /// Sends the script.
    Gcra,
}

/// Nodes that share a quota. Each makes a call after a random time, `every` milliseconds in the mean.
struct Row {
    title: &'static str,
    nodes: usize,
    every: f64,
    rate: u64,
    burst: u64,
    how: How,
    /// The number of callers in one more node; they wait for as long as it takes.
    batch: usize,
    /// The way of a message between a node and the store in milliseconds, and by how much it may be longer.
    way: (u64, u64),
}

const fn row(title: &'static str, nodes: usize, every: f64, rate: u64, burst: u64, how: How) -> Row {
    Row { title, nodes, every, rate, burst, how, batch: 0, way: (0, 0) }
}

/// The last row is that of [`crash_loop`].
const ROWS: [Row; 14] = [
    row("20 x 0.5/s on 2/s, 300 ms", 20, 2_000.0, 2, 2, How::Within(300)),
    row("20 x 0.5/s on 2/s, timeout 300 ms", 20, 2_000.0, 2, 2, How::Timeout(300)),
    row("20 x 2/s on 10/s, 100 ms", 20, 500.0, 10, 5, How::Within(100)),
    row("20 x 2/s on 10/s, timeout 100 ms", 20, 500.0, 10, 5, How::Timeout(100)),
    row("30 x 2/s on 30/s, 100 ms", 30, 500.0, 30, 30, How::Within(100)),
    row("30 x 2/s on 30/s, timeout 100 ms", 30, 500.0, 30, 30, How::Timeout(100)),
    row("8 x 5/s on 10/s, 50 ms", 8, 200.0, 10, 10, How::Within(50)),
    row("8 x 5/s on 10/s, timeout 50 ms", 8, 200.0, 10, 10, How::Timeout(50)),
    Row { batch: 20, ..row("20 x 4/s, 50 ms, and a batch, on 50/s", 20, 250.0, 50, 50, How::Within(50)) },
    row("50 that only try, half of 1,000/s", 50, 100.0, 1_000, 100, How::Try),
    Row { batch: 20, ..row("4 x 20 patient callers on 1,000/s", 3, 0.0, 1_000, 100, How::Within(600_000)) },
    Row {
        batch: 100,
        way: (100, 0),
        ..row("16 far nodes x 100 on 1,000/s", 15, 0.0, 1_000, 100, How::Within(600_000))
    },
    Row {
        batch: 100,
        way: (100, 150),
        ..row("the same, jitter 150 ms each way", 15, 0.0, 1_000, 100, How::Within(600_000))
    },
    row("crash loops", 1, 0.0, 1, 1, How::Within(600_000)),
];
const CRASH: usize = ROWS.len() - 1;

/// What a process reports: calls, requests, and the instants of its grants in microseconds since 1970.
#[derive(Default)]
struct Report {
    calls: u64,
    requests: u64,
    grants: Vec<u64>,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_micros() as u64
}

/// What decides the calls of a process.
enum Quotas {
    Limiter(Limiter, Box<dyn Fn() -> u64 + Send + Sync>),
    Gcra(MultiplexedConnection, Script, u64, u64),
}

impl Quotas {
    async fn of(row: &Row, name: &str, way: How, url: &str) -> Result<Self, Failed> {
        let builder = Limiter::builder().quota(Quota::per_second(row.rate).burst(row.burst));
        if way == How::Gcra {
            let client = redis::Client::open(url)?;
            let connection = client.get_multiplexed_async_connection().await?;
            return Ok(Self::Gcra(connection, Script::new(GCRA), 1_000_000 / row.rate, row.burst));
        }
        if url.starts_with("redis") {
            let store = RedisStore::connect_lazy(url, name)?.answer_timeout(ANSWER_TIMEOUT);
            let limiter = builder.distributed(store.clone()).build()?;
            return Ok(Self::Limiter(limiter, Box::new(move || store.snapshot().round_trips)));
        }
        let store = PostgresStore::lazy(pool(url)?, name)?.answer_timeout(ANSWER_TIMEOUT);
        let limiter = builder.distributed(store.clone()).build()?;
        Ok(Self::Limiter(limiter, Box::new(move || store.snapshot().round_trips)))
    }

    async fn call(&self, how: How, name: &str) -> bool {
        match (self, how) {
            (Self::Limiter(limiter, _), How::Within(most)) => {
                limiter.wait(1).within(Duration::from_millis(most)).await.is_ok()
            }
            (Self::Limiter(limiter, _), How::Timeout(most)) => {
                timeout(Duration::from_millis(most), limiter.wait(1)).await.is_ok_and(|waited| waited.is_ok())
            }
            (Self::Limiter(limiter, _), _) => limiter.try_acquire(1).map(|grant| grant.forget()).is_ok(),
            (Self::Gcra(connection, script, interval, burst), _) => {
                let mut call = script.key(format!("gcra {name}"));
                call.arg(*interval).arg(*burst);
                call.invoke_async::<u64>(&mut connection.clone()).await.expect("the server answers") == 1
            }
        }
    }
}

/// The code of a process: `callers` of them call from now to the end.
async fn node(row: &'static Row, way: How, callers: usize, url: String, end: u64) -> Result<(), Failed> {
    let name = row.title.replace(' ', "-");
    let quotas = std::sync::Arc::new(Quotas::of(row, &name, way, &url).await?);
    let is_batch = callers > 1;
    let (how, every) = if is_batch { (How::Within(600_000), 0.0) } else { (row.how, row.every) };
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let (quotas, name) = (quotas.clone(), name.clone());
        running.spawn(async move {
            let mut report = Report::default();
            loop {
                if every > 0.0 {
                    sleep(Duration::from_secs_f64(-(1.0 - fastrand::f64()).ln() * every / 1_000.0)).await;
                }
                // Read after the sleep: a server that is near answers even a call that has no time left.
                let left = Duration::from_micros(end.saturating_sub(now()));
                if left.is_zero() {
                    break;
                }
                let Ok(is_granted) = timeout(left, quotas.call(how, &name)).await else { break };
                report.calls += 1;
                if is_granted {
                    report.grants.push(now());
                }
            }
            report
        });
    }
    let reports = running.join_all().await;
    let requests = if let Quotas::Limiter(_, requests) = &*quotas { requests() } else { 0 };
    let instants: Vec<String> = reports.iter().flat_map(|report| &report.grants).map(u64::to_string).collect();
    println!("{} {requests} {}", reports.iter().map(|report| report.calls).sum::<u64>(), instants.join(" "));
    Ok(())
}

fn start(index: usize, way: &str, callers: usize, url: &str, end: u64) -> Result<Child, Failed> {
    let words = [index.to_string(), way.to_owned(), callers.to_string(), url.to_owned(), end.to_string()];
    let program = std::env::current_exe()?;
    Ok(Command::new(program).env("TOLLGATE_FLEET", words.join(" ")).stdout(Stdio::piped()).spawn()?)
}

fn listen(children: Vec<Child>) -> Result<Vec<Report>, Failed> {
    let read = |child: Child| {
        let text = String::from_utf8(child.wait_with_output()?.stdout)?;
        let mut numbers = text.split_whitespace().map(str::parse);
        let mut next = || numbers.next().ok_or("a process failed");
        let (calls, requests) = (next()??, next()??);
        Ok(Report { calls, requests, grants: numbers.collect::<Result<_, _>>()? })
    };
    children.into_iter().map(read).collect()
}

/// By how much the grants of any window exceed `burst + rate x window`.
fn excess(row: &Row, reports: &[Report]) -> f64 {
    let mut instants: Vec<u64> = reports.iter().flat_map(|report| report.grants.iter().copied()).collect();
    instants.sort_unstable();
    let (mut least, mut most) = (f64::MAX, f64::MIN);
    for (count, at) in instants.iter().enumerate() {
        let level = count as f64 - row.rate as f64 * (at - instants[0]) as f64 / 1e6;
        least = least.min(level);
        most = most.max(level + 1.0 - least);
    }
    (most - row.burst as f64).max(0.0)
}

fn granted(reports: &[Report]) -> f64 {
    reports.iter().map(|report| report.grants.len()).sum::<usize>() as f64
}

/// A server: its address, its port and its first process.
struct Keeper {
    url: String,
    port: u16,
    process: u32,
}

fn measure(index: usize, seconds: u64, keeper: &Keeper, redis: &Keeper, runtime: &Runtime) -> Result<(), Failed> {
    let row = &ROWS[index];
    let mut url = keeper.url.clone();
    if row.way != (0, 0) {
        let (proxy, through) = runtime.block_on(Proxy::before(keeper.port));
        proxy.latency.store(row.way.0, Relaxed);
        proxy.jitter.store(row.way.1, Relaxed);
        let port = through.trim_end_matches('/').rsplit(':').next().expect("a port");
        url = url.replace(&keeper.port.to_string(), port);
    }
    let used = [keeper, redis].map(|keeper| cpu(keeper.process));
    let end = now() + 1_000_000 * seconds;
    let callers = |node: usize| if node < row.nodes && row.every > 0.0 { 1 } else { row.batch };
    let nodes = row.nodes + usize::from(row.batch > 0);
    let ours = (0..nodes).map(|node| start(index, "ours", callers(node), &url, end)).collect::<Result<Vec<_>, _>>()?;
    // GCRA cannot wait.
    let theirs = if row.batch > 0 { 0 } else { row.nodes };
    let theirs = (0..theirs).map(|_| start(index, "gcra", 1, &redis.url, end)).collect::<Result<Vec<_>, _>>()?;
    let (ours, theirs) = (listen(ours)?, listen(theirs)?);
    let used = [cpu(keeper.process) - used[0], cpu(redis.process) - used[1]].map(|used| used as f64);
    let calls = |reports: &[Report]| reports.iter().map(|report| report.calls).sum::<u64>();
    let counts = ours.iter().map(|report| report.grants.len() as f64);
    let fairness = counts.clone().fold(f64::MAX, f64::min) / counts.fold(1.0, f64::max);
    let requests = ours.iter().map(|report| report.requests).sum::<u64>() as f64;
    // From the first grant on: nodes connect first.
    let first = ours.iter().flat_map(|report| &report.grants).min().copied().unwrap_or(end);
    let most = (end - first) as f64 / 1e6 * row.rate as f64 + row.burst as f64;
    let gcra = if theirs.is_empty() { f64::NAN } else { granted(&ours) / granted(&theirs) };
    println!(
        "{:40} {:>7} {:>7.0} {:>8.3} {:>8.3} {:>8.2} {:>9.2} {:>7.1} {:>7.1} {:>8.1} {:>8.1}",
        row.title,
        calls(&ours),
        granted(&ours),
        granted(&ours) / most,
        gcra,
        fairness,
        requests / granted(&ours),
        excess(row, &ours),
        excess(row, &theirs),
        used[0] / granted(&ours),
        if theirs.is_empty() { f64::NAN } else { used[1] / calls(&theirs) as f64 },
    );
    Ok(())
}

/// Processes that start, make a claim and are killed, one after the other; then one that lives.
fn crash_loop(seconds: u64, per_second: u64, url: &str) -> Result<(), Failed> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        let mut child = start(CRASH, "crash", 1, url, now() + 3_600_000_000)?;
        std::thread::sleep(Duration::from_millis(1_000 / per_second));
        child.kill()?;
        child.wait()?;
    }
    let began = now();
    let lives = listen(vec![start(CRASH, "lives", 1, url, now() + 20_000_000)?])?;
    let first = lives[0].grants.first().ok_or("no token within 20 seconds")?;
    println!(
        "{per_second} crashes a second on 1/s: the next process is granted after {:.2} s",
        (first - began) as f64 / 1e6
    );
    Ok(())
}

fn main() -> Result<(), Failed> {
    if let Ok(text) = std::env::var("TOLLGATE_FLEET") {
        let words: Vec<&str> = text.split(' ').collect();
        let row = &ROWS[words[0].parse::<usize>()?];
        let way = if words[1] == "gcra" { How::Gcra } else { row.how };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        return runtime.block_on(node(row, way, words[2].parse()?, words[3].to_owned(), words[4].parse()?));
    }
    // For the proxy, while the nodes run.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let seconds = words.first().map_or(Ok(20), |text| text.parse())?;
    let (Some(own), Some(redis)) = (Server::start(), Server::start()) else { return Ok(()) };
    let other =
        if words.iter().any(|word| word == "postgres") { runtime.block_on(postgres::Server::start()) } else { None };
    let of = |server: &Server| {
        let process = server.process().expect("the server answers");
        Keeper { url: server.url(), port: server.port(), process }
    };
    let keeper = other.as_ref().map_or_else(
        || of(&own),
        |server| Keeper { url: server.address(), port: server.port(), process: server.process() },
    );
    println!(
        "{:40} {:>7} {:>7} {:>8} {:>8} {:>8} {:>9} {:>7} {:>7} {:>8} {:>8}",
        "", "calls", "granted", "of rate", "of GCRA", "fairness", "requests", "excess", "GCRA's", "us/grant", "GCRA's"
    );
    let part = words.get(2).map_or("", String::as_str);
    let mut rows = (0..CRASH).filter(|&index| ROWS[index].title.contains(part));
    rows.try_for_each(|index| measure(index, seconds, &keeper, &of(&redis), &runtime))?;
    let is_crashing = ROWS[CRASH].title.contains(part);
    [4, 12].into_iter().filter(|_| is_crashing).try_for_each(|per_second| crash_loop(seconds, per_second, &keeper.url))
}
