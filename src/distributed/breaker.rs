//! A circuit breaker for a server that keeps stores, the number of requests under way there, and the rate at which failed
//! requests are repeated: for implementations of [`Store`](super::Store).
//!
//! The breaker is *closed* while the server answers. The store *opens* it when the server does not. While the breaker is
//! open, no requests are sent. The repair task tries the server (*half-open*) and closes the breaker with the first answer.

use super::race::first;
use super::{LeaseRequest, StoreError};
use crate::handle::Limiter;
use crate::quota::Quota;
use std::future::Future;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use tokio::task::{self, AbortHandle};
use tokio::time::{sleep, timeout};

/// The largest number of requests under way at one server; further requests wait for their turn. It allows 5,000
/// requests a second over a round trip of 50 ms. It is small enough that a server that stood still answers all of them
/// at once.
const MAX_IN_FLIGHT: usize = 256;
/// The most repeats of failed requests in a second, over all stores of the server.
const REPEATS: u64 = 1_000;
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

#[cfg(feature = "metrics")]
impl Circuit {
    /// All states, with their names in series.
    pub(crate) const NAMED: [(Self, &'static str); 3] =
        [(Self::Closed, "closed"), (Self::Open, "open"), (Self::HalfOpen, "half_open")];
}

/// Suppresses requests to a server that does not answer. All stores on one server share one breaker.
///
/// An implementation of [`Store`](super::Store)
///
/// 1. calls [`admit`](Self::admit) before each request, and keeps the permit while the request is under way;
/// 2. reports the result: [`note_answer`](Self::note_answer), [`note_reply`](Self::note_reply) or
///    [`note_timeout`](Self::note_timeout);
/// 3. if the server cannot be reached, calls [`open`](Self::open) and starts a [`repair`](Self::repair);
/// 4. returns [`backoff`](Self::backoff) from [`Store::backoff`](super::Store::backoff), and the state of the breaker from
///    [`Store::circuits`](super::Store::circuits).
///
/// At most 256 requests are under way at once, and failed requests are repeated at most 1,000 times a second, over all
/// stores of the server.
#[derive(Debug)]
pub struct Breaker {
    status: watch::Sender<Status>,
    permits: Semaphore,
    began: Instant,
    /// The time of the last answer, in microseconds since `began`; 0 if there was none.
    answered: AtomicU64,
    /// How many repairs were started since the server last answered a request.
    strikes: AtomicU32,
    /// Lets failed requests be repeated. Those that are given up leave its queue, so they delay no other.
    repeats: Limiter,
    repair: Mutex<LastRepair>,
}

/// The task that detects when the server answers again, with the time of its last sign of life, unless it has succeeded.
type LastRepair = Option<(AbortHandle, Instant)>;

/// The state of a [`Breaker`]; from [`Breaker::snapshot`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BreakerSnapshot {
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
}

#[derive(Clone, Debug, Default)]
struct Status {
    seen: BreakerSnapshot,
    /// Why the circuit was opened last.
    why: String,
    /// Counts repairs: after each, there may be a new connection.
    repairs: u64,
}

impl Default for Breaker {
    /// A closed breaker.
    fn default() -> Self {
        Self {
            status: watch::Sender::default(),
            permits: Semaphore::new(MAX_IN_FLIGHT),
            began: Instant::now(),
            answered: AtomicU64::new(0),
            strikes: AtomicU32::new(0),
            repeats: Limiter::new(Quota::per_second(REPEATS).burst(1)).expect("the quota is valid"),
            repair: Mutex::default(),
        }
    }
}

impl Breaker {
    /// Waits for a permit to send a request, which the caller holds while the request is under way.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotSent`] if the circuit is open, or opens meanwhile, or there is no permit for `answer_timeout`.
    pub async fn admit(&self, answer_timeout: Duration) -> Result<impl Send, StoreError> {
        let (mut permit, mut why) = (self.permits.try_acquire().ok(), self.why_open());
        if permit.is_none() && why.is_none() {
            let acquired = async { permit = self.permits.acquire().await.ok() };
            // The circuit may be closed again when this task runs.
            let opened = async { why = Some(self.becomes(Status::is_open).await) };
            _ = timeout(answer_timeout, first(opened, acquired)).await;
            why = why.or_else(|| self.why_open());
        }
        permit.filter(|_| why.is_none()).ok_or_else(|| {
            self.not_sent(why.unwrap_or_else(|| {
                format!(
                    "{MAX_IN_FLIGHT} requests stayed unanswered for {answer_timeout:?}: reduce the load or try later"
                )
            }))
        })
    }

    /// Changes the counters, which nothing waits for.
    fn count(&self, change: impl FnOnce(&mut BreakerSnapshot)) {
        self.status.send_if_modified(|status| {
            change(&mut status.seen);
            false
        });
    }

    /// Counts a request that was not sent because of `why`, and returns the error for it.
    pub fn not_sent(&self, why: String) -> StoreError {
        self.count(|seen| seen.not_sent += 1);
        StoreError::NotSent(why)
    }

    /// Returns the reason why no requests are sent; `None` if they are sent.
    pub fn why_open(&self) -> Option<String> {
        let status = self.status.borrow();
        status.is_open().then(|| status.why.clone())
    }

    /// Returns a future that waits until the status is so, and returns why the circuit was opened last.
    fn becomes(&self, is_so: impl Fn(&Status) -> bool + Send) -> impl Future<Output = String> + Send {
        let mut status = self.status.subscribe();
        async move { status.wait_for(is_so).await.map(|status| status.why.clone()).unwrap_or_default() }
    }

    /// Returns a future that waits until a repair has ended since this call, or the circuit is open.
    pub fn repaired(&self) -> impl Future<Output = ()> + Send {
        let repairs = self.status.borrow().repairs;
        let repaired = self.becomes(move |status| status.repairs != repairs || status.is_open());
        async { drop(repaired.await) }
    }

    /// Opens the circuit: no requests are sent until a [`repair`](Self::repair) has succeeded.
    pub fn open(&self, why: String) {
        self.status.send_modify(|status| {
            status.seen.opened += u64::from(!status.is_open());
            (status.seen.circuit, status.why) = (Circuit::Open, why);
        });
    }

    /// A trial begins. Nothing waits for that.
    fn half_open(&self) {
        self.count(|seen| {
            seen.trials += 1;
            if seen.circuit == Circuit::Open {
                seen.circuit = Circuit::HalfOpen;
            }
        });
    }

    /// Closes the circuit after a repair: the server answers.
    fn close(&self) {
        self.status.send_modify(|status| {
            status.seen.circuit = Circuit::Closed;
            status.repairs += 1;
        });
    }

    /// The server has replied, be it with an error or to a trial.
    pub fn note_reply(&self) {
        self.answered.store(self.micros(Instant::now()).max(1), Relaxed);
    }

    /// The server has answered a request of a node.
    pub fn note_answer(&self) {
        self.note_reply();
        self.strikes.store(0, Relaxed);
    }

    /// A request was not answered in time.
    pub fn note_timeout(&self) {
        self.count(|seen| seen.timeouts += 1);
    }

    /// Returns whether the server has replied since `then`. If it has, a request that was not answered in time is no
    /// reason to open the circuit.
    pub fn has_replied_since(&self, then: Instant) -> bool {
        self.answered.load(Relaxed) > self.micros(then)
    }

    fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_micros() as u64
    }

    /// Waits until a request may be repeated; `failures` is the number of failures in a row. While the circuit is open,
    /// that is when it closes.
    pub async fn backoff(&self, failures: u32) {
        if self.why_open().is_some() {
            _ = timeout(LONGEST_PARKED, self.becomes(|status| !status.is_open())).await;
            return;
        }
        sleep(LeaseRequest::backoff(failures)).await;
        // It is never closed.
        _ = self.repeats.wait(1).await;
    }

    /// Spawns a task that repeats `trial` until it succeeds, with pauses, and then closes the circuit. Does nothing if such
    /// a task is running. It counts as ended if it gives no sign of life for `stale`, because its runtime may not be
    /// driven; so no trial may take that long. The task ends when a trial returns `None`.
    pub fn repair<T, F>(self: &Arc<Self>, stale: Duration, trial: T)
    where
        T: Fn() -> F + Send + 'static,
        F: Future<Output = Option<Result<(), StoreError>>> + Send + 'static,
    {
        let mut repair = self.last_repair();
        if repair.as_ref().is_some_and(|(task, at)| !task.is_finished() && at.elapsed() < stale) {
            return;
        }
        let task = tokio::spawn(Arc::clone(self).run_repair(trial));
        *repair = Some((task.abort_handle(), Instant::now()));
    }

    async fn run_repair<F>(self: Arc<Self>, trial: impl Fn() -> F + Send)
    where
        F: Future<Output = Option<Result<(), StoreError>>> + Send,
    {
        // If the server has answered trials but no requests since, do not try again at once.
        let strikes = self.strikes.fetch_add(1, Relaxed);
        if strikes > 0 {
            sleep(LeaseRequest::backoff(strikes)).await;
        }
        for failures in 1.. {
            if !self.act_for_this_task(|_| self.half_open()) {
                return;
            }
            match trial().await {
                Some(Ok(())) => {
                    // End the repair first: a request that finds the connection broken again can then start a new one.
                    self.act_for_this_task(|repair| *repair = None);
                    return self.close();
                }
                Some(Err(error)) if self.act_for_this_task(|_| self.open(error.to_string())) => {}
                Some(Err(_)) | None => return,
            }
            sleep(LeaseRequest::backoff(failures)).await;
        }
    }

    /// Calls `act` for the repair task that this is, which is a sign of its life. Returns false, without calling it, if another
    /// one has taken over: its trials are later ones.
    fn act_for_this_task(&self, act: impl FnOnce(&mut LastRepair)) -> bool {
        let mut repair = self.last_repair();
        let own = repair.as_mut().filter(|(task, _)| task.id() == task::id());
        let Some((_, at)) = own else { return false };
        *at = Instant::now();
        act(&mut repair);
        true
    }

    fn last_repair(&self) -> MutexGuard<'_, LastRepair> {
        self.repair.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Reads the state and the counters.
    pub fn snapshot(&self) -> BreakerSnapshot {
        let in_flight = MAX_IN_FLIGHT - self.permits.available_permits();
        BreakerSnapshot { in_flight, ..self.status.borrow().seen.clone() }
    }
}

impl Status {
    fn is_open(&self) -> bool {
        self.seen.circuit != Circuit::Closed
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
