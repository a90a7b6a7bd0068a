//! The picture: the tokens of each node over time, and of all nodes together.

use crate::Failure;
use crate::law::Law;
use crate::log::Log;
use plotters::prelude::*;
use std::ops::Deref;
use std::path::Path;

// Okabe and Ito's colors, which people with color blindness can distinguish.
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];
const ALLOWED: RGBColor = RGBColor(213, 94, 0);
const INK: RGBColor = RGBColor(60, 60, 60);
const FONT: &str = "Helvetica, Arial, sans-serif";

/// Rates are averages over this time: nodes take turns of a tenth of a second.
const OVER: u64 = 200_000_000;
const STEP: u64 = OVER / 8;

pub(crate) fn draw(
    path: &Path,
    law: &Law,
    logs: &[impl Deref<Target = Log>],
    began: u64,
    killed: Option<(usize, u64)>,
) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let end = logs.iter().filter_map(|log| log.grants.last()).map(|batch| batch.last).max().unwrap_or(began);
    let curves: Vec<_> = logs.iter().map(|log| rates(log, began, end)).collect();
    let seconds = (end - began) as f64 / 1e9;
    let page = SVGBackend::new(path, (1200, 640)).into_drawing_area();
    page.fill(&WHITE)?;
    let title = format!("{} nodes share {} tokens/s, burst {}", logs.len(), law.rate, law.burst);
    let top = law.rate as f64 * 1.25;
    let mut chart = ChartBuilder::on(&page)
        .caption(title, (FONT, 20).into_font().color(&INK))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..seconds, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("seconds since the first node began")
        .y_desc("tokens per second, over 0.2 s")
        .y_label_formatter(&|rate| format!("{rate:.0}"))
        .label_style((FONT, 14).into_font().color(&INK))
        .axis_style(INK.mix(0.5))
        .bold_line_style(INK.mix(0.15))
        .light_line_style(TRANSPARENT)
        .draw()?;
    let mut line = |name: String, points: Vec<(f64, f64)>, style: ShapeStyle| -> Result<(), Failure> {
        let inside = points.into_iter().map(|(at, rate)| (at, rate.min(top)));
        let series = chart.draw_series(LineSeries::new(inside, style))?;
        series.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 26, y)], style));
        Ok(())
    };
    line("allowed".into(), vec![(0.0, law.rate as f64), (seconds, law.rate as f64)], ALLOWED.stroke_width(2))?;
    let all = (0..curves.first().map_or(0, Vec::len)).map(|i| (curves[0][i].0, curves.iter().map(|c| c[i].1).sum()));
    line("all together".into(), all.collect(), INK.stroke_width(2))?;
    for (number, curve) in curves.into_iter().enumerate() {
        line(format!("node {number}"), curve, COLOURS[number % COLOURS.len()].stroke_width(2))?;
    }
    if let Some((victim, at)) = killed {
        let at = (at - began) as f64 / 1e9;
        line(format!("kill -9 of node {victim}"), vec![(at, 0.0), (at, top)], INK.mix(0.5).stroke_width(1))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .margin(14)
        .legend_area_size(36)
        .label_font((FONT, 15).into_font().color(&INK))
        .background_style(WHITE.mix(0.9))
        .border_style(INK.mix(0.3))
        .draw()?;
    page.present()?;
    Ok(())
}

/// Seconds, and tokens per second in the time before.
fn rates(log: &Log, began: u64, end: u64) -> Vec<(f64, f64)> {
    let points = (began + OVER..=end).step_by(STEP as usize);
    let rate = |at: u64| log.tokens_in(at - OVER..at) as f64 / (OVER as f64 / 1e9);
    points.map(|at| ((at - began) as f64 / 1e9, rate(at))).collect()
}
