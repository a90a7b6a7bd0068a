//! The samples that the page shows: four a second. The samples of the last minute are kept for new viewers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tollgate::{KeyedSnapshot, Quota, Snapshot};

use super::advice::Advice;
use super::status::{Status, StatusSnapshot};
use crate::config::Config;
use crate::limits::Limits;
use crate::limits::client_limits::TOP_WINDOW;
use crate::request::client::Client;
use crate::telemetry::counters::{Counters, Counts};
use crate::telemetry::refusals::{Count, RecentRefusals};
use crate::telemetry::stats::Stats;
use crate::telemetry::trend::{Recent, Trend};
use crate::upstream::backends::BackendStatus;

const PER_SECOND: u32 = 4;
const KEPT: usize = 60 * PER_SECOND as usize;
const SHOWN: usize = 12;

/// What is kept of a sample for the charts.
#[derive(serde::Serialize)]
struct Point {
    /// Milliseconds since the start.
    at: u64,
    /// The rovers of the limit of all, and its level.
    tail: u64,
    head: u64,
    level: i64,
    ceiling: Option<u64>,
    /// Requests forwarded, and requests refused for whatever reason, since the start.
    passed: u64,
    refused: u64,
}

#[derive(serde::Serialize)]
struct Sample {
    #[serde(flatten)]
    point: Point,
    /// The time of the start, in seconds since 1970.
    began_at: u64,
    all: Snapshot,
    /// Tokens per second.
    rate: f64,
    burst: u64,
    in_flight_cap: Option<u64>,
    each: Each,
    counts: Counts,
    /// The refusals of the last minute.
    refusals: Refusals,
    recent: Recent,
    upstream: String,
    busiest: Vec<TopClient>,
    status: StatusSnapshot,
    /// Empty if there is one upstream without checks.
    upstreams: Vec<BackendStatus>,
}

/// The most refusals first.
#[derive(serde::Serialize)]
struct Refusals {
    /// How long the time is that they are about, in milliseconds.
    span: u64,
    count: u64,
    /// How many kinds of refusals there were: by client and reason.
    kinds: usize,
    shown: Vec<Refusal>,
}

#[derive(serde::Serialize)]
struct Refusal {
    client: String,
    reason: &'static str,
    /// The limit that refused, if one did.
    limit: Option<String>,
    count: u64,
    /// Milliseconds since the last one.
    ago: u64,
    #[serde(flatten)]
    advice: Advice,
}

/// All keys together.
#[derive(serde::Serialize)]
struct Each {
    keys: usize,
    keys_waiting: usize,
    waiting_tasks: usize,
}

#[derive(serde::Serialize)]
struct TopClient {
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

/// What samples are taken from.
pub(crate) struct Sources {
    pub(crate) limits: Arc<Limits>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) status: Arc<Status>,
    pub(crate) stats: Arc<Stats>,
}

/// Samples as JSON.
pub(crate) struct Samples {
    /// The points of the charts.
    kept: Mutex<VecDeque<String>>,
    newest: watch::Sender<Arc<str>>,
}

impl Samples {
    pub(crate) fn new() -> Self {
        Self { kept: Mutex::default(), newest: watch::Sender::new(Arc::from("null")) }
    }

    /// Takes samples until it is dropped.
    pub(crate) async fn take(self: Arc<Self>, sources: Sources) {
        let mut trend = Trend::default();
        let mut turns = tokio::time::interval(Duration::from_secs(1) / PER_SECOND);
        turns.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            turns.tick().await;
            let sample = look(&sources, &mut trend);
            let json = |value: serde_json::Result<String>| value.expect("numbers and strings");
            self.keep(json(serde_json::to_string(&sample.point)), json(serde_json::to_string(&sample)).into());
        }
    }

    fn keep(&self, point: String, sample: Arc<str>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(point);
        drop(kept);
        self.newest.send_replace(sample);
    }

    /// The points of the last minute as a JSON array, and a receiver of the later samples.
    pub(crate) fn follow(&self) -> (String, watch::Receiver<Arc<str>>) {
        let newest = self.newest.subscribe();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: Vec<&str> = kept.iter().map(|point| &**point).collect();
        (format!("[{}]", kept.join(",")), newest)
    }
}

fn look(sources: &Sources, trend: &mut Trend) -> Sample {
    let Sources { limits, counters, status, stats } = sources;
    let config = limits.config();
    let mut all = limits.all.snapshot();
    // The limiter counts the clients that wait.
    all.waiting_tasks = limits.fair_queue.waiting();
    let each = limits.clients.snapshots();
    let sum = |of: fn(&KeyedSnapshot<Client>) -> usize| each.iter().map(of).sum();
    let busiest = limits.clients.busiest(SHOWN).into_iter().map(|place| {
        let quota = config.keys.quota_of(&place.client);
        let per_second = |count: u64| count as f64 / TOP_WINDOW.as_secs_f64();
        TopClient {
            available: limits.clients.of(&place.client).available(&place.client),
            deficiency: limits.clients.of(&place.client).deficiency(&place.client),
            client: place.client.to_string(),
            granted: per_second(place.granted),
            refused: per_second(place.refused),
            burst: quota.capacity(),
            quota,
        }
    });
    let counts = counters.counts();
    Sample {
        point: Point {
            at: status.up_for().as_millis() as u64,
            tail: all.tail,
            head: all.quotas[0].head,
            level: all.quotas[0].level,
            ceiling: config.in_flight.and(all.ceiling),
            passed: counts.answered + counts.failed,
            refused: stats.refusals.totals().values().sum(),
        },
        began_at: status.began_at(),
        refusals: refusals(&config, &stats.refusals),
        recent: trend.look(stats),
        upstream: upstreams(&config),
        rate: config.quota.amount() as f64 / config.quota.period().as_secs_f64(),
        burst: config.quota.capacity(),
        in_flight_cap: config.in_flight,
        each: Each {
            keys: sum(|each| each.keys),
            keys_waiting: sum(|each| each.keys_waiting),
            waiting_tasks: sum(|each| each.waiting_tasks),
        },
        busiest: busiest.collect(),
        counts,
        all,
        status: status.now(),
        upstreams: config.upstreams.statuses(),
    }
}

fn refusals(config: &Config, all: &crate::telemetry::refusals::Refusals) -> Refusals {
    let RecentRefusals { span, count, kinds, most } = all.recent(SHOWN);
    let shown = most.iter().map(|(refused_client, reason, limit, Count { count, last })| Refusal {
        client: refused_client.to_string(),
        reason: reason.name(),
        limit: limit.map(|limit| limit.to_string()),
        count: *count,
        ago: last.elapsed().as_millis() as u64,
        advice: Advice::new(config, refused_client, *reason, *limit),
    });
    Refusals { span: span.as_millis() as u64, count, kinds, shown: shown.collect() }
}

/// The upstreams, and which of them get no requests.
fn upstreams(config: &Config) -> String {
    let of =
        |seen: &BackendStatus| if seen.is_healthy { seen.url.clone() } else { format!("{} (not healthy)", seen.url) };
    let seen = config.upstreams.statuses();
    if seen.is_empty() {
        config.upstreams.all()[0].target.to_string()
    } else {
        seen.iter().map(of).collect::<Vec<_>>().join(", ")
    }
}
