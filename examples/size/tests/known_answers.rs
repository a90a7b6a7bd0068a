//! The search finds the answers that theory gives for synthetic traces.

use size::demo::{Demo, Shape};
use size::goal::Goal;
use size::per::Per;
use size::replay::{Candidate, Replay, Setting};
use size::search::{Search, TradeOff};
use size::trace::Trace;
use std::time::Duration;

const ANY_WAIT: Setting = Setting { per_key: false, max_wait: None };

fn search<'t>(trace: &'t Trace, setting: Setting, wait_p99: Option<Duration>, refuse: &str) -> Search<'t> {
    let goal = Goal { wait_p99, refuse: refuse.parse().unwrap() };
    Search { events: &trace.events, setting, goal, per: Per::S }
}

fn demo(shape: Shape, events: u64, rate: u64) -> Trace {
    Demo { shape, events, rate, seed: 1 }.trace().unwrap()
}

/// Of 1,000 calls at one instant, the 990th waits for its token: it is number 990 less the burst. With a wait of a
/// second, the rate is that number.
#[test]
fn a_single_burst() {
    let trace = demo(Shape::Burst, 1_000, 1);
    let search = search(&trace, ANY_WAIT, Some(Duration::from_secs(1)), "0%");
    for max_burst in [1, 100, 500, 989] {
        let expected = TradeOff { burst: max_burst, rate: Some(990 - max_burst) };
        assert_eq!(search.choose(max_burst), Some(expected));
    }
    // Any rate will do with these bursts; the smallest burst at one token per second leaves one token to wait for.
    assert_eq!(search.choose(990), Some(TradeOff { burst: 989, rate: Some(1) }));
    let rows = search.trade_offs(100, 890);
    let expected = [(100, 890), (50, 940), (25, 965), (12, 978), (6, 984), (3, 987)];
    assert_eq!(rows, expected.map(|(burst, rate)| TradeOff { burst, rate: Some(rate) }));
}

/// Of 1,000 calls at one instant that never wait, ten may be refused, so the burst must be 990.
#[test]
fn a_single_burst_without_waiting() {
    let trace = demo(Shape::Burst, 1_000, 1);
    let search = search(&trace, Setting { max_wait: Some(Duration::ZERO), ..ANY_WAIT }, None, "1%");
    assert_eq!(search.choose(989), None);
    assert_eq!(search.choose(5_000), Some(TradeOff { burst: 990, rate: Some(1) }));
}

/// Each second with calls has 200 of them, at 5 ms from each other, and begins with a full bucket if the rate is at
/// least the mean. Call k, from 0, is granted when the bucket has received k + 1 tokens: at (k + 1 - burst) / rate. It
/// waits longest at the end. One call in a hundred may wait longer, so the rate is the smallest at which call 197
/// of 0 to 199 waits for at most 50 ms.
#[test]
fn on_and_off() {
    let trace = demo(Shape::Onoff, 20_000, 100);
    let search = search(&trace, ANY_WAIT, Some(Duration::from_millis(50)), "0%");
    for burst in [1, 20, 50, 80] {
        let wait = |rate: u64| (198.0 - burst as f64) / rate as f64 - 197.0 * 0.005;
        let rate = (100..).find(|rate| wait(*rate) <= 0.050).unwrap();
        let found = search.choose(burst).unwrap();
        assert_eq!(found.rate, Some(rate), "burst {burst}");
        let smallest = (1..=burst).find(|burst| (198.0 - *burst as f64) / rate as f64 - 0.985 <= 0.050).unwrap();
        assert_eq!(found.burst, smallest);
    }
}

/// Poisson arrivals at a bucket with a burst of 1 are a queue with one server and a fixed service time, M/D/1. Erlang
/// computed its waits.
#[test]
fn poisson() {
    let trace = demo(Shape::Poisson, 100_000, 100);
    for millis in [20, 100] {
        let wait = Duration::from_millis(millis);
        let expected = (101..).find(|rate| no_longer_than(wait.as_secs_f64(), 100.0, *rate as f64) >= 0.99).unwrap();
        let found = search(&trace, ANY_WAIT, Some(wait), "0%").choose(1).unwrap();
        assert_eq!(found.burst, 1);
        let rate = found.rate.unwrap();
        assert!(rate.abs_diff(expected) * 50 <= expected, "{rate} and not {expected} for {wait:?}");
    }
}

/// Erlang's formula: the share of the calls of an M/D/1 queue that wait for at most `wait` seconds.
fn no_longer_than(wait: f64, arrivals: f64, services: f64) -> f64 {
    let term = |number: u32| {
        let late = arrivals * (f64::from(number) / services - wait);
        let factorial: f64 = (1..=number).map(f64::from).product();
        late.powi(number as i32) / factorial * (-late).exp()
    };
    let count = (wait * services).floor() as u32;
    (1.0 - arrivals / services) * (0..=count).map(term).sum::<f64>()
}

/// The pair that is chosen meets the goal; one token less, per second or in the burst, does not.
#[test]
fn the_chosen_pair_is_minimal() {
    let trace = demo(Shape::Poisson, 20_000, 100);
    let search = search(&trace, ANY_WAIT, Some(Duration::from_millis(20)), "0%");
    let met = |rate: u64, burst: u64| {
        let candidate = Candidate::new(search.quota(rate, burst)).unwrap();
        let waits = Replay::new(&trace.events, candidate, ANY_WAIT).unwrap();
        search.goal.is_met(trace.events.len(), waits)
    };
    let TradeOff { burst, rate } = search.choose(30).unwrap();
    let rate = rate.unwrap();
    assert!(met(rate, burst) && !met(rate - 1, 30) && !met(rate, burst - 1), "{rate}/s, burst {burst}");
}
