//! A node's connection to a store in memory, which can be cut.

use crate::fixture::*;
use std::sync::atomic::AtomicU8;
use tollgate::distributed::{LeaseGrant, LeaseRequest, Store, StoreCounters, StoreError, Stores};

/// Clones share the connection.
#[derive(Clone, Debug)]
pub struct Link {
    store: MemoryStore,
    cut: Arc<AtomicU8>,
    outage: Outage,
    lost_time: Option<LostTime>,
    /// The pause before a failed request is repeated, if it is not that of all stores.
    pause: Option<Duration>,
}

/// Where a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cut {
    Nowhere,
    /// Requests do not arrive.
    Before,
    /// Requests are not sent, and the node is told so.
    Unsent,
    /// Requests are carried out, and their answers are lost.
    After,
    /// Requests are carried out, and the node gets neither an answer nor an error.
    Silent,
}

impl Link {
    pub fn to(store: &MemoryStore, outage: Outage) -> Self {
        Self { store: store.clone(), cut: Arc::default(), outage, lost_time: None, pause: None }
    }

    /// Measures the time that the store's clock loses while an answer on this connection is lost.
    pub fn measuring(self, lost_time: &LostTime) -> Self {
        Self { lost_time: Some(lost_time.clone()), ..self }
    }

    pub fn repeating_after(self, pause: Duration) -> Self {
        Self { pause: Some(pause), ..self }
    }

    pub fn cut(&self, cut: Cut) {
        self.cut.store(cut as u8, Ordering::Release);
    }

    fn is_cut(&self, cut: Cut) -> bool {
        self.cut.load(Ordering::Acquire) == cut as u8
    }
}

impl Store for Link {
    fn ask(&self, ask: LeaseRequest) -> Pin<Box<dyn Future<Output = Result<LeaseGrant, StoreError>> + Send + '_>> {
        Box::pin(async move {
            let cut = || StoreError::Unreachable("the connection is cut".to_owned());
            if self.is_cut(Cut::Before) {
                return Err(cut());
            }
            if self.is_cut(Cut::Unsent) {
                return Err(StoreError::NotSent("there is no connection".to_owned()));
            }
            let answer = self.store.ask(ask).await;
            let is_answered = answer.is_ok() && !self.is_cut(Cut::Silent) && !self.is_cut(Cut::After);
            if let Some(lost_time) = &self.lost_time {
                lost_time.note(Arc::as_ptr(&self.cut).addr(), is_answered);
            }
            if self.is_cut(Cut::Silent) {
                std::future::pending::<()>().await;
            }
            if self.is_cut(Cut::After) { Err(cut()) } else { answer }
        })
    }

    fn tally(&self) -> &StoreCounters {
        self.store.tally()
    }

    fn backoff(&self, failures: u32) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(sleep(self.pause.unwrap_or_else(|| LeaseRequest::backoff(failures))))
    }

    fn outage(&self) -> Outage {
        self.outage
    }
}

/// All names are one store.
impl Stores for Link {
    fn named(&self, _: &str) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }
}

/// Measures the lost time of docs/distributed.md: time that passes on the server and that its clock does not count,
/// because the clock steps back. Only time during which a node waits for an answer that was lost is measured.
#[derive(Clone, Debug)]
pub struct LostTime(Arc<Mutex<Measured>>);

#[derive(Debug)]
struct Measured {
    store: MemoryStore,
    latency: Duration,
    began: Instant,
    /// By how many microseconds the clock stepped, and when.
    steps: Vec<(Instant, i64)>,
    /// The last request: when it was carried out, and in which microsecond of the store's clock.
    last: (Instant, i64),
    /// The connections that wait for an answer that was lost.
    waiting: Vec<usize>,
    lost: i64,
}

impl LostTime {
    pub fn of(store: &MemoryStore, latency: Duration) -> Self {
        let (began, store) = (Instant::now(), store.clone());
        let measured =
            Measured { store, latency, began, steps: Vec::new(), last: (began, 0), waiting: Vec::new(), lost: 0 };
        Self(Arc::new(Mutex::new(measured)))
    }

    pub fn step_clock(&self, micros: i64) {
        let mut it = self.0.lock().unwrap();
        it.store.step_clock(micros);
        it.steps.push((Instant::now(), micros));
    }

    pub fn seconds(&self) -> f64 {
        self.0.lock().unwrap().lost as f64 / 1e6
    }

    /// A request was carried out, and its answer would arrive now.
    fn note(&self, connection: usize, is_answered: bool) {
        let mut it = self.0.lock().unwrap();
        let at = Instant::now() - it.latency;
        let skew: i64 = it.steps.iter().filter(|(stepped, _)| *stepped <= at).map(|(_, micros)| micros).sum();
        let clock = (at - it.began).as_micros() as i64 + skew;
        let (last_at, last_clock) = std::mem::replace(&mut it.last, (at, clock));
        let passed = at.saturating_duration_since(last_at).as_micros() as i64;
        if !it.waiting.is_empty() {
            it.lost += (passed - (clock - last_clock).max(0)).max(0);
        }
        it.waiting.retain(|waiting| *waiting != connection);
        if !is_answered {
            it.waiting.push(connection);
        }
    }
}
