//! Rounds in turn, medians, ratios.

use comfy_table::{Table, presets::ASCII_MARKDOWN};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Something to measure: does the work so many times.
pub struct Contender {
    pub name: &'static str,
    pub work: Box<dyn Fn(u64) + Sync>,
}

impl Contender {
    pub fn new(name: &'static str, work: impl Fn(u64) + Sync + 'static) -> Self {
        Self { name, work: Box::new(work) }
    }
}

/// Nanoseconds per operation, a number per round.
pub struct Figures {
    pub name: &'static str,
    pub rounds: Vec<f64>,
}

impl Figures {
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.rounds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * share).round() as usize]
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// Everybody once per round, in turn.
pub fn measure(contenders: &[Contender], threads: usize, rounds: usize, operations: u64) -> Vec<Figures> {
    let mut figures: Vec<Figures> =
        contenders.iter().map(|contender| Figures { name: contender.name, rounds: Vec::new() }).collect();
    for _ in 0..rounds {
        for (contender, figures) in contenders.iter().zip(&mut figures) {
            let took = on_threads(threads, || (contender.work)(operations));
            figures.rounds.push(took.as_nanos() as f64 / operations as f64);
        }
    }
    figures
}

/// How long it takes until `threads` threads have all done `work`, from a common start.
fn on_threads(threads: usize, work: impl Fn() + Sync) -> Duration {
    let barrier = Barrier::new(threads);
    let run = || {
        barrier.wait();
        let start = Instant::now();
        work();
        start.elapsed()
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let own = run();
        others.into_iter().map(|other| other.join().expect("a contender panicked")).fold(own, Duration::max)
    })
}

/// The first contender is the floor.
pub fn print(title: &str, figures: &[Figures]) {
    let floor = figures[0].median();
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(["", "x floor", "ns, median", "ns, p10..p90"]);
    for figure in figures {
        table.add_row([
            figure.name.to_owned(),
            format!("{:.2}", figure.median() / floor),
            format!("{:.1}", figure.median()),
            format!("{:.1}..{:.1}", figure.quantile(0.1), figure.quantile(0.9)),
        ]);
    }
    println!("\n{title}\n\n{table}");
}
