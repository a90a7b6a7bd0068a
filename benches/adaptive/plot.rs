//! The picture: the requests that each contender sends (blue), and the limit (orange).

use crate::targets::Row;
use std::fmt::Write;
use std::path::Path;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 120.0;
/// Around each panel, for the title and the numbers.
const MARGIN: f64 = 50.0;

/// 16 processes at 1,000 per second: one panel for each contender.
pub fn draw(rows: &[Row], path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let shown: Vec<&Row> = rows.iter().filter(|row| row.scene.limit == 1_000.0 && row.processes == 16).collect();
    let (width, height) = (WIDTH + 2.0 * MARGIN, (HEIGHT + MARGIN) * shown.len() as f64 + MARGIN);
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' font-family='sans-serif' font-size='13' \
         fill='#3c3c3c'><rect width='100%' height='100%' fill='white'/>\n"
    );
    for (panel, row) in shown.into_iter().enumerate() {
        let (bottom, top) = ((HEIGHT + MARGIN) * (panel as f64 + 1.0), row.scene.limit * 1.6);
        let y = |rate: f64| bottom - rate.min(top) / top * HEIGHT;
        writeln!(svg, "<text x='{MARGIN}' y='{}'>{}: {}</text>", bottom - HEIGHT - 6.0, row.name, row.title())?;
        for rate in [0.0, row.scene.limit / 2.0, row.scene.limit] {
            writeln!(svg, "<text x='{}' y='{}' text-anchor='end'>{rate}</text>", MARGIN - 6.0, y(rate) + 4.0)?;
            writeln!(svg, "<path d='M{MARGIN} {0:.0}h{WIDTH}' stroke='#ddd'/>", y(rate))?;
        }
        let seconds = row.figures.trace.len() / 10;
        writeln!(svg, "<text x='{}' y='{}'>{seconds} s</text>", MARGIN + WIDTH - 30.0, bottom + 16.0)?;
        // The mean of half a second.
        let mut line = |of: fn(&(f64, f64)) -> f64, color: &str, thick: u32| {
            let halves = row.figures.trace.chunks(5);
            let step = WIDTH / halves.len() as f64;
            let points = halves.map(|half| half.iter().map(of).sum::<f64>() / half.len() as f64).enumerate();
            let points = points.map(|(half, rate)| format!("{:.1},{:.1}", MARGIN + half as f64 * step, y(rate)));
            let points = points.collect::<Vec<_>>().join(" ");
            writeln!(svg, "<polyline points='{points}' fill='none' stroke='{color}' stroke-width='{thick}'/>")
        };
        line(|it| it.1, "#0072b2", 1)?;
        line(|it| it.0, "#d55e00", 2)?;
    }
    Ok(std::fs::write(path, svg + "</svg>\n")?)
}
