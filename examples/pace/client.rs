//! The load: tasks on one thread. Each claims tokens, then sends a request.
//!
//! One thread, because then tasks are woken and polled one after the other, and the order of the grants can be checked.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};
use tollgate::{ConsumeError, Limiter};

use crate::Failure;
use crate::claim::{ClaimRecorder, HEADER};

const SAMPLE_EVERY: Duration = Duration::from_millis(20);

pub(crate) struct Load {
    pub(crate) tasks: u64,
    pub(crate) costs: RangeInclusive<u64>,
    pub(crate) seed: u64,
    pub(crate) run_for: Duration,
}

/// A snapshot of the limiter.
pub(crate) struct Sample {
    /// Nanoseconds since the start.
    pub(crate) at: u64,
    pub(crate) tail: u64,
    pub(crate) published: u64,
    pub(crate) ceiling: Option<u64>,
    pub(crate) granted: u64,
    pub(crate) in_flight: Option<u64>,
    pub(crate) waiting_tasks: usize,
    pub(crate) waiting_tokens: u64,
    /// How late, in nanoseconds, the runtime's timer was for this sample.
    pub(crate) late: u64,
}

pub(crate) fn start(
    load: Load,
    limiter: Limiter,
    recorder: Arc<ClaimRecorder>,
    server: SocketAddr,
    samples: Arc<Mutex<Vec<Sample>>>,
) -> JoinHandle<Result<(), Failure>> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(run(load, limiter, recorder, server, &samples))
    })
}

async fn run(
    load: Load,
    limiter: Limiter,
    recorder: Arc<ClaimRecorder>,
    server: SocketAddr,
    samples: &Mutex<Vec<Sample>>,
) -> Result<(), Failure> {
    let http = Client::builder(TokioExecutor::new()).build_http();
    let mut tasks = JoinSet::new();
    for number in 0..load.tasks {
        let worker = Worker {
            limiter: limiter.clone(),
            recorder: recorder.clone(),
            http: http.clone(),
            url: format!("http://{server}/work"),
            costs: load.costs.clone(),
            random: fastrand::Rng::with_seed(load.seed.wrapping_mul(1 << 32).wrapping_add(number)),
        };
        tasks.spawn(worker.run());
    }
    tokio::select! {
        () = sample(&limiter, &recorder, load.run_for, samples) => {}
        Some(ended) = tasks.join_next() => ended??, // too early: an error
    }
    limiter.close(); // waiting claims are refused; granted ones finish
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

struct Worker {
    limiter: Limiter,
    recorder: Arc<ClaimRecorder>,
    http: Client<HttpConnector, Empty<Bytes>>,
    url: String,
    costs: RangeInclusive<u64>,
    random: fastrand::Rng,
}

impl Worker {
    async fn run(mut self) -> Result<(), Failure> {
        loop {
            let cost = self.random.u64(self.costs.clone());
            let (claim, grant) = match self.recorder.consume(&self.limiter, cost).await {
                Ok(admitted) => admitted,
                Err(ConsumeError::Closed) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let request = Request::get(&self.url).header(HEADER, claim.to_string()).body(Empty::new())?;
            let answer = self.http.request(request).await?;
            if !answer.status().is_success() {
                return Err(format!("the server answered {}", answer.status()).into());
            }
            answer.into_body().collect().await?;
            drop(grant); // the whole answer is here: with --max-in-flight, this is the release
        }
    }
}

async fn sample(limiter: &Limiter, recorder: &ClaimRecorder, run_for: Duration, samples: &Mutex<Vec<Sample>>) {
    let started = Instant::now();
    let mut ticks = interval(SAMPLE_EVERY);
    while started.elapsed() < run_for {
        let due = ticks.tick().await;
        let late = due.elapsed().as_nanos() as u64;
        let now = limiter.snapshot();
        samples.lock().expect("the watcher never panics with the lock").push(Sample {
            at: recorder.now(),
            tail: now.tail,
            published: now.published,
            ceiling: now.ceiling,
            granted: now.granted,
            in_flight: now.in_flight,
            waiting_tasks: now.waiting_tasks,
            waiting_tokens: now.waiting_tokens,
            late,
        });
    }
}
