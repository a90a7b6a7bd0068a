//! One server that keeps stores, or one master of a cluster: its circuit breaker, the number of requests under way, and
//! the rate at which failed requests are repeated.
//!
//! The breaker is *closed* while the server answers. It *opens* in three cases: a request is not answered in time and
//! no other request is answered either, no connection can be made, or the server replies that it serves nothing at the
//! moment. While the breaker is open, no requests are sent. The repair task tries the server (*half-open*) and closes
//! the breaker with the first answer.

use crate::race::first;
use futures_util::future::Either;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{sleep, timeout};
use tollgate::distributed::{LeaseRequest, StoreError};

/// The largest number of requests under way at one server; further requests wait for their turn. It allows 5,000
/// requests a second over a round trip of 50 ms. It is small enough that a server that stood still answers all of them
/// at once.
const MAX_IN_FLIGHT: usize = 256;
/// The shortest interval between repeats of failed requests, in microseconds, over all stores of the server.
const REPEAT_MICROS: u64 = 1_000;
/// The longest wait for an unreachable server before its state is checked again: the repair task may have ended with
/// its runtime.
const LONGEST_PARKED: Duration = Duration::from_secs(2);

/// The state of a server's circuit breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Circuit {
    /// The server answers: requests are sent.
    #[default]
    Closed,
    /// The server is unreachable: no requests are sent.
    Open,
    /// The server is unreachable, and a trial is under way.
    HalfOpen,
}

/// A server, or one master of a cluster, as seen from this process; from
/// [`RedisStore::servers`](crate::RedisStore::servers).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RedisServerSnapshot {
    /// Host and port of the master in a cluster; empty otherwise.
    pub address: String,
    /// Whether requests are sent.
    pub circuit: Circuit,
    /// How many times the circuit has opened.
    pub opened: u64,
    /// How many times the server was tried while the circuit was open or the connection was broken.
    pub trials: u64,
    /// Requests that were sent and not answered in time.
    pub timeouts: u64,
    /// Requests that were not sent, because the circuit was open or too many others were under way.
    pub not_sent: u64,
    /// Requests that are under way now.
    pub in_flight: usize,
    /// Connections made so far, to all servers of this store.
    pub connections: u64,
}

pub(super) struct Shard {
    pub(super) number: u64,
    pub(super) address: String,
    status: watch::Sender<Status>,
    permits: Semaphore,
    began: Instant,
    /// The time of the last answer, in microseconds since `began`; 0 if there was none.
    answered: AtomicU64,
    /// How many repairs were started since the server last answered a request.
    pub(super) strikes: AtomicU32,
    /// When the next failed request may be repeated, in microseconds since `began`.
    next_repeat: AtomicU64,
    /// The number of the current repair task, and the time of its last sign of life.
    repair: Mutex<(u64, Option<Instant>)>,
    opened: AtomicU64,
    pub(super) trials: AtomicU64,
    pub(super) timeouts: AtomicU64,
    not_sent: AtomicU64,
}

#[derive(Clone, Debug, Default)]
struct Status {
    circuit: Circuit,
    why: String,
    /// Counts repairs: after each, there may be a new connection.
    repairs: u64,
}

impl Shard {
    pub(super) fn new(number: u64, address: String) -> Self {
        Self {
            number,
            address,
            status: watch::Sender::new(Status::default()),
            permits: Semaphore::new(MAX_IN_FLIGHT),
            began: Instant::now(),
            answered: AtomicU64::new(0),
            strikes: AtomicU32::new(0),
            next_repeat: AtomicU64::new(0),
            repair: Mutex::new((0, None)),
            opened: AtomicU64::new(0),
            trials: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            not_sent: AtomicU64::new(0),
        }
    }

    /// Waits for a permit to send a request.
    pub(super) async fn admit(&self, answer_timeout: Duration) -> Result<SemaphorePermit<'_>, StoreError> {
        if let Some(why) = self.why_open() {
            return Err(self.not_sent(why));
        }
        if let Ok(permit) = self.permits.try_acquire() {
            return Ok(permit);
        }
        match timeout(answer_timeout, first(self.opens(), self.permits.acquire())).await {
            Ok(Either::Left(why)) => Err(self.not_sent(why)),
            Ok(Either::Right(permit)) => match self.why_open() {
                Some(why) => Err(self.not_sent(why)),
                None => Ok(permit.expect("the semaphore is never closed")),
            },
            Err(_) => {
                let why = format!(
                    "{MAX_IN_FLIGHT} requests stayed unanswered for {answer_timeout:?}: reduce the load or try later"
                );
                Err(self.not_sent(why))
            }
        }
    }

    pub(super) fn not_sent(&self, why: String) -> StoreError {
        self.not_sent.fetch_add(1, Relaxed);
        StoreError::NotSent(why)
    }

    /// The reason why no requests are sent; `None` if they are sent.
    pub(super) fn why_open(&self) -> Option<String> {
        let status = self.status.borrow();
        (status.circuit != Circuit::Closed).then(|| status.why.clone())
    }

    async fn opens(&self) -> String {
        let mut status = self.status.subscribe();
        let opened = status.wait_for(|status| status.circuit != Circuit::Closed).await;
        opened.expect("the sender lives as long as `self`").why.clone()
    }

    async fn closes(&self) {
        let mut status = self.status.subscribe();
        _ = status.wait_for(|status| status.circuit == Circuit::Closed).await;
    }

    /// Waits until the repair task has made a connection or opened the circuit.
    pub(super) async fn repaired_since(&self, repairs: u64) {
        let mut status = self.status.subscribe();
        _ = status.wait_for(|status| status.repairs != repairs || status.circuit != Circuit::Closed).await;
    }

    pub(super) fn repairs(&self) -> u64 {
        self.status.borrow().repairs
    }

    pub(super) fn open(&self, why: String) {
        self.status.send_modify(|status| {
            if status.circuit == Circuit::Closed {
                self.opened.fetch_add(1, Relaxed);
            }
            (status.circuit, status.why) = (Circuit::Open, why);
        });
    }

    /// Records a trial, and marks the circuit as half-open if it is open.
    pub(super) fn half_open(&self) {
        self.trials.fetch_add(1, Relaxed);
        self.status.send_if_modified(|status| {
            let was_open = status.circuit == Circuit::Open;
            if was_open {
                status.circuit = Circuit::HalfOpen;
            }
            was_open
        });
    }

    /// Closes the circuit after a repair: the server answers.
    pub(super) fn close(&self) {
        self.status.send_modify(|status| {
            status.circuit = Circuit::Closed;
            status.repairs += 1;
        });
    }

    pub(super) fn note_reply(&self) {
        self.answered.store(self.micros(Instant::now()).max(1), Relaxed);
    }

    pub(super) fn has_replied_since(&self, then: Instant) -> bool {
        self.answered.load(Relaxed) > self.micros(then)
    }

    fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_micros() as u64
    }

    /// Waits until a request may be repeated; `failures` is the number of failures in a row.
    pub(super) async fn backoff(&self, failures: u32) {
        if self.why_open().is_some() {
            _ = timeout(LONGEST_PARKED, self.closes()).await;
            return;
        }
        sleep(LeaseRequest::backoff(failures)).await;
        let now = self.micros(Instant::now());
        let next = |next: u64| Some(next.max(now) + REPEAT_MICROS);
        let at = self.next_repeat.fetch_update(Relaxed, Relaxed, next).unwrap_or(now);
        if at > now {
            sleep(Duration::from_micros(at - now)).await;
        }
    }

    /// Returns the number of a new repair task if one is needed: none is running, or the running one has given no sign
    /// of life for `stale`.
    pub(super) fn begin_repair(&self, stale: Duration) -> Option<u64> {
        let mut repair = self.repair();
        if repair.1.is_some_and(|at| at.elapsed() < stale) {
            return None;
        }
        *repair = (repair.0 + 1, Some(Instant::now()));
        Some(repair.0)
    }

    /// Records a sign of life. Returns false if another repair task has taken over.
    pub(super) fn goes_on(&self, number: u64) -> bool {
        let mut repair = self.repair();
        let is_mine = repair.0 == number;
        if is_mine {
            repair.1 = Some(Instant::now());
        }
        is_mine
    }

    pub(super) fn end_repair(&self, number: u64) {
        let mut repair = self.repair();
        if repair.0 == number {
            repair.1 = None;
        }
    }

    fn repair(&self) -> MutexGuard<'_, (u64, Option<Instant>)> {
        self.repair.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn snapshot(&self, connections: u64) -> RedisServerSnapshot {
        RedisServerSnapshot {
            address: self.address.clone(),
            circuit: self.status.borrow().circuit,
            opened: self.opened.load(Relaxed),
            trials: self.trials.load(Relaxed),
            timeouts: self.timeouts.load(Relaxed),
            not_sent: self.not_sent.load(Relaxed),
            in_flight: MAX_IN_FLIGHT - self.permits.available_permits(),
            connections,
        }
    }
}
