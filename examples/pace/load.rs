//! The load: tasks on one thread. Each claims tokens, then sends a request.
//!
//! One thread, because then tasks are woken and polled one after the other, and the order of the grants can be checked.

use crate::Failure;
use crate::server::COST;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tollgate::{ConsumeError, Grant, Limiter};

pub(crate) struct Load {
    pub(crate) tasks: u64,
    /// The highest cost of a request.
    pub(crate) cost: u64,
    pub(crate) time: Duration,
}

impl Load {
    /// Sends requests for the time, and returns the grants.
    pub(crate) fn run(&self, limiter: &Limiter, server: SocketAddr) -> Result<Vec<Granted>, Failure> {
        let recorder = Arc::new(Recorder::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for number in 0..self.tasks {
                tasks.spawn(send(limiter.clone(), Arc::clone(&recorder), server, self.cost, number));
            }
            tokio::select! {
                () = tokio::time::sleep(self.time) => {}
                Some(ended) = tasks.join_next() => ended??, // too early: an error
            }
            limiter.close(); // waiting claims are refused; granted ones finish
            while let Some(ended) = tasks.join_next().await {
                ended??;
            }
            Ok::<_, Failure>(())
        })?;
        Ok(std::mem::take(&mut *recorder.granted.lock().expect("no task panics with the lock")))
    }
}

/// One task, with a connection of its own. It ends when the limiter is closed.
async fn send(
    limiter: Limiter,
    recorder: Arc<Recorder>,
    server: SocketAddr,
    most: u64,
    seed: u64,
) -> Result<(), Failure> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut http, connection) = handshake(TokioIo::new(TcpStream::connect(server).await?)).await?;
    tokio::spawn(connection);
    loop {
        let cost = random.u64(1..=most);
        let grant = match recorder.consume(&limiter, cost).await {
            Err(ConsumeError::Closed) => return Ok(()),
            answer => answer?,
        };
        let request = Request::get("/").header(HOST, "localhost").header(COST, cost).body(Empty::<Bytes>::new())?;
        http.ready().await?;
        let answer = http.send_request(request).await?;
        if !answer.status().is_success() {
            return Err(format!("the server answered {}", answer.status()).into());
        }
        answer.into_body().collect().await?;
        drop(grant); // the whole answer is here: the tokens are not in flight any more
    }
}

/// A claim that was granted. Instants are nanoseconds since the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) cost: u64,
    /// Its number in the order of the claims.
    pub(crate) place: u64,
    /// Its number in the order of the grants.
    pub(crate) turn: u64,
    pub(crate) asked: u64,
    /// The grant happened between these two. They are equal for a claim that waited (when the limiter woke it), and
    /// enclose the call for a claim that was granted at once.
    pub(crate) earliest: u64,
    pub(crate) latest: u64,
}

/// Records the order and the instants of claims and grants.
struct Recorder {
    began: Instant,
    places: AtomicU64,
    turns: AtomicU64,
    granted: Mutex<Vec<Granted>>,
}

impl Recorder {
    fn new() -> Self {
        Self { began: Instant::now(), places: AtomicU64::new(0), turns: AtomicU64::new(0), granted: Mutex::default() }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// The turn of a grant, and its instant.
    fn stamp(&self) -> (u64, u64) {
        (self.turns.fetch_add(1, Relaxed), self.now())
    }

    /// Does `limiter.consume(cost).await`, and records it.
    ///
    /// A waiter's turn is recorded when the limiter wakes it, not when its task resumes: a task that was already
    /// running may rightly be granted in between, and would look as if it had overtaken.
    async fn consume<'l>(self: &Arc<Self>, limiter: &'l Limiter, cost: u64) -> Result<Grant<'l>, ConsumeError> {
        let mut claim = pin!(limiter.consume(cost));
        let mut waiting: Option<Arc<RecordingWaker>> = None;
        let (place, asked) = (self.places.fetch_add(1, Relaxed), self.now());
        poll_fn(|cx| {
            let next = Arc::new(RecordingWaker {
                recorder: Arc::clone(self),
                first_wake: OnceLock::new(),
                task: cx.waker().clone(),
            });
            let answer = claim.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&next))));
            match &answer {
                Poll::Pending => waiting = Some(next),
                Poll::Ready(Err(_)) => {}
                Poll::Ready(Ok(_)) => {
                    let (turn, latest) = waiting.as_ref().map_or_else(|| self.stamp(), |waiting| waiting.stamp());
                    let earliest = if waiting.is_some() { latest } else { asked };
                    let granted = Granted { cost, place, turn, asked, earliest, latest };
                    self.granted.lock().expect("no task panics with the lock").push(granted);
                }
            }
            answer
        })
        .await
    }
}

/// Wakes a task, and records its turn at the first wake-up.
struct RecordingWaker {
    recorder: Arc<Recorder>,
    first_wake: OnceLock<(u64, u64)>,
    task: Waker,
}

impl RecordingWaker {
    fn stamp(&self) -> (u64, u64) {
        *self.first_wake.get_or_init(|| self.recorder.stamp())
    }
}

impl Wake for RecordingWaker {
    fn wake(self: Arc<Self>) {
        self.stamp();
        self.task.wake_by_ref();
    }
}
