//! Access logs: fields between spaces, quotes or brackets, one of which is the time.

use super::collector::Record;
use crate::instant;
use jiff::Timestamp;
use jiff::fmt::strtime;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Reads lines like `host ident user [10/Oct/2000:13:55:36 -0700] "request" status bytes ...`, or with a timestamp of
/// RFC 3339 as a field. The client is the only address among the fields before the brackets. Columns count from 0.
pub(super) struct Log {
    /// The client's column, if the user has named it.
    named: Option<usize>,
    /// The columns that may be the client's, each with the first text found there.
    candidates: BTreeMap<usize, String>,
}

impl Log {
    pub(super) fn new(named: Option<usize>) -> Self {
        Self { named, candidates: BTreeMap::new() }
    }

    pub(super) fn record<'l>(&mut self, line: &'l str) -> Result<Record<'l>, String> {
        let fields: Vec<&str> = fields(line).collect();
        if fields.len() < 2 {
            return Err(no_log_line(line));
        }
        let bracket = fields.iter().position(|field| field.starts_with('[') && field.contains(' '));
        let at = match bracket {
            Some(column) => common_time(fields[column].trim_matches(['[', ']']))?,
            None => fields.iter().find_map(|field| rfc_3339(field)).unwrap_or_else(|| Err(no_log_line(line)))?,
        };
        let column = self.named.unwrap_or_else(|| self.find_client(&fields, bracket));
        let missing = || format!("column {} is missing: the line has {} columns", column + 1, fields.len());
        let text = *fields.get(column).ok_or_else(missing)?;
        let key = address(text).map_or(Cow::Borrowed(text), |client| client.to_string().into());
        Ok(Record { at, key, cost: 1 })
    }

    /// Notes which columns of a line may be the client's, and returns the first one.
    fn find_client(&mut self, fields: &[&str], bracket: Option<usize>) -> usize {
        let mut columns: Vec<_> = (0..fields.len()).filter(|column| address(fields[*column]).is_some()).collect();
        let head = bracket.unwrap_or(fields.len());
        if columns.iter().all(|column| *column >= head) {
            // The host may be a name in `host ident user [time]`. In other formats the first column may be the server.
            columns.extend(if bracket == Some(3) { 0..1 } else { 0..2 });
        }
        for column in &columns {
            self.candidates.entry(*column).or_insert_with(|| fields[*column].to_owned());
        }
        columns[0]
    }

    /// What to say to the user if more than one column may be the client's.
    pub(super) fn doubt(&self) -> Option<String> {
        let list = self.candidates.iter().map(|(column, text)| format!("column {} (`{text}`)", column + 1));
        let list = list.collect::<Vec<_>>().join(" or ");
        (self.candidates.len() > 1).then(|| format!("{list} may be the client: name it with --key-column"))
    }
}

/// Splits a line at spaces, except those between quotes or brackets. The quotes around a field are left out.
fn fields(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let close = match rest.chars().next()? {
            '"' => Some('"'),
            '[' => Some(']'),
            _ => None,
        };
        let mut is_open = close.is_some();
        let mut is_escaped = false;
        let end = rest.char_indices().skip(1).find(|(_, c)| {
            let ends = *c == ' ' && !is_open;
            is_open &= close != Some(*c) || is_escaped;
            is_escaped = *c == '\\' && !is_escaped;
            ends
        });
        let (field, after) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
        rest = after;
        Some(field.strip_prefix('"').and_then(|field| field.strip_suffix('"')).unwrap_or(field))
    })
}

/// The address in a field, with or without a port. Of a list such as that of `X-Forwarded-For`, the last one: the proxy
/// that wrote the log, or the one before it, has seen that client. The others may be invented.
fn address(field: &str) -> Option<IpAddr> {
    let read = |text: &str| text.parse().ok().or_else(|| text.parse().ok().map(|peer: SocketAddr| peer.ip()));
    field.split(',').map(|text| read(text.trim())).collect::<Option<Vec<_>>>()?.pop()
}

fn common_time(time: &str) -> Result<u64, String> {
    let timestamp = strtime::parse("%d/%b/%Y:%H:%M:%S %z", time).and_then(|parsed| parsed.to_timestamp());
    let timestamp =
        timestamp.map_err(|_| format!("`{time}` is no time of a log: write it like 10/Oct/2000:13:55:36 -0700"))?;
    instant::since_1970(timestamp, time)
}

/// `None` if the field is no timestamp.
pub(super) fn rfc_3339(field: &str) -> Option<Result<u64, String>> {
    Some(instant::since_1970(field.parse::<Timestamp>().ok()?, field))
}

fn no_log_line(line: &str) -> String {
    let start: String = line.chars().take(60).collect();
    format!(r#"`{start}` is no log line: write `host - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 12`"#)
}
