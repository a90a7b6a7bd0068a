//! Which rate and which burst does a trace of calls need?
//!
//! ```text
//! cargo run --release -p size -- --demo poisson --wait-p99 50ms
//! cargo run --release -p size -- access.log --per-key --max-wait 1s --refuse 0.1%
//! cargo run --release -p size -- calls.csv --quota "100/s, burst 20" --quota "50/s, burst 200"
//! ```

use clap::Parser;
use size::options::Options;
use size::report::{Verdict, run};
use std::io::{BufWriter, Write, stderr, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = Options::parse();
    let mut output = BufWriter::new(stdout().lock());
    let verdict = run(&options, &mut output, &mut stderr());
    match verdict.and_then(|verdict| Ok(output.flush().map(|()| verdict)?)) {
        Ok(Verdict::Done) => ExitCode::SUCCESS,
        Ok(Verdict::GoalNotMet | Verdict::Malformed) => ExitCode::from(1),
        Err(error) => {
            eprintln!("size: {error}");
            ExitCode::from(2)
        }
    }
}
