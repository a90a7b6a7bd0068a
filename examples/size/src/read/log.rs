//! Access logs in Common or Combined Log Format.

use super::collector::Record;
use crate::instant;
use jiff::fmt::strtime;

/// `host ident user [10/Oct/2000:13:55:36 -0700] "request" status bytes ...`: the host is the key.
pub(super) fn record(line: &str) -> Result<Record<'_>, String> {
    let parts = || {
        let (host, rest) = line.split_once(' ')?;
        let (_, rest) = rest.split_once(" [")?;
        let (time, _) = rest.split_once("] \"")?;
        Some((host, time))
    };
    let (host, time) = parts().ok_or_else(|| {
        let start: String = line.chars().take(60).collect();
        format!(r#"`{start}` is no log line: write `host - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 12`"#)
    })?;
    let timestamp = strtime::parse("%d/%b/%Y:%H:%M:%S %z", time).and_then(|parsed| parsed.to_timestamp());
    let timestamp =
        timestamp.map_err(|_| format!("`{time}` is no time of a log: write it like 10/Oct/2000:13:55:36 -0700"))?;
    Ok(Record { at: instant::since_1970(timestamp, time)?, key: host.into(), cost: 1 })
}
