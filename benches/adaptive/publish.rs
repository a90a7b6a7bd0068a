//! Writes the table into `docs/BENCHMARKS.md`, between the markers, and the picture beside it.

use crate::plot;
use crate::targets::{Row, table};
use std::error::Error;
use std::fs;

const PAGE: &str = "docs/BENCHMARKS.md";
const PICTURE: &str = "docs/adaptive.svg";
const OPEN: &str = "<!-- bench:adaptive -->";
const CLOSE: &str = "<!-- /bench:adaptive -->";

pub fn publish(rows: &[Row]) -> Result<(), Box<dyn Error>> {
    let page = fs::read_to_string(PAGE)?;
    let (before, rest) = page.split_once(OPEN).ok_or("no opening marker")?;
    let (_, after) = rest.split_once(CLOSE).ok_or("no closing marker")?;
    fs::write(PAGE, format!("{before}{OPEN}\n{}\n{CLOSE}{after}", table(rows).trim_end()))?;
    plot::draw(rows, PICTURE.as_ref())
}
