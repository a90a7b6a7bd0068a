//! The picture: the granted tokens, the tokens that the law allows, and the limiter's own rovers.

use std::ops::Range;
use std::path::Path;

use plotters::chart::SeriesAnno;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::Failure;
use crate::client::Sample;
use crate::judge::Law;
use crate::server::Arrival;

// Okabe and Ito's colors, which people with color blindness can distinguish.
const ALLOWED: RGBColor = RGBColor(213, 94, 0);
const ADMITTED: RGBColor = RGBColor(0, 114, 178);
const TAIL: RGBColor = RGBColor(204, 121, 167);
const PUBLISHED: RGBColor = RGBColor(230, 159, 0);
const CEILING: RGBColor = RGBColor(0, 158, 115);
const INK: RGBColor = RGBColor(60, 60, 60);

const FONT: &str = "Helvetica, Arial, sans-serif";
/// The part of the start that the second panel shows.
const OPENING: f64 = 0.4;

type Panel<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Chart<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
/// Seconds since the first admission, and tokens.
type Point = (f64, f64);

struct Curves {
    /// The allowed line: burst, tokens per second.
    law: (f64, f64),
    admitted: Vec<Point>,
    tail: Vec<Point>,
    published: Vec<Point>,
    ceiling: Vec<Point>,
    end: f64,
}

pub(crate) fn draw(path: &Path, law: &Law, arrivals: &[Arrival], samples: &[Sample]) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let curves = Curves::new(law, arrivals, samples);
    let page = SVGBackend::new(path, (1200, 900)).into_drawing_area();
    page.fill(&WHITE)?;
    let (whole, below) = page.split_vertically(520);
    let (opening, margin) = below.split_horizontally(600);
    let title = format!("Admitted at the server: {} tokens/s, burst {}", law.rate, law.burst);
    curves.tokens(&whole, &title, 0.0..curves.end, true)?;
    curves.tokens(&opening, "The opening: the burst, then the rate", 0.0..OPENING.min(curves.end), false)?;
    curves.margin(&margin)?;
    page.present()?;
    Ok(())
}

impl Curves {
    fn new(law: &Law, arrivals: &[Arrival], samples: &[Sample]) -> Curves {
        let first = arrivals.iter().map(|arrival| arrival.claim).min_by_key(|claim| claim.turn);
        let (zero, opening) = first.map_or((0, law.burst), |first| (first.earliest, law.at_once(first.cost)));
        let seconds = |nanos: u64| (nanos as f64 - zero as f64) / 1e9;
        let rover = |of: fn(&Sample) -> Option<u64>| -> Vec<Point> {
            let since = samples.iter().filter(|sample| sample.at >= zero);
            since.filter_map(|sample| Some((seconds(sample.at), of(sample)? as f64))).collect()
        };
        Curves {
            law: (opening as f64, law.rate as f64),
            admitted: stairs(arrivals, seconds),
            tail: rover(|sample| Some(sample.tail)),
            published: rover(|sample| Some(sample.published)),
            ceiling: rover(|sample| sample.ceiling),
            end: arrivals.iter().map(|arrival| seconds(arrival.at)).fold(0.0, f64::max),
        }
    }

    fn allowed(&self, at: f64) -> f64 {
        self.law.0 + self.law.1 * at
    }

    /// Tokens over time, all curves.
    fn tokens(&self, area: &Panel<'_>, title: &str, over: Range<f64>, legend: bool) -> Result<(), Failure> {
        let curves = [&self.admitted, &self.tail, &self.published, &self.ceiling];
        let points = curves.into_iter().flatten().filter(|(at, _)| *at <= over.end);
        let top = points.map(|(_, tokens)| *tokens).fold(self.allowed(over.end), f64::max) * 1.03;
        let mut chart = panel(area, title, "tokens since the start", over.clone(), 0.0..top)?;
        line(&mut chart, "ceiling: released + in-flight limit", &self.ceiling, CEILING.stroke_width(2))?;
        line(&mut chart, "tail: claimed, including the waiting claims", &self.tail, TAIL.stroke_width(2))?;
        line(&mut chart, "head: published", &self.published, PUBLISHED.mix(0.55).stroke_width(7))?;
        line(&mut chart, "granted: counted by the server", &self.admitted, ADMITTED.stroke_width(2))?;
        let ends = [over.start, over.end].map(|at| (at, self.allowed(at)));
        let dashes = DashedLineSeries::new(ends, 7, 7, ALLOWED.stroke_width(2));
        legend_of(chart.draw_series(dashes)?, "allowed: burst + rate x time", ALLOWED.stroke_width(2));
        if legend {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .margin(14)
                .legend_area_size(36)
                .label_font((FONT, 15).into_font().color(&INK))
                .background_style(WHITE.mix(0.9))
                .border_style(INK.mix(0.3))
                .draw()?;
        }
        Ok(())
    }

    /// How far each request stays below the allowed line. A violation would be above it.
    fn margin(&self, area: &Panel<'_>) -> Result<(), Failure> {
        let gaps = self.admitted.iter().skip(2).step_by(2).map(|&(at, tokens)| (at, tokens - self.allowed(at)));
        let settled = gaps.clone().filter(|(at, _)| *at > OPENING.min(self.end / 2.0));
        let lowest = settled.map(|(_, gap)| gap).fold(-1.0, f64::min) * 1.15;
        let highest = gaps.clone().map(|(_, gap)| gap).fold(-lowest * 0.15, f64::max) * 1.15;
        let title = "Each request, seen from the allowed line";
        let mut chart = panel(area, title, "tokens above it", 0.0..self.end, lowest..highest)?;
        let forbidden = [(0.0, 0.0), (self.end, highest)];
        chart.draw_series([Rectangle::new(forbidden, ALLOWED.mix(0.12).filled())])?;
        let inside = gaps.filter(|(_, gap)| *gap >= lowest);
        chart.draw_series(inside.map(|point| Circle::new(point, 2, ADMITTED.mix(0.45).filled())))?;
        chart.draw_series(LineSeries::new([(0.0, 0.0), (self.end, 0.0)], ALLOWED.stroke_width(2)))?;
        Ok(())
    }
}

/// The cumulative count as a staircase.
fn stairs(arrivals: &[Arrival], seconds: impl Fn(u64) -> f64) -> Vec<Point> {
    let mut arrived: Vec<_> = arrivals.iter().map(|arrival| (seconds(arrival.at), arrival.claim.cost)).collect();
    arrived.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut total = 0.0;
    let step = |(at, cost)| {
        let before = total;
        total += cost as f64;
        [(at, before), (at, total)]
    };
    std::iter::once((0.0, 0.0)).chain(arrived.into_iter().flat_map(step)).collect()
}

fn panel<'a, 'b>(
    area: &'b Panel<'a>,
    title: &str,
    unit: &str,
    x: Range<f64>,
    y: Range<f64>,
) -> Result<Chart<'a, 'b>, Failure> {
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 20).into_font().color(&INK))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .x_desc("seconds since the first admission")
        .y_desc(unit)
        .y_label_formatter(&|tokens| format!("{tokens:.0}"))
        .label_style((FONT, 14).into_font().color(&INK))
        .axis_style(INK.mix(0.5))
        .bold_line_style(INK.mix(0.15))
        .light_line_style(TRANSPARENT)
        .draw()?;
    Ok(chart)
}

/// The part of a curve that lies within the panel.
fn line(chart: &mut Chart<'_, '_>, name: &str, points: &[Point], style: ShapeStyle) -> Result<(), Failure> {
    if points.is_empty() {
        return Ok(());
    }
    let end = chart.x_range().end;
    let inside = points.iter().copied().take_while(|(at, _)| *at <= end);
    legend_of(chart.draw_series(LineSeries::new(inside, style))?, name, style);
    Ok(())
}

fn legend_of<'a>(series: &mut SeriesAnno<'a, SVGBackend<'_>>, name: &str, style: ShapeStyle) {
    series.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 26, y)], style));
}
