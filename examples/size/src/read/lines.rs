//! Formats with one record per line.

use super::collector::{Collector, Record};
use crate::Failure;
use std::io::BufRead;

/// Reads every line that is not blank.
pub(super) fn read(
    input: &mut dyn BufRead,
    collector: &mut Collector,
    mut record: impl FnMut(&str) -> Result<Record<'_>, String>,
) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        if input.read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        match std::str::from_utf8(&bytes).map(str::trim) {
            Ok("") => {}
            Ok(text) => collector.take(line, record(text)),
            Err(_) => collector.take(line, Err("not UTF-8: convert the file, for example with iconv".into())),
        }
    }
    Ok(())
}
