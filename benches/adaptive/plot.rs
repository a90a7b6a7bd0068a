//! The picture: the requests that each contender sends (blue), and the limit (orange).

use crate::targets::Row;
use plotters::prelude::*;
use std::path::Path;

const INK: RGBColor = RGBColor(60, 60, 60);
const OURS: RGBColor = RGBColor(0, 114, 178);
const LIMIT: RGBColor = RGBColor(213, 94, 0);
const FONT: &str = "Helvetica, Arial, sans-serif";

/// 16 processes at 1,000 per second: one panel for each contender.
pub fn draw(rows: &[Row], path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let shown: Vec<&Row> = rows.iter().filter(|row| row.scene.limit == 1_000.0 && row.processes == 16).collect();
    let page = SVGBackend::new(path, (960, 170 * shown.len() as u32)).into_drawing_area();
    page.fill(&WHITE)?;
    for (panel, row) in page.split_evenly((shown.len(), 1)).iter().zip(shown) {
        let seconds = row.figures.trace.len() as f64 / 10.0;
        let mut chart = ChartBuilder::on(panel)
            .caption(format!("{}: {}", row.name, row.title()), (FONT, 15).into_font().color(&INK))
            .margin(6)
            .set_label_area_size(LabelAreaPosition::Left, 52)
            .set_label_area_size(LabelAreaPosition::Bottom, 22)
            .build_cartesian_2d(0.0..seconds, 0.0..row.scene.limit * 1.6)?;
        chart.configure_mesh().disable_x_mesh().y_labels(4).label_style((FONT, 12).into_font().color(&INK)).draw()?;
        // The mean of half a second.
        let line = |of: fn(&(f64, f64)) -> f64| {
            let halves = row.figures.trace.chunks(5).enumerate();
            halves.map(move |(half, it)| (half as f64 / 2.0, it.iter().map(of).sum::<f64>() / it.len() as f64))
        };
        chart.draw_series(LineSeries::new(line(|it| it.1), OURS.stroke_width(1)))?;
        chart.draw_series(LineSeries::new(line(|it| it.0), LIMIT.stroke_width(2)))?;
    }
    page.present()?;
    Ok(())
}
