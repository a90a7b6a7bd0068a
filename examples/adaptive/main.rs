//! A client of a server with a hidden limit that halves and doubles: the learned rate and the true one.
//!
//! ```text
//! cargo run --release --example adaptive [-- LIMIT]
//! ```
//!
//! Sixteen tasks share one `Adaptive` limiter; LIMIT is in requests per second (1,000). The server and the time are
//! simulated, so two minutes take seconds. The picture is written to `target/adaptive.svg`. The last line is
//! machine-readable. The exit code is 1 if a required target is missed, and 2 if the program could not run.

// The server, the tasks and the counters are those of the benchmark.
#[path = "../../benches/adaptive/ours.rs"]
mod ours;
#[path = "../../benches/adaptive/world.rs"]
mod world;

use indicatif::{ProgressBar, ProgressStyle};
use ours::Ours;
use plotters::prelude::*;
use std::process::ExitCode;
use tollgate::ManualClock;
use world::{Client, Figures, Scene, run};

const TASKS: usize = 16;
const PHASE: u64 = 30;
const PHASES: u64 = 4;
const PICTURE: &str = "target/adaptive.svg";

/// Shows the learned rate while it changes.
struct Watched {
    client: Ours,
    scene: Scene,
    line: ProgressBar,
}

impl Client for Watched {
    type Request = <Ours as Client>::Request;

    fn send(&mut self, now: u64, send: &mut dyn FnMut(usize, Self::Request)) {
        if now.is_multiple_of(100) {
            let halved = (now / (PHASE * 1_000)) % 2 == 1;
            let limit = if halved { self.scene.limit / 2.0 } else { self.scene.limit };
            let rate = self.rate().unwrap_or_default();
            self.line.set_position(now / 1_000);
            self.line.set_message(format!("learned {rate:>9.1}/s of {limit:>9.1}/s"));
        }
        self.client.send(now, send);
    }

    fn answer(&mut self, now: u64, task: usize, request: Self::Request, accepted: bool) {
        self.client.answer(now, task, request, accepted);
    }

    fn rate(&self) -> Option<f64> {
        self.client.rate()
    }
}

fn main() -> ExitCode {
    let limit = std::env::args().nth(1).map_or(Ok(1_000.0), |text| text.parse::<f64>());
    let Ok(limit) = limit.map(|limit| limit.clamp(5.0, 60_000.0)) else {
        eprintln!("adaptive: the limit is a number of requests per second");
        return ExitCode::from(2);
    };
    let scene = Scene { limit, phase: PHASE, phases: PHASES, tasks: TASKS };
    let line = ProgressBar::new(PHASE * PHASES);
    line.set_style(ProgressStyle::with_template("{bar:30} {pos:>3} s  {msg}").expect("a valid template"));
    let clock = ManualClock::new();
    let mut clients = [Watched { client: Ours::new(&clock, 0, TASKS, None), scene, line: line.clone() }];
    let figures = run(scene, &clock, &mut clients);
    line.finish();
    if let Err(error) = draw(&figures, limit) {
        eprintln!("adaptive: {PICTURE}: {error}");
        return ExitCode::from(2);
    }
    println!("the picture is in {PICTURE}");
    report(&figures)
}

fn report(figures: &Figures) -> ExitCode {
    let Figures { used, refused, jain, found, left, .. } = figures;
    let settled = found.unwrap_or(f64::INFINITY);
    println!("adaptive: used={used:.2} refused={refused:.3} settled_s={settled:.1} jain={jain:.2}");
    let musts = *used >= 0.90 && *refused <= 0.02 && settled <= 10.0 && *jain >= 0.90;
    if musts && left.is_some_and(|seconds| seconds <= 1.0) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The requests that were sent in each second, and the limit.
fn draw(figures: &Figures, limit: f64) -> Result<(), Box<dyn std::error::Error>> {
    // With another `CARGO_TARGET_DIR` there may be no `target` directory.
    std::fs::create_dir_all("target")?;
    let page = SVGBackend::new(PICTURE, (960, 400)).into_drawing_area();
    page.fill(&WHITE)?;
    let seconds = (PHASE * PHASES) as f64;
    let mut chart = ChartBuilder::on(&page)
        .caption(
            "requests per second: sent (blue), and the hidden limit (orange)",
            ("Helvetica, Arial, sans-serif", 16),
        )
        .margin(10)
        .set_label_area_size(LabelAreaPosition::Left, 60)
        .set_label_area_size(LabelAreaPosition::Bottom, 30)
        .build_cartesian_2d(0.0..seconds, 0.0..limit * 1.5)?;
    chart.configure_mesh().disable_x_mesh().draw()?;
    let sent = figures.trace.chunks(10).enumerate();
    let sent =
        sent.map(|(second, tenths)| (second as f64, tenths.iter().map(|it| it.1).sum::<f64>() / tenths.len() as f64));
    chart.draw_series(LineSeries::new(sent, RGBColor(0, 114, 178).stroke_width(2)))?;
    let limits = figures.trace.iter().enumerate().map(|(tenth, it)| (tenth as f64 / 10.0, it.0));
    chart.draw_series(LineSeries::new(limits, RGBColor(213, 94, 0).stroke_width(2)))?;
    page.present()?;
    Ok(())
}
