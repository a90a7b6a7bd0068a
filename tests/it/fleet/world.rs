//! Many nodes over one store in memory, which gives the same answers as the script, in paused time. The limiters,
//! refill tasks and timers are the real ones; only the network and the clock are simulated.

use super::law::{Batch, Law};
use super::served::Served;
use crate::fixture::*;
use std::cell::RefCell;
use std::rc::Rc;
use tokio::task::LocalSet;

#[derive(Clone, Debug)]
pub(crate) struct World {
    /// Nodes with more callers than their share can serve.
    pub(crate) busy: u64,
    /// Callers of each of these nodes, which claim again at once.
    pub(crate) tasks: u64,
    /// Tokens per claim of these callers.
    pub(crate) cost: u64,
    /// Nodes on which a caller claims a token now and then.
    pub(crate) quiet: u64,
    pub(crate) law: Law,
    pub(crate) time: Duration,
    /// The latency to the store, and the same back.
    pub(crate) latency: Duration,
    /// The time that the store needs for a request, or 0.
    pub(crate) service: Duration,
}

/// The results.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The grants, in the order of time.
    pub(crate) grants: Vec<Batch>,
    /// The tokens of each busy node from the second epoch on. Before that, the store does not know all nodes, and the
    /// first ones get the burst.
    pub(crate) got: Vec<u64>,
    /// How long the callers of quiet nodes waited.
    pub(crate) waits: Vec<Duration>,
    /// The number of requests to the store.
    pub(crate) asks: u64,
    /// The longest lateness of a grant against the store's schedule: the latency of an answer, and a timer. Time is paused,
    /// so nothing else is ever late.
    pub(crate) late: Duration,
}

/// The store counts active nodes in epochs of this length.
const EPOCH: Duration = Duration::from_millis(250);
/// Between two calls on a quiet node.
const NOW_AND_THEN: Duration = Duration::from_millis(130);

struct Records {
    began: Instant,
    grants: RefCell<Vec<Batch>>,
    got: RefCell<Vec<u64>>,
    waits: RefCell<Vec<Duration>>,
}

impl Records {
    fn record_grant(&self, tokens: u64) {
        let at = self.began.elapsed().as_nanos() as u64;
        let mut grants = self.grants.borrow_mut();
        match grants.last_mut().filter(|batch| batch.last == at) {
            Some(batch) => batch.tokens += tokens,
            None => grants.push(Batch { first: at, last: at, tokens }),
        }
    }
}

impl World {
    /// Runs the simulation. Time must be paused.
    pub(crate) async fn live(&self) -> Outcome {
        let memory = MemoryStore::new();
        memory.set_latency(self.latency);
        let store = Served::new(memory.clone(), self.service);
        let records = Rc::new(Records {
            began: Instant::now(),
            grants: RefCell::default(),
            got: RefCell::new(vec![0; self.busy as usize]),
            waits: RefCell::default(),
        });
        let local = LocalSet::new();
        let limiters = local.run_until(async { self.begin(&store, &records) }).await;
        local.run_until(sleep(self.time)).await;
        drop(local);
        let late = limiters.iter().map(|limiter| limiter.snapshot().lateness).max().unwrap_or_default();
        Outcome {
            grants: records.grants.take(),
            got: records.got.take(),
            waits: records.waits.take(),
            asks: memory.asks(),
            late: late + self.latency,
        }
    }

    fn begin(&self, store: &Served, records: &Rc<Records>) -> Vec<Limiter> {
        let quota = Quota::per_second(self.law.rate).burst(self.law.burst);
        let node = || Limiter::builder().quota(quota).distributed(store.clone()).build().expect("a valid quota");
        let mut limiters = Vec::new();
        for number in 0..self.busy {
            let limiter = node();
            for _ in 0..self.tasks {
                let (limiter, records, cost) = (limiter.clone(), records.clone(), self.cost);
                tokio::task::spawn_local(async move {
                    while limiter.consume(cost).await.is_ok() {
                        records.record_grant(cost);
                        if records.began.elapsed() >= EPOCH {
                            records.got.borrow_mut()[number as usize] += cost;
                        }
                    }
                });
            }
            limiters.push(limiter);
        }
        for number in 0..self.quiet {
            let limiter = node();
            tokio::task::spawn_local(call_now_and_then(limiter.clone(), records.clone(), number));
            limiters.push(limiter);
        }
        limiters
    }
}

async fn call_now_and_then(limiter: Limiter, records: Rc<Records>, number: u64) {
    sleep(Duration::from_millis(number * 37 % 130)).await;
    loop {
        let asked = Instant::now();
        if limiter.consume(1).await.is_err() {
            return;
        }
        records.waits.borrow_mut().push(asked.elapsed());
        records.record_grant(1);
        sleep(NOW_AND_THEN).await;
    }
}

impl Outcome {
    pub(crate) fn tokens(&self) -> u64 {
        self.grants.iter().map(|batch| batch.tokens).sum()
    }

    /// Tokens granted, of those that the quota allows in this time.
    pub(crate) fn achieved(&self, world: &World) -> f64 {
        self.tokens() as f64 / (world.law.burst as f64 + world.law.rate as f64 * world.time.as_secs_f64())
    }

    /// The fewest tokens of a busy node / the most.
    pub(crate) fn fairness(&self) -> f64 {
        match (self.got.iter().min(), self.got.iter().max()) {
            (Some(least), Some(most)) if *most > 0 => *least as f64 / *most as f64,
            _ => 1.0,
        }
    }

    /// Whole tokens above the allowed number. Each grant was scheduled at most [`late`](Self::late) before it was seen.
    pub(crate) fn excess(&self, world: &World) -> u64 {
        let late = self.late.as_nanos() as u64;
        let scheduled = |batch: &Batch| Batch { first: batch.first.saturating_sub(late), ..*batch };
        world.law.excess(&self.grants.iter().map(scheduled).collect::<Vec<_>>())
    }

    /// The longest wait of a caller on a quiet node.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.waits.iter().max().copied().unwrap_or_default()
    }
}
