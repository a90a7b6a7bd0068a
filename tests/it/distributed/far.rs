//! Figures of fleets in simulated time: the rate that is reached, requests to the store, and waits.

use super::fleet::{FAR, Figures, Fleet, HOT};

/// The fleets of docs/BENCHMARKS.md.
#[rustfmt::skip]
const FLEETS: &[(&str, Fleet)] = &[
    ("hot", HOT),
    ("hot, 2 ms", Fleet { latencies: &[1; 4], ..HOT }),
    ("hot, 20 ms", Fleet { latencies: &[10; 4], ..HOT }),
    ("hot, 100 callers a node", Fleet { callers: 100, ..HOT }),
    ("hot, 16 nodes", Fleet { latencies: &[0; 16], ..HOT }),
    ("hot, 2 nodes", Fleet { latencies: &[0; 2], ..HOT }),
    ("hot, 1 node", Fleet { latencies: &[0; 1], ..HOT }),
    ("hot, 10,000 tokens/s", Fleet { rate: 10_000, burst: 1_000, ..HOT }),
    ("hot, 1 caller a node", Fleet { callers: 1, ..HOT }),
    ("hot, burst 1", Fleet { burst: 1, ..HOT }),
    ("hot, burst 1, 100 callers", Fleet { burst: 1, callers: 100, ..HOT }),
    ("hot, work 1 ms", Fleet { work: 1, ..HOT }),
    ("hot, work 2 ms", Fleet { work: 2, ..HOT }),
    ("hot, work 5 ms", Fleet { work: 5, ..HOT }),
    ("hot, work 10 ms", Fleet { work: 10, ..HOT }),
    ("hot, work 20 ms", Fleet { work: 20, ..HOT }),
    ("hot, work 28 ms", Fleet { work: 28, ..HOT }),
    ("hot, work 60 ms", Fleet { work: 60, ..HOT }),
    ("hot, hiccups to 30 ms", Fleet { hiccups: 30, ..HOT }),
    ("hot, hiccups to 100 ms", Fleet { hiccups: 100, ..HOT }),
    ("1 busy, 7 quiet", Fleet { latencies: &[0; 8], quiet: 7, ..HOT }),
    ("4 busy, 4 quiet", Fleet { latencies: &[0; 8], quiet: 4, ..HOT }),
    ("turns of 50 ms", Fleet { turns: 50, ..HOT }),
    ("turns of 200 ms", Fleet { turns: 200, ..HOT }),
    ("turns of 500 ms", Fleet { turns: 500, ..HOT }),
    ("turns of 2 s", Fleet { turns: 2_000, ..HOT }),
    ("far", FAR),
    ("far, burst 1,000", Fleet { burst: 1_000, ..FAR }),
    ("far, cost 10", Fleet { cost: 10, rate: 20_000, burst: 2_000, ..FAR }),
    ("far, 1 caller a node", Fleet { callers: 1, ..FAR }),
    ("far, 16 nodes", Fleet { latencies: &[100; 16], rate: 8_000, burst: 800, ..FAR }),
    ("far, burst 1", Fleet { burst: 1, ..FAR }),
    ("far, 1 busy, 7 quiet", Fleet { latencies: &[100; 8], callers: 400, quiet: 7, ..FAR }),
    ("far, turns of 500 ms", Fleet { turns: 500, ..FAR }),
    ("far, turns of 2 s", Fleet { turns: 2_000, ..FAR }),
    ("far, hiccups to 100 ms", Fleet { hiccups: 100, ..FAR }),
    ("far, work 150 ms", Fleet { work: 150, ..FAR }),
    ("far, work 250 ms", Fleet { work: 250, ..FAR }),
    ("far, work 600 ms", Fleet { work: 600, ..FAR }),
    ("one far node", Fleet { latencies: &[0, 0, 0, 100], ..FAR }),
    ("one far node, hot", Fleet { latencies: &[1, 1, 1, 100], ..HOT }),
];

#[tokio::test(start_paused = true)]
async fn table() {
    let only = std::env::var("FLEET").unwrap_or_default();
    println!("{:28} {:>6} {:>7} {:>8} {:>8} {:>8} {:>6}", "fleet", "rate", "trips", "fairness", "wait", "quiet", "excess");
    for (name, fleet) in FLEETS.iter().filter(|(name, _)| name.contains(&only)) {
        let Figures { rate, trips, fairness, wait, quiet, excess } = fleet.run().await;
        println!("{name:28} {rate:>6.3} {trips:>7.1} {fairness:>8.2} {wait:>8.1} {quiet:>8.1} {excess:>6.1}");
    }
}
