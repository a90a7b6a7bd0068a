//! CPU per decision, beside a tonic service that only answers: 64 calls on 4 connections, one descriptor of 100,000
//! values. Each server is a process of its own, and its CPU time is what counts.
//!
//! ```sh
//! cargo bench -p tollgate-service --bench decisions                          # all servers that are here
//! cargo bench -p tollgate-service --bench decisions -- HOST:PORT PID         # another server of the same protocol
//! cargo bench -p tollgate-service --bench decisions -- RATE [HOST:PORT PID]  # so many calls per second, if they are answered in time
//! cargo bench -p tollgate-service --bench decisions -- HOST:PORT calls N     # N calls, to count a server's instructions
//! cargo bench -p tollgate-service --bench decisions -- memory                # of 1,000 rules, 100,000 values, and 10,000 calls that wait
//! ```

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tollgate_service::bucket::Maker;
use tollgate_service::config::{self, Options};
use tollgate_service::health::Health;
use tollgate_service::meter::Meters;
use tollgate_service::problem::Source;
use tollgate_service::proto::{Code, Descriptor, DescriptorStatus, Entry, RateLimitRequest, RateLimitResponse};
use tollgate_service::server::Ports;
use tollgate_service::service::{Manner, Service};
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

const CONNECTIONS: usize = 4;
const CALLS: usize = 64;
const VALUES: usize = 100_000;
const WARM: Duration = Duration::from_secs(1);
const TIME: Duration = Duration::from_secs(4);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let own = |rate| runtime.block_on(measure_all(rate));
    let other = |address: &str, pid: &str, rate| {
        runtime.block_on(measure("other", address.parse().unwrap(), pid.parse().unwrap(), rate));
    };
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", "floor"] => runtime.block_on(serve_floor()),
        ["serve", requests] => runtime.block_on(serve(requests)),
        ["memory"] => runtime.block_on(memory()),
        [address, "calls", count] => runtime.block_on(call(address.parse().unwrap(), count.parse().unwrap(), &["k"])),
        [] => own(None),
        [rate] => own(Some(rate.parse().unwrap())),
        [address, pid] => other(address, pid, None),
        [rate, address, pid] => other(address, pid, Some(rate.parse().unwrap())),
        _ => panic!("the head of this file says which arguments there are"),
    }
}

async fn measure_all(rate: Option<f64>) {
    for (name, kind) in [("floor", "floor"), ("granted", "1000000"), ("refused", "1")].repeat(3) {
        let (child, address) = start(kind);
        measure(name, address, child.0.id(), rate).await;
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(kind: &str) -> (Running, SocketAddr) {
    let me = std::env::current_exe().unwrap();
    let mut child = Running(Command::new(me).args(["serve", kind]).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().parse().unwrap())
}

async fn serve(requests: &str) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let ports = Ports::bind(any, any).await.unwrap();
    println!("{}", ports.addresses().unwrap().0);
    let others = (0..1_000).map(|i| format!(", {{key: r{i}, rate_limit: {{unit: hour, requests_per_unit: 9}}}}"));
    let text = match requests {
        "patient" => {
            let waiting = "{key: k, rate_limit: {unit: second, requests_per_unit: 100, burst: 1, wait: 600s}}";
            format!("{{domain: d, descriptors: [{waiting}]}}")
        }
        "many" => {
            let first = "{key: k, rate_limit: {unit: hour, requests_per_unit: 9}}";
            format!("{{domain: d, descriptors: [{first}{}]}}", others.collect::<String>())
        }
        _ => {
            let limit = format!("{{unit: hour, requests_per_unit: {requests}}}");
            format!("{{domain: d, descriptors: [{{key: k, rate_limit: {limit}}}]}}")
        }
    };
    let meters = Arc::<Meters>::default();
    let source = Arc::new(Source { name: "bench".into(), text });
    let rules = config::load(&[source], Options::default(), &meters).unwrap().rules;
    let service = Arc::new(Service::new(rules, meters, Manner::default(), Maker::default()));
    let (_end, ended) = watch::channel(false);
    ports.serve(service, Health::default(), ended, Duration::ZERO).await;
}

/// A service that only answers, with the settings of the real one.
#[derive(Clone)]
struct Floor;

impl NamedService for Floor {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl tower_service::Service<http::Request<Body>> for Floor {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move { Ok(tonic::server::Grpc::new(ProstCodec::default()).unary(Floor, request).await) })
    }
}

impl UnaryService<RateLimitRequest> for Floor {
    type Response = RateLimitResponse;
    type Future = Ready<Result<Response<RateLimitResponse>, Status>>;

    fn call(&mut self, _: Request<RateLimitRequest>) -> Self::Future {
        let status = DescriptorStatus { code: Code::Ok as i32, ..DescriptorStatus::default() };
        let overall_code = Code::Ok as i32;
        ready(Ok(Response::new(RateLimitResponse {
            overall_code,
            statuses: vec![status],
            ..RateLimitResponse::default()
        })))
    }
}

async fn serve_floor() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Server::builder().add_service(Floor).serve_with_incoming(incoming).await.unwrap();
}

/// Says what servers take, in KiB of resident memory.
async fn memory() {
    let begin = async |kind: &str| {
        let (server, address) = start(kind);
        let pid = server.0.id();
        call(address, 64, &["k"]).await;
        (server, address, pid, resident(pid))
    };
    let (_server, address, pid, before) = begin("many").await;
    let keys: Vec<String> = (0..1_000).map(|i| format!("r{i}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    println!("1,000 rules that are loaded: {before} KiB with the program");
    call(address, 64_000, &keys).await;
    println!("their limiters, with 64 values each: {} KiB more", resident(pid) - before);
    let (_server, address, pid, before) = begin("1000000").await;
    call(address, 5 * VALUES, &["k"]).await;
    println!("{VALUES} values: {} bytes each", (resident(pid) - before) * 1_024 / VALUES as u64);
    let (_server, address, pid, before) = begin("patient").await;
    let mut calls = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        for _ in 0..10_000 / CONNECTIONS {
            let mut caller = Caller::new(channel.clone(), 0);
            calls.spawn(async move { caller.call("k").await });
        }
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    println!("10,000 calls that wait: {} KiB more than {before}", resident(pid) - before);
}

fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Sends a number of calls.
async fn call(address: SocketAddr, count: usize, keys: &[&str]) {
    let mut calls = JoinSet::new();
    for number in 0..CONNECTIONS {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        for call in 0..CALLS / CONNECTIONS {
            let mut caller = Caller::new(channel.clone(), number * CALLS + call);
            let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
            calls.spawn(async move {
                for key in keys.iter().cycle().take(count / CALLS) {
                    caller.call(key).await;
                }
            });
        }
    }
    calls.join_all().await;
}

/// Each caller calls again as soon as it has its answer, or all of them together make `rate` calls per second.
async fn measure(name: &str, address: SocketAddr, pid: u32, rate: Option<f64>) {
    let mut calls = JoinSet::new();
    let (go_on, stop) = watch::channel(true);
    let every = rate.map(|rate| Duration::from_secs_f64(CALLS as f64 / rate));
    for number in 0..CONNECTIONS {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        for call in 0..CALLS / CONNECTIONS {
            calls.spawn(call_until(channel.clone(), number * CALLS + call, every, stop.clone()));
        }
    }
    tokio::time::sleep(WARM).await;
    let (before, began) = (cpu(pid), Instant::now());
    tokio::time::sleep(TIME).await;
    let counted = began.elapsed();
    let used = cpu(pid) - before;
    let took = began.elapsed();
    go_on.send(false).unwrap();
    let mut latencies: Vec<(Instant, Duration)> = calls.join_all().await.into_iter().flatten().collect();
    latencies.retain(|(at, _)| *at >= began && *at <= began + counted);
    let count = latencies.len() as f64;
    let mut times: Vec<Duration> = latencies.into_iter().map(|(_, time)| time).collect();
    times.sort_unstable();
    let per_call = used.as_secs_f64() * 1e6 / count;
    let (median, tail) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    let rate = count / took.as_secs_f64();
    println!("{name:10} {per_call:6.2} us of CPU per decision, {rate:7.0}/s, p50 {median:?}, p99 {tail:?}");
}

/// If the calls come at a rate, the time of one counts from when it was due, if its caller had no answer to the last one then.
async fn call_until(
    channel: Channel,
    seed: usize,
    every: Option<Duration>,
    stop: watch::Receiver<bool>,
) -> Vec<(Instant, Duration)> {
    let mut caller = Caller::new(channel, seed);
    let mut due = Instant::now() + every.unwrap_or_default().mul_f64(caller.random.f64());
    let mut times = Vec::new();
    while *stop.borrow() {
        let mut late = Duration::ZERO;
        if let Some(every) = every {
            late = due.elapsed();
            tokio::time::sleep_until(due.into()).await;
            due += every;
        }
        let (at, time) = caller.call("k").await;
        times.push((at, late + time));
    }
    times
}

struct Caller {
    client: Grpc<Channel>,
    random: fastrand::Rng,
}

impl Caller {
    fn new(channel: Channel, seed: usize) -> Self {
        Self { client: Grpc::new(channel), random: fastrand::Rng::with_seed(seed as u64) }
    }

    /// Asks about one value, and returns when the answer came, and after how long.
    async fn call(&mut self, key: &str) -> (Instant, Duration) {
        let entry = Entry { key: key.into(), value: format!("value-{}", self.random.usize(..VALUES)).into() };
        let descriptor = Descriptor { entries: vec![entry], ..Descriptor::default() };
        let request = RateLimitRequest { domain: "d".into(), descriptors: vec![descriptor], hits_addend: 0 };
        self.client.ready().await.unwrap();
        let began = Instant::now();
        let path = PathAndQuery::from_static("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
        let codec: ProstCodec<RateLimitRequest, RateLimitResponse> = ProstCodec::default();
        self.client.unary(Request::new(request), path, codec).await.unwrap();
        (Instant::now(), began.elapsed())
    }
}

/// The CPU time of a process, in the kernel and outside of it.
fn cpu(pid: u32) -> Duration {
    let mut nanos = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let text = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap_or_default();
        nanos += text.split(' ').next().and_then(|first| first.parse::<u64>().ok()).unwrap_or(0);
    }
    Duration::from_nanos(nanos)
}
