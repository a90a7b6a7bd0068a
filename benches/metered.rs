//! What does a meter cost for grants without waiting? It should not be noticeable.
//!
//! `cargo bench --features metrics,tracing --bench metered`. Limiters with and without a meter take turns of ten
//! milliseconds each, so that other load on the machine affects all of them. Printed are the best and the median turn,
//! and both as multiples of those without a meter. This is not a divan benchmark, because divan measures one case after
//! the other.
//!
//! Compare the first row of each table with that of `cargo bench --bench metered`, which builds without the features:
//! the difference is the cost of features that are compiled in and not used.

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Instant;
use tollgate::{Limiter, Quota};

const TURNS: usize = 75;
/// Long enough for a turn to be scraped once or twice.
const TURN: u32 = 10_000_000;

/// So large that no call is refused.
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
fn turn(limiter: &Limiter, calls: u32, call: fn(&Limiter)) -> f64 {
    let start = Instant::now();
    (0..calls).for_each(|_| call(limiter));
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}

/// The best and the median.
fn judge(mut turns: Vec<f64>) -> [f64; 2] {
    turns.sort_by(f64::total_cmp);
    [turns[0], turns[turns.len() / 2]]
}

/// One way to call a limiter in the loop.
struct Way {
    name: &'static str,
    limiter: Limiter,
    /// While it is scraped.
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
    for (what, make, nanos, call) in [
        ("try_acquire, granted", ample as fn() -> Limiter, 10, try_acquire as fn(&Limiter)),
        ("consume, granted at once", ample, 10, consume),
        ("try_acquire, refused", empty, 50, try_acquire),
    ] {
        let ways = ways(make);
        let mut turns: Vec<Vec<f64>> = ways.iter().map(|_| Vec::new()).collect();
        for number in 0..TURNS * ways.len() {
            let way = number % ways.len();
            #[cfg(feature = "metrics")]
            metered::scrape(ways[way].is_scraped);
            turns[way].push(turn(&ways[way].limiter, TURN / nanos, call));
        }
        let judged: Vec<[f64; 2]> = turns.into_iter().map(judge).collect();
        println!("{what}: ns per call, best and median");
        for (way, [best, median]) in ways.iter().zip(&judged) {
            let scraped = if way.is_scraped { ", scraped 200 times a second" } else { "" };
            let (name, [base_best, base_median]) = (way.name, judged[0]);
            let (more, more_median) = (best / base_best, median / base_median);
            println!("  {best:>6.2} {median:>6.2}   {more:.3} x {more_median:.3} x   {name}{scraped}");
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

    /// A limiter with a meter that is not scraped, and one that is scraped as often as by three thousand Prometheus
    /// servers.
    pub(super) fn ways(make: fn() -> Limiter) -> impl Iterator<Item = Way> {
        PROMETHEUS.get_or_init(|| {
            let handle = PrometheusBuilder::new().install_recorder().expect("no other recorder is installed");
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
            thread::sleep(Duration::from_millis(5));
            if SCRAPES.load(Ordering::Relaxed)
                && let Some(meter) = &*METER.lock().expect("no panic")
            {
                meter.publish();
                std::hint::black_box(PROMETHEUS.get().map(PrometheusHandle::render));
            }
        }
    }
}
