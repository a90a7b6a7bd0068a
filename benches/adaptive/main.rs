//! How adaptive rates follow a limit that halves and doubles every 30 s, beside what clients do today.
//!
//! ```text
//! cargo bench --bench adaptive [-- [--quick] [--limits 10,1000,50000] [--publish]]
//! ```
//!
//! `--publish` writes the table and a picture into `docs`, as `scripts/bench` does.
//!
//! The time is simulated, so the figures are the same on every machine. The exit code is 1 if a required target is
//! missed, and 2 if the program could not run.

mod bound;
mod ours;
mod peers;
mod plot;
mod publish;
mod targets;
mod world;

use ours::Ours;
use peers::{Botocore, Reservations, Sleep, Sleepers};
use std::process::ExitCode;
use targets::{Row, judged, table};
use tollgate::ManualClock;
use world::{Client, Figures, Scene, run};

const LIMITS: [f64; 3] = [10.0, 1_000.0, 50_000.0];
/// How many processes share the limit, and of how many tasks each consists.
const CLIENTS: [(usize, usize); 3] = [(1, 1), (1, 16), (16, 1)];

fn main() -> ExitCode {
    let options: Vec<String> = std::env::args().skip(1).collect();
    let phases = if options.iter().any(|option| option == "--quick") { 4 } else { 8 };
    let Ok(limits) = limits(&options) else {
        eprintln!("adaptive: --limits takes numbers of requests per second, separated by commas");
        return ExitCode::from(2);
    };
    let mut rows = Vec::new();
    for limit in limits {
        for (processes, tasks) in CLIENTS {
            let scene = Scene { limit, phase: 30, phases, tasks };
            rows.extend(contenders(scene, processes));
        }
    }
    println!("{}", table(&rows));
    let missed = judged(&rows);
    println!("{}", missed.text);
    if options.iter().any(|option| option == "--publish")
        && let Err(error) = publish::publish(&rows)
    {
        eprintln!("adaptive: the table and the picture: {error}");
        return ExitCode::from(2);
    }
    if missed.musts == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The numbers after `--limits`.
fn limits(options: &[String]) -> Result<Vec<f64>, std::num::ParseFloatError> {
    let given = options.iter().position(|option| option == "--limits").and_then(|at| options.get(at + 1));
    given.map_or(Ok(LIMITS.to_vec()), |numbers| numbers.split(',').map(str::parse).collect())
}

/// All contenders in one scene, tollgate first.
fn contenders(scene: Scene, processes: usize) -> Vec<Row> {
    let share = scene.limit / processes as f64;
    let row = |name: &'static str, figures: Figures| Row { name, scene, processes, figures };
    let mut rows = vec![
        row("tollgate", ours(scene, processes, None)),
        row("tollgate, half of the waiters cancelled", ours(scene, processes, Some(7))),
    ];
    // Tasks of one process are one client to the peers.
    if scene.tasks == 1 {
        let sleepers = |sleep| many(processes, |number| Sleepers::new(share, sleep, number as u64));
        rows.push(row("fixed sleep of 1 s", simulated(scene, sleepers(Sleep::Fixed))));
        rows.push(row("exponential back-off, full jitter", simulated(scene, sleepers(Sleep::FullJitter))));
        rows.push(row("botocore, adaptive mode", simulated(scene, many(processes, |_| Botocore::new(share)))));
        rows.push(row(
            "AIMD with reservations (lance)",
            simulated(scene, many(processes, |_| Reservations::new(share))),
        ));
    }
    rows
}

fn many<C>(processes: usize, make: impl Fn(usize) -> C) -> Vec<C> {
    (0..processes).map(make).collect()
}

fn simulated<C: Client>(scene: Scene, mut clients: Vec<C>) -> Figures {
    run(scene, &ManualClock::new(), &mut clients)
}

fn ours(scene: Scene, processes: usize, cancels: Option<u64>) -> Figures {
    let clock = ManualClock::new();
    let mut clients = many(processes, |number| {
        let number = number as u64;
        Ours::new(&clock, number, scene.tasks, cancels.map(|seed| seed + number))
    });
    run(scene, &clock, &mut clients)
}
