//! How adaptive rates follow a limit that halves and doubles every 30 s, beside what clients do today.
//!
//! ```text
//! cargo bench --bench adaptive [-- [--quick] [--limits 10,1000,50000]]
//! ```
//!
//! The time is simulated, so the figures are the same on every machine. Each figure is a line: case, contender, measure
//! and number, separated by tabs. Below the [bound](bound::lowest_limit) no clients can keep all targets, and the name of
//! the case says so.

mod bound;
mod ours;
mod peers;
#[allow(dead_code, reason = "the example draws the trace")]
mod world;

use ours::Ours;
use peers::{Botocore, Reservations, Sleep, Sleepers};
use tollgate::ManualClock;
use world::{Client, Figures, Scene, run};

const LIMITS: [f64; 3] = [10.0, 1_000.0, 50_000.0];
/// How many processes share the limit, and of how many tasks each consists.
const CLIENTS: [(usize, usize); 3] = [(1, 1), (1, 16), (16, 1)];

fn main() -> Result<(), std::num::ParseFloatError> {
    let options: Vec<String> = std::env::args().skip(1).collect();
    let phases = if options.iter().any(|option| option == "--quick") { 4 } else { 8 };
    for limit in limits(&options)? {
        for (processes, tasks) in CLIENTS {
            let scene = Scene { limit, phase: 30, phases, tasks };
            contenders(scene, processes);
        }
    }
    Ok(())
}

fn print(scene: Scene, processes: usize, name: &str, figures: Figures) {
    let bound = if scene.limit < bound::lowest_limit(processes) { ", below the bound" } else { "" };
    let clients = match (processes, scene.tasks) {
        (1, 1) => "1 client".to_owned(),
        (1, tasks) => format!("{tasks} tasks of a process"),
        (processes, _) => format!("{processes} processes"),
    };
    let show = |measure, number| println!("adaptive, {}/s, {clients}{bound}\t{name}\t{measure}\t{number}", scene.limit);
    show("used", figures.used);
    show("refused", figures.refused);
    show("Jain index", figures.jain);
    // Some clients have no rate.
    figures.found.into_iter().for_each(|seconds| show("s to 0.9 of a doubled limit", seconds));
    figures.left.into_iter().for_each(|seconds| show("s above a halved limit", seconds));
}

/// The numbers after `--limits`.
fn limits(options: &[String]) -> Result<Vec<f64>, std::num::ParseFloatError> {
    let given = options.iter().position(|option| option == "--limits").and_then(|at| options.get(at + 1));
    given.map_or(Ok(LIMITS.to_vec()), |numbers| numbers.split(',').map(str::parse).collect())
}

/// All contenders in one scene, tollgate first.
fn contenders(scene: Scene, processes: usize) {
    let share = scene.limit / processes as f64;
    let print = |name, figures| print(scene, processes, name, figures);
    print("tollgate", ours(scene, processes, None));
    print("tollgate, half of the waiters cancelled", ours(scene, processes, Some(7)));
    // Tasks of one process are one client to the peers.
    if scene.tasks == 1 {
        let sleepers = |sleep| many(processes, |number| Sleepers::new(share, sleep, number as u64));
        print("fixed sleep of 1 s", simulated(scene, sleepers(Sleep::Fixed)));
        print("exponential back-off, full jitter", simulated(scene, sleepers(Sleep::FullJitter)));
        print("botocore, adaptive mode", simulated(scene, many(processes, |_| Botocore::new(share))));
        print("AIMD with reservations (lance)", simulated(scene, many(processes, |_| Reservations::new(share))));
    }
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
