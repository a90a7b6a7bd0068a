//! The picture: tokens, waits and the queue over time, and the trade-off between rate and burst.

use crate::Failure;
use crate::outcome::Outcome;
use crate::per::Per;
use crate::search::TradeOff;
use crate::timeline::Timeline;
use crate::trace::Trace;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::ops::Range;
use std::path::Path;

// Okabe and Ito's colors, which people with color blindness can distinguish.
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];
const INK: RGBColor = RGBColor(60, 60, 60);
const FONT: &str = "Helvetica, Arial, sans-serif";
const WIDTH: u32 = 1200;
const HEIGHT: u32 = 300;

type Panel<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Point = (f64, f64);

/// A line of a panel, and its name in the legend.
struct Curve {
    name: String,
    color: RGBColor,
    points: Vec<Point>,
}

pub fn draw(
    path: &Path,
    trace: &Trace,
    outcomes: &[Outcome],
    trade_offs: &[TradeOff],
    per: Per,
) -> Result<(), Failure> {
    let panels = if trade_offs.is_empty() { 3 } else { 4 };
    let page = SVGBackend::new(path, (WIDTH, HEIGHT * panels)).into_drawing_area();
    page.fill(&WHITE)?;
    let areas = page.split_evenly((panels as usize, 1));
    let time = "seconds since the first call";
    let mut tokens = vec![requested(&outcomes[0].timeline)];
    tokens.extend(curves(outcomes, |timeline, slice| timeline.granted[slice] as f64 / timeline.slice));
    let title = format!("Tokens per second, {} calls", trace.events.len());
    panel(&areas[0], &title, (time, "tokens per second"), &tokens)?;
    let waits = curves(outcomes, |timeline, slice| timeline.wait[slice] * 1e3);
    panel(&areas[1], "Longest wait of the calls of each slice of time", (time, "milliseconds"), &waits)?;
    let waiting = curves(outcomes, |timeline, slice| timeline.waiting[slice] as f64);
    panel(&areas[2], "Callers that wait at the end of each slice", (time, "callers"), &waiting)?;
    if let Some(area) = areas.get(3) {
        let axes = ("burst", format!("tokens per {per}"));
        panel(area, "The smallest rate that meets the goal", (axes.0, &axes.1), &[trade_off(trade_offs)])?;
    }
    Ok(page.present()?)
}

fn requested(timeline: &Timeline) -> Curve {
    let rate = |slice: usize| timeline.requested[slice] as f64 / timeline.slice;
    Curve { name: "asked for".into(), color: RGBColor(170, 170, 170), points: points(timeline, rate) }
}

/// A curve for each quota.
fn curves(outcomes: &[Outcome], of: impl Fn(&Timeline, usize) -> f64) -> Vec<Curve> {
    let curve = |(outcome, color): (&Outcome, &RGBColor)| Curve {
        name: outcome.candidate.quota().to_string(),
        color: *color,
        points: points(&outcome.timeline, |slice| of(&outcome.timeline, slice)),
    };
    outcomes.iter().zip(COLORS.iter().cycle()).map(curve).collect()
}

fn points(timeline: &Timeline, of: impl Fn(usize) -> f64) -> Vec<Point> {
    (0..timeline.requested.len()).map(|slice| ((slice as f64 + 0.5) * timeline.slice, of(slice))).collect()
}

fn trade_off(rows: &[TradeOff]) -> Curve {
    let points = rows.iter().filter_map(|row| Some((row.burst as f64, row.rate? as f64)));
    Curve { name: "smallest rate".into(), color: COLORS[0], points: points.collect() }
}

/// Draws curves with a legend.
fn panel(area: &Panel<'_>, title: &str, (x, y): (&str, &str), curves: &[Curve]) -> Result<(), Failure> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 18).into_font().color(&INK))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(90)
        .build_cartesian_2d(range(points().map(|point| point.0), 0.02), range(points().map(|point| point.1), 0.3))?;
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .label_style((FONT, 13).into_font().color(&INK))
        .axis_style(INK.mix(0.5))
        .bold_line_style(INK.mix(0.15))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for curve in curves {
        let style = curve.color.stroke_width(2);
        let series = LineSeries::new(curve.points.iter().copied(), style).point_size(if curve.points.len() < 20 {
            4
        } else {
            0
        });
        chart
            .draw_series(series)?
            .label(&curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .label_font((FONT, 13).into_font().color(&INK))
        .background_style(WHITE.mix(0.85))
        .border_style(INK.mix(0.3))
        .draw()?;
    Ok(())
}

/// From 0 to the largest value, and above it a `margin`, as a share of that.
fn range(values: impl Iterator<Item = f64>, margin: f64) -> Range<f64> {
    0.0..values.fold(1e-9, f64::max) * (1.0 + margin)
}
