//! One server that keeps lines, or one master of a cluster: its circuit breaker, how many asks are under way there, and how often
//! failed asks are repeated.
//!
//! The breaker is *closed* while the server answers. It *opens* when an ask is not answered in time and nothing else was
//! either, when no connection can be made, or when the server says that it serves nothing at the moment. While it is open no ask is
//! sent. The repair task tries the server (*half-open*) and closes the breaker with the first answer.

use crate::distributed::{First, StoreError, backoff, first};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{sleep, timeout};

/// So many asks are under way at one server at most; further ones wait for their turn. Enough for 5,000 asks a second over 50 ms,
/// and few enough that a server that stood still answers all of them at once.
const MAX_IN_FLIGHT: usize = 256;
/// Failed asks are repeated no faster than one in so many microseconds, over all lines of the server.
const REPEAT_MICROS: u64 = 1_000;
/// An ask for a server that is out of reach looks at least so often whether that is still so: the repair task may be gone with
/// its runtime.
const LONGEST_PARKED: Duration = Duration::from_secs(2);

/// The state of a server's circuit breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Circuit {
    /// The server answers: asks are sent.
    #[default]
    Closed,
    /// The server is out of reach: no ask is sent.
    Open,
    /// The server is out of reach, and is being tried.
    HalfOpen,
}

/// What a server, or one master of a cluster, looks like from this process; from
/// [`RedisStore::servers`](crate::RedisLine::servers).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RedisServerSnapshot {
    /// Host and port of the master in a cluster; empty otherwise.
    pub address: String,
    /// Whether asks are sent.
    pub circuit: Circuit,
    /// How often the circuit was opened.
    pub opened: u64,
    /// How often the server was tried while the circuit was open, or the connection broken.
    pub trials: u64,
    /// Asks that were sent and not answered in time.
    pub timeouts: u64,
    /// Asks that were not sent, since the circuit was open or too many others were under way.
    pub not_sent: u64,
    /// Asks that are under way now.
    pub in_flight: usize,
    /// Connections made so far, to all servers of this line.
    pub connections: u64,
}

pub(super) struct Shard {
    pub(super) number: u64,
    pub(super) address: String,
    status: watch::Sender<Status>,
    permits: Semaphore,
    began: Instant,
    /// When it answered last, in microseconds since `began`; 0 if never.
    answered: AtomicU64,
    /// How often it was repaired since it last answered an ask.
    pub(super) strikes: AtomicU32,
    /// When the next failed ask may be repeated.
    next_repeat: AtomicU64,
    /// When the repair task last gave a sign of life, and which one it is.
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
    /// Counts repairs: a new connection may be there.
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

    /// A place among the asks under way.
    pub(super) async fn admit(&self, patience: Duration) -> Result<SemaphorePermit<'_>, StoreError> {
        if let Some(why) = self.why_open() {
            return Err(self.not_sent(why));
        }
        if let Ok(permit) = self.permits.try_acquire() {
            return Ok(permit);
        }
        match timeout(patience, first(self.opens(), self.permits.acquire())).await {
            Ok(First::One(why)) => Err(self.not_sent(why)),
            Ok(First::Other(permit)) => match self.why_open() {
                Some(why) => Err(self.not_sent(why)),
                None => Ok(permit.expect("it is never closed")),
            },
            Err(_) => {
                let why =
                    format!("for {patience:?} there were {MAX_IN_FLIGHT} others that the server has not answered");
                Err(self.not_sent(why))
            }
        }
    }

    pub(super) fn not_sent(&self, why: String) -> StoreError {
        self.not_sent.fetch_add(1, Relaxed);
        StoreError::NotSent(why)
    }

    /// Why no ask is sent; `None` if asks are.
    pub(super) fn why_open(&self) -> Option<String> {
        let status = self.status.borrow();
        (status.circuit != Circuit::Closed).then(|| status.why.clone())
    }

    async fn opens(&self) -> String {
        let mut status = self.status.subscribe();
        let opened = status.wait_for(|status| status.circuit != Circuit::Closed).await;
        opened.expect("the sender is here").why.clone()
    }

    async fn closes(&self) {
        let mut status = self.status.subscribe();
        _ = status.wait_for(|status| status.circuit == Circuit::Closed).await;
    }

    /// Waits until the repair task has made a connection, or opened the circuit.
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

    /// It is being tried, if it is open.
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

    /// The repair is done: it answers.
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

    /// Waits until an ask that failed so many times in a row may be repeated.
    pub(super) async fn backoff(&self, failures: u32) {
        if self.why_open().is_some() {
            _ = timeout(LONGEST_PARKED, self.closes()).await;
            return;
        }
        sleep(backoff(failures)).await;
        let now = self.micros(Instant::now());
        let next = |next: u64| Some(next.max(now) + REPEAT_MICROS);
        let at = self.next_repeat.fetch_update(Relaxed, Relaxed, next).unwrap_or(now);
        if at > now {
            sleep(Duration::from_micros(at - now)).await;
        }
    }

    /// The number of a new repair task, if there is to be one: none is at work, or it has given no sign of life for `stale`.
    pub(super) fn begin_repair(&self, stale: Duration) -> Option<u64> {
        let mut repair = self.repair();
        if repair.1.is_some_and(|at| at.elapsed() < stale) {
            return None;
        }
        *repair = (repair.0 + 1, Some(Instant::now()));
        Some(repair.0)
    }

    /// A sign of life. False if another repair task has taken over.
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
