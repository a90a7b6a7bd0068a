//! The table of all faults.

use crate::Failure;
use crate::catalog::Fault;
use crate::law::Law;
use crate::outcome::Outcome;
use crate::trial::{LAW, NODES};
use std::path::Path;

const FIRST: &str = "<!-- faults -->";
const LAST: &str = "<!-- end of faults -->";

pub(crate) struct Row<'a> {
    pub(crate) fault: &'a Fault,
    /// Why it was not tried.
    pub(crate) outcome: Result<Outcome, &'static str>,
}

impl Row<'_> {
    /// A line for the terminal.
    pub(crate) fn line(&self) -> String {
        let name = self.fault.name;
        match &self.outcome {
            Ok(Outcome { excess, allowed, kept, recovery, connections }) => format!(
                "fault: {name:24} excess={excess} bound={allowed} kept={kept:.2} recovery_ms={} connections={connections}",
                recovery / 1_000_000
            ),
            Err(why) => format!("fault: {name:24} NOT RUN: {why}"),
        }
    }

    fn markdown(&self) -> String {
        let Fault { name, what, .. } = self.fault;
        match &self.outcome {
            Ok(Outcome { excess, allowed, kept, recovery, connections }) => format!(
                "| `{name}` | {what} | {excess} | {allowed} | {kept:.2} | {} | {connections} |\n",
                recovery / 1_000_000
            ),
            Err(why) => format!("| `{name}` | {what} | not run: {why} | | | | |\n"),
        }
    }
}

/// Replaces what is between the two marks in `file`.
pub(crate) fn publish(file: &Path, rows: &[Row]) -> Result<(), Failure> {
    let text = std::fs::read_to_string(file)?;
    let marks = text.split_once(FIRST).and_then(|(before, rest)| Some((before, rest.split_once(LAST)?.1)));
    let (before, after) = marks.ok_or_else(|| format!("{} has no lines {FIRST} and {LAST}", file.display()))?;
    let Law { rate, burst } = LAW;
    let processors = std::thread::available_parallelism()?;
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let table: String = rows.iter().map(Row::markdown).collect();
    let text = format!(
        "{before}{FIRST}\n\n{NODES} processes share {rate} tokens per second, burst {burst}. Written by `scripts/faults` on \
         {processors} processors; the load average at the end was {load}.\n\n\
         | fault | what happens | excess | bound | kept | recovery (ms) | connections |\n|---|---|---|---|---|---|---|\n\
         {table}\n{LAST}{after}"
    );
    Ok(std::fs::write(file, text)?)
}
