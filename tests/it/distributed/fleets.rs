//! The fleets whose figures docs/BENCHMARKS.md lists.

use super::fleet::{FAR, Fleet, HOT};

/// A fleet, and its figures without tokens asked for ahead, at commit aa7692c; with `prefetch`, those with them.
#[derive(Debug)]
pub struct Row {
    pub name: &'static str,
    pub fleet: Fleet,
    pub rate: f64,
    /// Requests per 1,000 tokens.
    pub trips: f64,
}

const fn row(name: &'static str, rate: f64, trips: f64, fleet: Fleet) -> Row {
    Row { name, fleet, rate, trips }
}

#[rustfmt::skip]
pub const FLEETS: &[Row] = &[
    row("hot", 1.000, 90.9, HOT),
    row("hot, 2 ms", 1.000, 90.9, Fleet { latencies: &[1; 4], ..HOT }),
    row("hot, 20 ms", 1.000, 90.9, Fleet { latencies: &[10; 4], ..HOT }),
    row("hot, 100 callers a node", 1.000, 40.0, Fleet { callers: 100, ..HOT }),
    row("hot, 16 nodes", 1.000, 200.0, Fleet { latencies: &[0; 16], ..HOT }),
    row("hot, 2 nodes", 1.000, 58.8, Fleet { latencies: &[0; 2], ..HOT }),
    row("hot, 1 node", 1.000, 38.4, Fleet { latencies: &[0; 1], ..HOT }),
    row("hot, 10,000 tokens/s", 1.000, 9.5, Fleet { rate: 10_000, burst: 1_000, ..HOT }),
    row("hot, 1 caller a node", 1.000, 90.9, Fleet { callers: 1, ..HOT }),
    row("hot, burst 1", 1.000, 625.0, Fleet { burst: 1, ..HOT }),
    row("hot, burst 1, 100 callers", 1.000, 40.0, Fleet { burst: 1, callers: 100, ..HOT }),
    row("hot, work 1 ms", 1.000, 88.8, Fleet { work: 1, ..HOT }),
    row("hot, work 2 ms", 1.000, 88.8, Fleet { work: 2, ..HOT }),
    row("hot, work 5 ms", 1.000, 87.8, Fleet { work: 5, ..HOT }),
    row("hot, work 10 ms", 1.000, 87.8, Fleet { work: 10, ..HOT }),
    row("hot, work 20 ms", 1.000, 89.4, Fleet { work: 20, ..HOT }),
    row("hot, work 28 ms", 1.000, 89.7, Fleet { work: 28, ..HOT }),
    row("hot, work 60 ms", 0.530, 91.0, Fleet { work: 60, ..HOT }),
    row("hot, hiccups to 30 ms", 1.000, 88.1, Fleet { hiccups: 30, ..HOT }),
    row("hot, hiccups to 100 ms", 1.000, 83.8, Fleet { hiccups: 100, ..HOT }),
    row("1 busy, 7 quiet", 1.000, 179.8, Fleet { latencies: &[0; 8], quiet: 7, ..HOT }),
    row("4 busy, 4 quiet", 1.000, 164.9, Fleet { latencies: &[0; 8], quiet: 4, ..HOT }),
    row("3 busy, 1 quiet", 1.000, 93.3, Fleet { quiet: 1, ..HOT }),
    row("turns of 50 ms", 0.999, 69.2, Fleet { turns: 50, ..HOT }),
    row("turns of 200 ms", 1.000, 86.5, Fleet { turns: 200, ..HOT }),
    row("turns of 500 ms", 1.000, 89.8, Fleet { turns: 500, ..HOT }),
    row("turns of 2 s", 0.989, 90.5, Fleet { turns: 2_000, ..HOT }),
    row("far", 0.600, 16.7, FAR),
    row("far, burst 1,000", 1.000, 10.0, Fleet { burst: 1_000, ..FAR }),
    row("far, cost 10", 0.600, 1.7, Fleet { cost: 10, rate: 20_000, burst: 2_000, ..FAR }),
    row("far, 1 caller a node", 0.210, 47.6, Fleet { callers: 1, ..FAR }),
    row("far, 16 nodes", 0.615, 16.3, Fleet { latencies: &[100; 16], rate: 8_000, burst: 800, ..FAR }),
    row("far, burst 1", 0.500, 20.0, Fleet { burst: 1, ..FAR }),
    row("far, 1 busy, 7 quiet", 0.539, 17.5, Fleet { latencies: &[100; 8], callers: 400, quiet: 7, ..FAR }),
    row("far, 3 busy, 1 quiet", 0.577, 14.5, Fleet { quiet: 1, callers: 133, ..FAR }),
    row("far, turns of 500 ms", 0.583, 12.9, Fleet { turns: 500, ..FAR }),
    row("far, turns of 2 s", 0.335, 17.9, Fleet { turns: 2_000, ..FAR }),
    row("far, hiccups to 100 ms", 0.600, 16.7, Fleet { hiccups: 100, ..FAR }),
    row("far, work 150 ms", 0.555, 18.0, Fleet { work: 150, ..FAR }),
    row("far, work 250 ms", 0.437, 22.9, Fleet { work: 250, ..FAR }),
    row("far, work 600 ms", 0.268, 37.4, Fleet { work: 600, ..FAR }),
    row("one far node", 1.000, 32.6, Fleet { latencies: &[0, 0, 0, 100], ..FAR }),
    row("one far node, hot", 0.998, 91.8, Fleet { latencies: &[1, 1, 1, 100], ..HOT }),
    row("prefetch, 100 ms", 1.000, 40.0, Fleet { prefetch: 100, ..HOT }),
    row("prefetch, 200 ms", 1.000, 20.0, Fleet { prefetch: 200, ..HOT }),
    row("prefetch, 400 ms", 1.000, 10.0, Fleet { prefetch: 400, ..HOT }),
    row("prefetch, 20 ms away", 1.000, 20.0, Fleet { latencies: &[10; 4], prefetch: 200, ..HOT }),
    row("prefetch, 16 nodes", 1.000, 83.3, Fleet { latencies: &[0; 16], prefetch: 200, ..HOT }),
    row("prefetch, 3 busy, 1 quiet", 1.000, 21.3, Fleet { quiet: 1, prefetch: 200, ..HOT }),
    row("prefetch, work 20 ms", 0.991, 53.3, Fleet { work: 20, prefetch: 200, ..HOT }),
    row("prefetch, turns of 500 ms", 0.984, 58.2, Fleet { turns: 500, prefetch: 200, ..HOT }),
    row("prefetch, hiccups to 100 ms", 0.985, 61.1, Fleet { hiccups: 100, prefetch: 200, ..HOT }),
    row("no prefetch, 1 of 4 works", 1.000, 90.7, Fleet { work: 30, late: 1, ..HOT }),
    row("prefetch, 1 of 4 works", 0.999, 26.5, Fleet { work: 30, late: 1, prefetch: 200, ..HOT }),
];
