//! The live table, with a row for each node. Without a terminal, a line each second.

use crate::log::Log;
use crate::report::now;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::ops::Deref;
use std::time::Duration;

/// Rates are those of the last half second.
const OVER: Duration = Duration::from_millis(500);

pub(crate) struct Show {
    table: MultiProgress,
    head: ProgressBar,
    rows: Vec<ProgressBar>,
    /// The number of printed lines.
    printed: u64,
}

impl Show {
    pub(crate) fn new(nodes: usize) -> Show {
        let table = MultiProgress::new();
        let style = ProgressStyle::with_template("{msg}").expect("a valid template");
        let row = || table.add(ProgressBar::new_spinner().with_style(style.clone()));
        Show { head: row(), rows: (0..nodes).map(|_| row()).collect(), printed: 0, table }
    }

    pub(crate) fn update(&mut self, elapsed: Duration, logs: &[impl Deref<Target = Log>], killed: Option<usize>) {
        let until = now();
        let over = OVER.min(elapsed);
        let rate = |log: &Log| {
            let tokens = log.tokens_in(until - over.as_nanos() as u64..until);
            tokens as f64 / over.as_secs_f64().max(1e-3)
        };
        let total: f64 = logs.iter().map(|log| rate(log)).sum();
        self.head.set_message(format!(
            "{:>5.1} s  {:>9} {:>7} {:>7} {:>7} {:>7}    all: {total:.0}/s",
            elapsed.as_secs_f64(),
            "tokens/s",
            "waiting",
            "trips",
            "lease",
            "keep"
        ));
        for (number, (row, log)) in self.rows.iter().zip(logs).enumerate() {
            let last = &log.last;
            row.set_message(match killed == Some(number) {
                true => format!("node {number:<3} killed"),
                false => format!(
                    "node {number:<3} {:>9.0} {:>7} {:>7} {:>7} {:>7}",
                    rate(log),
                    last.waiting,
                    last.round_trips,
                    last.lease,
                    last.hold
                ),
            });
        }
        if self.table.is_hidden() && elapsed.as_secs() > self.printed {
            self.printed = elapsed.as_secs();
            let rates: Vec<_> = logs.iter().map(|log| format!("{:>6.0}", rate(log))).collect();
            println!("{:>4} s  {total:>8.0} tokens/s, by node: {}", self.printed, rates.join(" "));
        }
    }
}

impl Drop for Show {
    fn drop(&mut self) {
        _ = self.table.clear();
    }
}
