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
use log::Log;
use std::io::BufRead;
use std::num::NonZeroUsize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A header line that names the columns instant, key and cost, in any order; cost and key may be missing
    Csv,
    /// An object with the fields instant, key and cost on each line; cost and key may be missing
    Json,
    /// An access log in Common or Combined Log Format, or with more columns: the client is the key, the cost is 1
    Log,
}

/// Reads a trace and the lines that are malformed. The format is taken from the first line if it is not given.
/// `key_column` is the client's column of an access log, from 1.
pub fn read(
    input: &mut dyn BufRead,
    format: Option<Format>,
    unit: Unit,
    key_column: Option<NonZeroUsize>,
) -> Result<(Collected, Format), Failure> {
    let format = match format {
        Some(format) => format,
        None => Format::of_first_line(input.fill_buf()?),
    };
    if key_column.is_some() && format != Format::Log {
        return Err("--key-column is for access logs: in CSV and JSON lines, give the name `key` to the column".into());
    }
    let mut collector = Collector::default();
    let mut log = Log::new(key_column.map(|column| column.get() - 1));
    match format {
        Format::Csv => csv::read(input, unit, &mut collector)?,
        Format::Json => lines::read(input, &mut collector, |line| json::record(line, unit))?,
        Format::Log => lines::read(input, &mut collector, |line| log.record(line))?,
    }
    Ok((collector.finish(log.doubt())?, format))
}

/// What was read.
#[derive(Debug)]
pub struct Collected {
    pub trace: Trace,
    pub malformed: Malformed,
    /// Why the calls have no keys, if that is not because the trace names none.
    pub doubt: Option<String>,
}

impl Format {
    fn of_first_line(start: &[u8]) -> Self {
        let first = start.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
        if first.trim_ascii().starts_with(b"{") {
            Self::Json
        } else if first.windows(2).any(|pair| pair == b" [") || has_timestamp(first) {
            Self::Log
        } else {
            Self::Csv
        }
    }
}

/// Whether one of several fields between spaces is a timestamp. The first line of a CSV file has none.
fn has_timestamp(line: &[u8]) -> bool {
    let Ok(line) = std::str::from_utf8(line.trim_ascii()) else { return false };
    line.contains(' ') && line.split(' ').any(|field| log::rfc_3339(field).is_some())
}
