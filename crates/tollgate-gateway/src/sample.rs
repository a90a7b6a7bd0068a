//! The samples that the page shows: four a second. The samples of the last minute are kept for new viewers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tollgate::{KeyedSnapshot, Quota, Snapshot};

use super::backends::Seen;
use super::client::Client;
use super::counters::{Counters, Counts};
use super::each::TOP_WINDOW;
use super::limits::Limits;
use super::status::{Now, Status};

const PER_SECOND: u32 = 4;
const KEPT: usize = 60 * PER_SECOND as usize;
const SHOWN: usize = 12;

#[derive(serde::Serialize)]
struct Sample {
    /// Milliseconds since the start.
    at: u64,
    all: Snapshot,
    /// Tokens per second.
    rate: f64,
    burst: u64,
    in_flight_cap: Option<u64>,
    each: Each,
    counts: Counts,
    busiest: Vec<Busy>,
    status: Now,
    /// Empty if there is one upstream without checks.
    upstreams: Vec<Seen>,
}

/// All keys together.
#[derive(serde::Serialize)]
struct Each {
    keys: usize,
    keys_waiting: usize,
    waiting_tasks: usize,
}

#[derive(serde::Serialize)]
struct Busy {
    client: String,
    /// Tokens per second.
    granted: f64,
    /// Requests per second that its own limit refused.
    refused: f64,
    available: u64,
    deficiency: u64,
    burst: u64,
    quota: Quota,
}

/// Samples as JSON.
pub(crate) struct Samples {
    kept: Mutex<VecDeque<Arc<str>>>,
    newest: watch::Sender<Arc<str>>,
}

impl Samples {
    pub(crate) fn new() -> Self {
        Self { kept: Mutex::default(), newest: watch::Sender::new(Arc::from("null")) }
    }

    /// Takes samples until it is dropped.
    pub(crate) async fn take(self: Arc<Self>, limits: Arc<Limits>, counters: Arc<Counters>, status: Arc<Status>) {
        let mut turns = tokio::time::interval(Duration::from_secs(1) / PER_SECOND);
        turns.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            turns.tick().await;
            let json = serde_json::to_string(&look(&limits, &counters, &status)).expect("numbers and strings");
            self.keep(json.into());
        }
    }

    fn keep(&self, sample: Arc<str>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Arc::clone(&sample));
        drop(kept);
        self.newest.send_replace(sample);
    }

    /// The samples of the last minute as a JSON array, and a receiver of the later ones.
    pub(crate) fn follow(&self) -> (String, watch::Receiver<Arc<str>>) {
        let newest = self.newest.subscribe();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: Vec<&str> = kept.iter().map(|sample| &**sample).collect();
        (format!("[{}]", kept.join(",")), newest)
    }
}

fn look(limits: &Limits, counters: &Counters, status: &Status) -> Sample {
    let config = limits.config();
    let mut all = limits.all.snapshot();
    // The limiter counts the clients that wait.
    all.waiting_tasks = limits.shares.waiting();
    let each = limits.each.snapshots();
    let sum = |of: fn(&KeyedSnapshot<Client>) -> usize| each.iter().map(of).sum();
    let busiest = limits.each.busiest(SHOWN).into_iter().map(|place| {
        let quota = config.keys.quota_of(&place.client);
        let per_second = |count: u64| count as f64 / TOP_WINDOW.as_secs_f64();
        Busy {
            available: limits.each.of(&place.client).available(&place.client),
            deficiency: limits.each.of(&place.client).deficiency(&place.client),
            client: place.client.to_string(),
            granted: per_second(place.granted),
            refused: per_second(place.refused),
            burst: quota.capacity(),
            quota,
        }
    });
    Sample {
        at: status.up_for().as_millis() as u64,
        rate: config.global.amount() as f64 / config.global.period().as_secs_f64(),
        burst: config.global.capacity(),
        in_flight_cap: config.in_flight,
        each: Each {
            keys: sum(|each| each.keys),
            keys_waiting: sum(|each| each.keys_waiting),
            waiting_tasks: sum(|each| each.waiting_tasks),
        },
        busiest: busiest.collect(),
        counts: counters.counts(),
        all,
        status: status.now(),
        upstreams: config.upstreams.seen(),
    }
}
