//! Reading traces: CSV, JSON lines, and access logs.

mod collector;
mod csv;
mod json;
mod lines;
mod log;

use crate::Failure;
use crate::instant::Unit;
use crate::malformed::Malformed;
use crate::trace::Trace;
use clap::ValueEnum;
use collector::Collector;
use std::io::BufRead;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A header line that names the columns instant, key and cost, in any order; cost and key may be missing
    Csv,
    /// An object with the fields instant, key and cost on each line; cost and key may be missing
    Json,
    /// An access log in Common or Combined Log Format: the host is the key, the cost is 1
    Log,
}

/// Reads a trace and the lines that are malformed. The format is taken from the first line if it is not given.
pub fn read(input: &mut dyn BufRead, format: Option<Format>, unit: Unit) -> Result<(Collected, Format), Failure> {
    let format = match format {
        Some(format) => format,
        None => Format::of_first_line(input.fill_buf()?),
    };
    let mut collector = Collector::default();
    match format {
        Format::Csv => csv::read(input, unit, &mut collector)?,
        Format::Json => lines::read(input, &mut collector, |line| json::record(line, unit))?,
        Format::Log => lines::read(input, &mut collector, log::record)?,
    }
    Ok((collector.finish()?, format))
}

/// What was read.
#[derive(Debug)]
pub struct Collected {
    pub trace: Trace,
    pub malformed: Malformed,
}

impl Format {
    fn of_first_line(start: &[u8]) -> Self {
        let first = start.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
        if first.trim_ascii().starts_with(b"{") {
            Self::Json
        } else if first.windows(2).any(|pair| pair == b" [") {
            Self::Log
        } else {
            Self::Csv
        }
    }
}
