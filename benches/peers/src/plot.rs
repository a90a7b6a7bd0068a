//! The pictures of README.md and docs/BENCHMARKS.md.

use crate::Failure;
use crate::peers::Peer;
use crate::results::{Results, quantile};
use crate::waiting::{LATENESS, TASKS, case};
use plotters::coord::Shift;
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;
use std::path::Path;

// Okabe and Ito's colors, which people with color blindness can distinguish.
const OURS: RGBColor = RGBColor(0, 114, 178);
const THEIRS: [RGBColor; 7] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
    RGBColor(60, 60, 60),
];
const FLOOR: RGBColor = RGBColor(190, 190, 190);
const INK: RGBColor = RGBColor(60, 60, 60);
const FONT: &str = "Helvetica, Arial, sans-serif";

pub fn draw(results: &Results, directory: &Path) -> Result<(), Failure> {
    if results.find("hot, 2 threads", "tollgate", "ns").is_some() {
        hot(results, &directory.join("hot.svg"))?;
    }
    let middle = case(10_000, 100_000);
    if results.find(&middle, "tollgate", LATENESS).is_some() {
        lateness(results, &middle, &directory.join("lateness.svg"))?;
    }
    if results.find(&case(100_000, 100_000), "tollgate", LATENESS).is_some() {
        cpu(results, &directory.join("cpu.svg"))?;
    }
    Ok(())
}

fn color(number: usize) -> RGBColor {
    if number == 0 { OURS } else { THEIRS[(number - 1) % THEIRS.len()] }
}

fn line(number: usize) -> ShapeStyle {
    color(number).stroke_width(if number == 0 { 4 } else { 2 })
}

fn style(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

/// A pair of bars for each contender: one thread, two threads.
fn hot(results: &Results, path: &Path) -> Result<(), Failure> {
    let of = |case: &str, name: &str| results.find(case, name, "ns").map(|s| s.median());
    let (names, _) = results.names_and_measures("hot, 1 threads");
    let mut bars: Vec<(&str, f64, f64)> = names
        .into_iter()
        .filter_map(|name| Some((name, of("hot, 1 threads", name)?, of("hot, 2 threads", name)?)))
        .collect();
    bars.sort_by(|a, b| b.2.total_cmp(&a.2));
    let most = bars.iter().map(|bar| bar.1.max(bar.2)).fold(0.0, f64::max) * 1.08;
    let page = SVGBackend::new(path, (960, 80 + 34 * bars.len() as u32)).into_drawing_area();
    page.fill(&WHITE)?;
    let title = "A grant without waiting: nanoseconds, one thread (dark) and two threads on one limiter (light)";
    let page = page.margin(6, 0, 0, 0).titled(title, style(17))?;
    let mut chart = ChartBuilder::on(&page)
        .margin(12)
        .set_label_area_size(LabelAreaPosition::Left, 330)
        .set_label_area_size(LabelAreaPosition::Bottom, 30)
        .build_cartesian_2d(0.0..most, (0..bars.len() - 1).into_segmented())?;
    let label = |at: &SegmentValue<usize>| match at {
        SegmentValue::CenterOf(number) => bars.get(*number).map_or_else(String::new, |bar| bar.0.to_owned()),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .x_label_formatter(&|ns| format!("{ns:.0}"))
        .light_line_style(WHITE)
        .bold_line_style(FLOOR.mix(0.6))
        .y_labels(bars.len())
        .y_label_formatter(&label)
        .label_style(style(15))
        .draw()?;
    for (number, (name, one, two)) in bars.iter().enumerate() {
        let color = if name.starts_with("tollgate") {
            OURS
        } else if name.starts_with("floor") {
            FLOOR
        } else {
            THEIRS[0]
        };
        let bar = |length: f64, margins: (u32, u32), color: RGBAColor| {
            let ends = [(0.0, SegmentValue::Exact(number)), (length, SegmentValue::Exact(number + 1))];
            let mut bar = Rectangle::new(ends, color.filled());
            bar.set_margin(margins.0, margins.1, 0, 0);
            bar
        };
        chart.draw_series([bar(*one, (4, 15), color.to_rgba()), bar(*two, (16, 4), color.mix(0.55))])?;
    }
    page.present()?;
    Ok(())
}

/// The share of grants that were at most this late, for all peers that keep the rate.
fn lateness(results: &Results, case: &str, path: &Path) -> Result<(), Failure> {
    let curves: Vec<(&str, Vec<f64>)> =
        Peer::ALL.iter().filter_map(|peer| Some((peer.name(), results.rounds(case, peer.name(), LATENESS)?))).collect();
    let page = SVGBackend::new(path, (960, 520)).into_drawing_area();
    page.fill(&WHITE)?;
    let names: Vec<&str> = curves.iter().map(|curve| curve.0).collect();
    let page = page
        .margin(6, 0, 0, 0)
        .titled("10,000 tasks waiting for 100,000 tokens/s: how late grants arrive", style(17))?;
    let (left, beside) = page.split_horizontally(720);
    let mut chart = ChartBuilder::on(&left)
        .margin(12)
        .margin_right(20)
        .set_label_area_size(LabelAreaPosition::Left, 64)
        .set_label_area_size(LabelAreaPosition::Bottom, 48)
        .build_cartesian_2d((0.02f64..2_000.0).log_scale(), 0.0..100.0)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(FLOOR.mix(0.6))
        .x_desc("milliseconds after the instant at which the rate allows it (log)")
        .y_label_formatter(&|share| format!("{share:.0}"))
        .y_desc("% of grants at most so late")
        .x_label_formatter(&|ms| format!("{ms}"))
        .label_style(style(14))
        .axis_desc_style(style(15))
        .draw()?;
    for (number, (_, mut micros)) in curves.into_iter().enumerate() {
        micros.sort_by(f64::total_cmp);
        let step = 100.0 / micros.len() as f64;
        let points = micros.iter().enumerate().map(|(n, late)| ((late / 1e3).clamp(0.02, 2_000.0), n as f64 * step));
        chart.draw_series(LineSeries::new(points, line(number)))?;
    }
    legend(&beside, &names)?;
    page.present()?;
    Ok(())
}

fn cpu(results: &Results, path: &Path) -> Result<(), Failure> {
    let median = |peer: Peer, tasks: usize| {
        let rounds = results.rounds(&case(tasks, 100_000), peer.name(), "CPU per grant, us")?;
        Some((tasks as f64, quantile(&rounds, 0.5)))
    };
    let page = SVGBackend::new(path, (960, 480)).into_drawing_area();
    page.fill(&WHITE)?;
    let page = page
        .margin(6, 0, 0, 0)
        .titled("CPU per grant by number of waiters, at 100,000 tokens/s, 2 workers", style(17))?;
    let curves: Vec<(Peer, Vec<(f64, f64)>)> = Peer::ALL
        .iter()
        .map(|peer| (*peer, TASKS.iter().filter_map(|tasks| median(*peer, *tasks)).collect()))
        .collect();
    let names: Vec<&str> = curves.iter().map(|(peer, _)| peer.name()).collect();
    let most = curves.iter().flat_map(|(_, points)| points).map(|point| point.1).fold(1.0, f64::max);
    let (left, beside) = page.split_horizontally(720);
    let mut chart = ChartBuilder::on(&left)
        .margin(12)
        .margin_right(20)
        .set_label_area_size(LabelAreaPosition::Left, 64)
        .set_label_area_size(LabelAreaPosition::Bottom, 48)
        .build_cartesian_2d((80f64..125_000.0).log_scale(), (0.5..most * 1.5).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(FLOOR.mix(0.6))
        .x_desc("waiting tasks (log)")
        .y_desc("microseconds of CPU per grant (log)")
        .x_label_formatter(&|tasks| format!("{tasks}"))
        .y_label_formatter(&|micros| format!("{micros}"))
        .label_style(style(14))
        .axis_desc_style(style(15))
        .draw()?;
    for (number, (_, points)) in curves.iter().enumerate() {
        let dots = points.iter().map(|point| Circle::new(*point, 4, color(number).filled()));
        chart.draw_series(dots)?;
        chart.draw_series(LineSeries::new(points.iter().copied(), line(number)))?;
    }
    legend(&beside, &names)?;
    page.present()?;
    Ok(())
}

/// Names and colors, beside the chart, where they hide nothing.
fn legend(area: &DrawingArea<SVGBackend, Shift>, names: &[&str]) -> Result<(), Failure> {
    for (number, name) in names.iter().enumerate() {
        let y = 30 + 26 * number as i32;
        area.draw(&PathElement::new([(4, y), (28, y)], line(number)))?;
        area.draw(&Text::new(*name, (36, y - 7), style(14)))?;
    }
    Ok(())
}
