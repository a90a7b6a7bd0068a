//! The targets, as ratios measured in one run: the table of issue 5.

use crate::cancel::CASE as CANCEL;
use crate::fair::{ALONE, FAIR};
use crate::hogs::BURNING;
use crate::idle::CASE as IDLE;
use crate::memory::CASE as MEMORY;
use crate::peers::Peer;
use crate::results::{Results, quantile};
use crate::table;
use crate::waiting::{RATES, TASKS, case};
use comfy_table::Table;

const CPU: &str = "CPU per grant, us";
const ACHIEVED: &str = "achieved / configured";

#[derive(Clone, Copy)]
enum Must {
    AtMost(f64),
    AtLeast(f64),
    Between(f64, f64),
}
use Must::*;

impl Must {
    fn holds(self, number: f64) -> bool {
        match self {
            AtMost(most) => number <= most,
            AtLeast(least) => number >= least,
            Between(least, most) => (least..=most).contains(&number),
        }
    }

    fn text(self) -> String {
        match self {
            AtMost(most) => format!("<= {most}"),
            AtLeast(least) => format!(">= {least}"),
            Between(least, most) => format!("{least}..{most}"),
        }
    }
}

/// A target, and its measurement in each round.
pub struct Verdict {
    pub work: String,
    pub what: String,
    must: Must,
    aim: &'static str,
    rounds: Vec<f64>,
}

impl Verdict {
    pub fn holds(&self) -> bool {
        self.must.holds(quantile(&self.rounds, 0.5))
    }
}

struct Bench<'a> {
    results: &'a Results,
    verdicts: Vec<Verdict>,
}

impl Bench<'_> {
    /// The number of each round, unchanged.
    fn is(&mut self, case: &str, name: &str, measure: &str, must: Must, aim: &'static str) {
        let Some(rounds) = self.results.rounds(case, name, measure) else { return };
        self.verdicts.push(Verdict { work: case.into(), what: format!("{name}: {measure}"), must, aim, rounds });
    }

    /// One contender's number divided by another's of the same round.
    fn ratio(&mut self, case: &str, measure: &str, names: [&str; 2], must: Must, aim: &'static str) {
        let [above, below] = names.map(|name| self.results.rounds(case, name, measure));
        let (Some(above), Some(below)) = (above, below) else { return };
        let rounds: Vec<f64> = above.iter().zip(&below).map(|(above, below)| above / below).collect();
        // Nanoseconds are the default unit.
        let unit = if measure == "ns" { String::new() } else { format!(" ({measure})") };
        let what = format!("{} / {}{unit}", names[0], names[1]);
        if !rounds.is_empty() {
            self.verdicts.push(Verdict { work: case.into(), what, must, aim, rounds });
        }
    }
}

pub fn judge(results: &Results) -> Vec<Verdict> {
    let mut bench = Bench { results, verdicts: Vec::new() };
    hot_loops(&mut bench);
    lines(&mut bench);
    the_rest(&mut bench);
    bench.verdicts
}

fn hot_loops(bench: &mut Bench) {
    let floor = "floor: load + compare_exchange";
    let timed = "floor: Instant::now + load + compare_exchange";
    for (case, most, governor, exact, aims) in
        [("hot, 1 threads", 1.15, 2.2, 2.0, ["1.0", "1.5 *"]), ("hot, 2 threads", 1.3, 1.4, 5.0, ["1.1", "2 *"])]
    {
        bench.ratio(case, "ns", ["tollgate", floor], AtMost(most), aims[0]);
        bench.ratio(case, "ns", ["governor", "tollgate"], AtLeast(governor), "");
        bench.ratio(case, "ns", ["tollgate, exact on every call", timed], AtMost(exact), aims[1]);
    }
    // The targets of the simple form of `consume`, which was kept; the last column has those of the wait-free one.
    for (case, most, aim, least, more) in
        [("awaited, 1 tasks", 1.7, "1.45", 1.6, "2.0"), ("awaited, 2 tasks", 2.3, "1.6", 1.2, "1.6")]
    {
        bench.ratio(case, "ns", ["tollgate", "floor: fetch_add as a future"], AtMost(most), aim);
        bench.ratio(case, "ns", ["tokio Semaphore, no refill", "tollgate"], AtLeast(least), more);
    }
    for case in ["denied, 1 threads", "denied, 2 threads"] {
        bench.ratio(case, "ns", ["tollgate", "floor: Instant::now + loads"], AtMost(1.25), "1.1 *");
        bench.ratio(case, "ns", ["tollgate, quanta clock", "governor"], AtMost(1.1), "");
    }
    for case in ["capped, 1 threads", "capped, 2 threads"] {
        bench.ratio(case, "ns", ["tollgate", "floor: load + compare_exchange, fetch_add"], AtMost(1.2), "");
        bench.ratio(case, "ns", ["tollgate", "tokio Semaphore"], AtMost(0.6), "");
    }
}

fn lines(bench: &mut Bench) {
    let (ours, theirs) = (Peer::Tollgate.name(), Peer::Semaphore.name());
    for (tasks, rate) in TASKS.into_iter().flat_map(|tasks| RATES.map(|rate| (tasks, rate))) {
        let case = case(tasks, rate);
        bench.is(&case, ours, ACHIEVED, AtLeast(0.998), "");
        bench.ratio(&case, CPU, [ours, theirs], AtMost(1.1), "0.9");
        bench.ratio(&case, "late p50, ms", [ours, theirs], AtMost(0.9), "0.2 ms *");
        bench.ratio(&case, "late p99, ms", [ours, theirs], AtMost(1.1), "");
    }
    for rate in RATES {
        let growth = |name| {
            let of = |tasks| bench.results.rounds(&case(tasks, rate), name, CPU);
            let (few, many) = (of(100)?, of(100_000)?);
            Some(quantile(&many, 0.5) / quantile(&few, 0.5))
        };
        if let (Some(ours), Some(theirs)) = (growth(ours), growth(theirs)) {
            let work = format!("growth, 100 to 100000 tasks, {rate} tokens/s");
            let what = format!("CPU per grant grows {ours:.2} x / Semaphore's {theirs:.2} x");
            bench.verdicts.push(Verdict { work, what, must: AtMost(1.0), aim: "", rounds: vec![ours / theirs] });
        }
    }
}

fn the_rest(bench: &mut Bench) {
    let (ours, theirs) = (Peer::Tollgate.name(), Peer::Semaphore.name());
    bench.is("order, 1,000 tasks, 100000 tokens/s, 1 worker", ours, "overtaken, %", AtMost(0.0), "");
    bench.is(FAIR, ours, "share of the large / fair share", Between(0.97, 1.03), "");
    bench.is(ALONE, ours, ACHIEVED, AtLeast(0.995), "");
    bench.is(MEMORY, ours, "future, bytes", AtMost(96.0), "88");
    bench.is(MEMORY, ours, "allocations per consume, ready", AtMost(0.0), "0");
    bench.is(MEMORY, ours, "allocations per consume, waiting", AtMost(0.0), "0");
    bench.is(MEMORY, ours, "shared state, heap bytes", AtMost(640.0), "512");
    bench.ratio(CANCEL, "ns per drop", [ours, theirs], AtMost(1.8), "1.2");
    bench.is(CANCEL, ours, "rest finished / ideal", Between(1.0, 1.03), "");
    bench.is(CANCEL, ours, "tokens lost", AtMost(0.0), "");
    // Less than one per second is the measurement itself.
    bench.is(IDLE, ours, "worker wake-ups/s", AtMost(1.0), "0");
    bench.is(IDLE, ours, "voluntary context switches/s", AtMost(1.0), "0");
    // The measurement itself takes a thousandth of a core.
    bench.is(IDLE, ours, "cores", AtMost(0.005), "0");
    for case in bench.results.cases("hogs, ") {
        for name in bench.results.names_and_measures(case).0 {
            if name != BURNING {
                bench.is(case, name, "rate kept, %", AtLeast(99.0), "");
            }
        }
    }
}

pub fn table(verdicts: &[Verdict]) -> Table {
    let header = ["work", "what", "must", "aim", "measured", "p10..p90", ""];
    let mut table = table::new(header.map(str::to_owned));
    for verdict in verdicts {
        let at = |share| table::number(quantile(&verdict.rounds, share));
        table.add_row([
            verdict.work.clone(),
            verdict.what.clone(),
            verdict.must.text(),
            verdict.aim.to_owned(),
            at(0.5),
            format!("{}..{}", at(0.1), at(0.9)),
            if verdict.holds() { "ok".to_owned() } else { "**MISSED**".to_owned() },
        ]);
    }
    table
}
