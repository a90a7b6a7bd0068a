//! CSV with the columns instant, key and cost.

use super::collector::{Collector, Record};
use crate::Failure;
use crate::event::parse_cost;
use crate::instant::{self, Unit};
use csv::{ErrorKind, Position, ReaderBuilder, StringRecord};
use std::io::Read;

/// Where the columns stand.
struct Columns {
    instant: usize,
    key: Option<usize>,
    cost: Option<usize>,
}

pub(super) fn read(input: impl Read, unit: Unit, collector: &mut Collector) -> Result<(), Failure> {
    let mut reader = ReaderBuilder::new().flexible(true).from_reader(input);
    let columns = Columns::of(reader.headers()?)?;
    let mut row = StringRecord::new();
    loop {
        match reader.read_record(&mut row) {
            Ok(false) => return Ok(()),
            Ok(true) => {
                let line = row.position().map_or(0, Position::line);
                collector.take(line, columns.record(&row, unit));
            }
            Err(error) => match error.kind() {
                ErrorKind::Utf8 { pos, .. } => {
                    let line = pos.as_ref().map_or(0, Position::line);
                    collector.take(line, Err("not UTF-8: convert the file, for example with iconv".into()));
                }
                _ => return Err(error.into()),
            },
        }
    }
}

impl Columns {
    fn of(header: &StringRecord) -> Result<Self, Failure> {
        let find = |name| header.iter().position(|column| column.trim().eq_ignore_ascii_case(name));
        if header.is_empty() {
            return Err(
                "the trace is empty: write a header such as `instant,key,cost`, and a line for each call".into()
            );
        }
        let missing = || {
            let found = header.iter().collect::<Vec<_>>().join(",");
            format!("the first line, `{found}`, names no column `instant`: write a header such as `instant,key,cost`")
        };
        Ok(Self { instant: find("instant").ok_or_else(missing)?, key: find("key"), cost: find("cost") })
    }

    fn record<'r>(&self, row: &'r StringRecord, unit: Unit) -> Result<Record<'r>, String> {
        let field = |column: usize, name| {
            row.get(column)
                .map(str::trim)
                .ok_or_else(|| format!("the column `{name}` is missing: write {}", self.shape()))
        };
        let at = instant::parse(field(self.instant, "instant")?, unit)?;
        let key = self.key.map_or(Ok(""), |column| field(column, "key"))?;
        let cost = self.cost.map_or(Ok(1), |column| parse_cost(field(column, "cost")?))?;
        Ok(Record { at, key: key.into(), cost })
    }

    fn shape(&self) -> String {
        let columns = [Some(self.instant), self.key, self.cost];
        let count = columns.into_iter().flatten().max().unwrap_or(0) + 1;
        format!("at least {count} columns, as the first line does")
    }
}
