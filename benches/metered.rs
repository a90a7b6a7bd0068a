//! What does a meter cost those who are granted at once? They should not notice.
//!
//! `cargo bench --features metrics,tracing --bench metered`. Limiters with and without a meter take turns, a few
//! milliseconds each, so that whatever else the machine does falls on both; the median of all turns is printed, and the
//! ratio to the limiter without. Not divan: it measures one after the other.
//!
//! For what the features cost that are merely compiled in: `cargo bench --bench metered`, which prints the first column
//! of the same table, built without them.

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Instant;
use tollgate::{Limiter, Quota};

const TURNS: usize = 301;
const CALLS: u32 = 200_000;

/// Nobody is ever refused.
fn ample() -> Limiter {
    Limiter::new(Quota::per_second(1_000_000_000).burst(1_000_000)).expect("valid")
}

/// An hour for the next token.
fn empty() -> Limiter {
    Limiter::new(Quota::per_hour(1).initial(0)).expect("valid")
}

fn try_acquire(limiter: &Limiter) {
    black_box(limiter.try_acquire(black_box(1)).is_ok());
}

fn consume(limiter: &Limiter) {
    let poll = pin!(limiter.consume(black_box(1))).poll(&mut Context::from_waker(Waker::noop()));
    assert!(black_box(poll.is_ready()));
}

/// Nanoseconds per call.
fn turn(limiter: &Limiter, call: fn(&Limiter)) -> f64 {
    let start = Instant::now();
    (0..CALLS).for_each(|_| call(limiter));
    start.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

fn median(mut turns: Vec<f64>) -> f64 {
    turns.sort_by(f64::total_cmp);
    turns[turns.len() / 2]
}

/// One way to meet a limiter in the loop.
struct Way {
    name: &'static str,
    limiter: Limiter,
    /// While somebody scrapes.
    is_scraped: bool,
}

fn ways(make: fn() -> Limiter) -> Vec<Way> {
    let without = Way { name: "without a meter", limiter: make(), is_scraped: false };
    #[cfg(feature = "metrics")]
    return std::iter::once(without).chain(metered::ways(make)).collect();
    #[cfg(not(feature = "metrics"))]
    vec![without]
}

fn main() {
    // Cargo passes `--bench`.
    for (what, make, call) in [
        ("try_acquire, granted", ample as fn() -> Limiter, try_acquire as fn(&Limiter)),
        ("consume, granted at once", ample, consume),
        ("try_acquire, refused", empty, try_acquire),
    ] {
        let ways = ways(make);
        let mut turns: Vec<Vec<f64>> = ways.iter().map(|_| Vec::new()).collect();
        for number in 0..TURNS * ways.len() {
            let way = number % ways.len();
            #[cfg(feature = "metrics")]
            metered::scrape(ways[way].is_scraped);
            turns[way].push(turn(&ways[way].limiter, call));
        }
        let medians: Vec<f64> = turns.into_iter().map(median).collect();
        println!("{what}:");
        for (way, median) in ways.iter().zip(&medians) {
            let scraped = if way.is_scraped { ", scraped 100 times a second" } else { "" };
            println!("  {:>6.2} ns  {:.3} x  {}{scraped}", median, median / medians[0], way.name);
        }
    }
}

#[cfg(feature = "metrics")]
mod metered {
    use super::Way;
    use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, OnceLock};
    use std::thread;
    use std::time::Duration;
    use tollgate::Limiter;
    use tollgate::metrics::Meter;

    static SCRAPES: AtomicBool = AtomicBool::new(false);
    static METER: Mutex<Option<Meter>> = Mutex::new(None);
    static PROMETHEUS: OnceLock<PrometheusHandle> = OnceLock::new();

    /// A limiter with a meter that nobody asks, and one that is scraped as often as a thousand Prometheus servers would.
    pub(super) fn ways(make: fn() -> Limiter) -> impl Iterator<Item = Way> {
        PROMETHEUS.get_or_init(|| {
            let handle = PrometheusBuilder::new().install_recorder().expect("nobody else installs one");
            thread::spawn(scrape_on);
            handle
        });
        let ways = [("with a meter", false), ("with a meter", true), ("without a meter, again", false)];
        ways.into_iter().map(move |(name, is_scraped)| {
            let limiter = make();
            if name == "with a meter" {
                let meter = Meter::new("bench", &limiter).expect("its first meter");
                if is_scraped {
                    *METER.lock().expect("no panic") = Some(meter);
                }
            }
            Way { name, limiter, is_scraped }
        })
    }

    pub(super) fn scrape(whether: bool) {
        SCRAPES.store(whether, Ordering::Relaxed);
    }

    fn scrape_on() {
        loop {
            thread::sleep(Duration::from_millis(10));
            if SCRAPES.load(Ordering::Relaxed)
                && let Some(meter) = &*METER.lock().expect("no panic")
            {
                meter.publish();
                std::hint::black_box(PROMETHEUS.get().map(PrometheusHandle::render));
            }
        }
    }
}
