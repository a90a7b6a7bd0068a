//! 50 listed keys beside 1,500 clients that use a new key for each request, on simulated time.

use super::app::config::Config;
use super::app::downstream::admission::Admission;
use super::app::downstream::connection::Connection;
use super::app::limits::Limits;
use super::app::limits::time_left::TimeLeft;
use super::app::proxy::UpstreamClients;
use super::app::request::client::Client;
use super::app::request::name::Name;
use super::app::telemetry::access_lines::Lines;
use super::app::telemetry::access_log::AccessLog;
use super::app::telemetry::stats::Stats;
use super::fixture::{MILLI, SECOND, file};

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

const GOOD: u32 = 50;
const MADE_UP: usize = 1_500;
const LASTS: Duration = Duration::from_secs(4);
/// Each good key sends two requests a second: together half of the quota of all.
const EVERY: Duration = Duration::from_millis(500);
const UPSTREAM: Duration = Duration::from_millis(20);

fn limits(keys: &str) -> Arc<Limits> {
    let listed: String = (0..GOOD).map(|key| format!("[keys.listed.k{key}]\nkey = \"k{key}\"\n")).collect();
    let text = format!(
        "quota = \"200/s, burst 100\"\nin_flight = 64\nmax_wait = \"2s\"\n[keys]\nheader = \"x-api-key\"\n\
         quota = \"20/s, burst 20\"\nunlisted = \"by-key\"\n{keys}{listed}"
    );
    let text = file("127.0.0.1:1".parse().unwrap(), &text);
    Arc::new(Limits::new(Config::parse(Path::new("gateway.toml"), &text).unwrap()).unwrap())
}

pub(super) fn connection(keys: &str) -> Connection {
    let limits = limits(keys);
    let peer = "127.0.0.1:1".parse().unwrap();
    let proxy = Arc::new(UpstreamClients::new(Arc::clone(&limits))).proxy(peer, "http");
    Connection {
        peer,
        limits,
        counters: Arc::default(),
        proxy,
        stats: Arc::new(Stats::new(Lines::default())),
        access_log: AccessLog::default(),
        is_limited: true,
        _counted: None,
    }
}

/// Waits for the limits, and for the upstream. Returns whether it was served.
async fn ask(connection: &Arc<Connection>, client: Client) -> bool {
    let mut claim =
        Admission { client, cost: 1, charges: Vec::new(), estimate: None, max_wait: 2 * SECOND, body_buffer: 0 };
    let mut left = TimeLeft::new(claim.max_wait);
    let Ok(pass) = claim.admit(connection, &mut left).await else { return false };
    tokio::time::sleep(UPSTREAM).await;
    drop(pass);
    true
}

/// Asks with a new key as soon as there is an answer, and soon after a refusal.
async fn flood(connection: Arc<Connection>, number: usize, served: Arc<AtomicU64>) {
    for round in 0_u64.. {
        let is_served = ask(&connection, Client::of_key(&format!("made-up-{number}-{round}"))).await;
        served.fetch_add(is_served.into(), Ordering::Relaxed);
        tokio::time::sleep(if is_served { MILLI } else { SECOND }).await;
    }
}

/// What the good keys got.
#[derive(Debug)]
struct Seen {
    served: usize,
    refused: usize,
    p99: Duration,
    /// How many requests of made-up keys were served.
    made_up: u64,
}

async fn run(keys: &str, made_up: usize) -> Seen {
    let connection = Arc::new(connection(keys));
    let served = Arc::<AtomicU64>::default();
    let mut floods = JoinSet::new();
    for number in 0..made_up {
        floods.spawn(flood(Arc::clone(&connection), number, Arc::clone(&served)));
    }
    // They have taken the burst.
    tokio::time::sleep(3 * SECOND).await;
    let mut good = JoinSet::new();
    for key in 0..GOOD {
        for round in 0..LASTS.div_duration_f64(EVERY) as u32 {
            let connection = Arc::clone(&connection);
            good.spawn(async move {
                tokio::time::sleep(EVERY * round + EVERY / GOOD * key).await;
                let came = Instant::now();
                let is_served = ask(&connection, Client::Listed(Name::new(&format!("k{key}")))).await;
                (is_served, came.elapsed())
            });
        }
    }
    let answers = good.join_all().await;
    let mut times: Vec<Duration> = answers.iter().filter(|(is_served, _)| *is_served).map(|(_, time)| *time).collect();
    times.sort();
    let p99 = times[(times.len() * 99 / 100).min(times.len() - 1)];
    Seen { served: times.len(), refused: answers.len() - times.len(), p99, made_up: served.load(Ordering::Relaxed) }
}

#[tokio::test(start_paused = true)]
async fn made_up_keys_on_1_500_connections_leave_listed_keys_served_and_as_fast_as_alone() {
    let alone = run("", 0).await;
    assert_eq!(alone.refused, 0);
    for keys in ["", "unlisted_quota = \"80/s, burst 20\"\n"] {
        let beside = run(keys, MADE_UP).await;
        println!("{keys}alone {alone:?}, beside {beside:?}");
        assert!(beside.served * 100 >= (beside.served + beside.refused) * 99, "{keys}{beside:?}");
        assert!(beside.p99 < alone.p99 * 2, "{keys}{beside:?}, alone {alone:?}");
        // What is left is theirs.
        assert!(beside.made_up >= 4 * 70, "{keys}{beside:?}");
    }
}
