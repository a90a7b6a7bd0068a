//! The tables and plots that README.md and docs/BENCHMARKS.md show, rewritten in place.

use crate::Failure;
use crate::cancel::CASE as CANCEL;
use crate::fair::FAIR;
use crate::idle::CASE as IDLE;
use crate::peers::Peer;
use crate::results::{Results, Series};
use crate::waiting::case;
use crate::{plot, table, targets};
use comfy_table::Table;
use std::path::Path;

/// Each table stands between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`.
pub fn publish(results: &Results, root: &Path) -> Result<(), Failure> {
    plot::draw(results, &root.join("docs"))?;
    let stamp = format!("Measured {} on {} cores of {}.", results.date, results.cores, results.machine);
    let mut parts = vec![("stamp", stamp), ("short", short(results).to_string())];
    parts.push(("targets", targets::table(&targets::judge(results)).to_string()));
    for (name, prefix) in [
        ("hot", "hot, "),
        ("denied", "denied, "),
        ("capped", "capped, "),
        ("awaited", "awaited, "),
        ("waiting", "waiting, "),
        ("order", "order, "),
        ("fair", "fair, "),
        ("alone", "alone, "),
        ("cancel", "cancel, "),
        ("idle", "idle, "),
        ("memory", "memory"),
        ("hogs", "hogs, "),
    ] {
        let tables = results.cases(prefix).into_iter().map(|case| {
            // A case of its own has its title in the document.
            format!("**{case}**\n\n{}", table::of_case(results, case))
        });
        parts.push((name, tables.collect::<Vec<_>>().join("\n\n")));
    }
    for file in ["README.md", "docs/BENCHMARKS.md"] {
        let path = root.join(file);
        let mut text = std::fs::read_to_string(&path)?;
        for (name, part) in parts.iter().filter(|(_, part)| !part.is_empty()) {
            text = replaced(&text, name, part);
        }
        std::fs::write(path, text)?;
    }
    Ok(())
}

/// Unchanged if the markers are not there.
fn replaced(text: &str, name: &str, part: &str) -> String {
    let (open, close) = (format!("<!-- bench:{name} -->"), format!("<!-- /bench:{name} -->"));
    let (Some(begin), Some(end)) = (text.find(&open), text.find(&close)) else { return text.to_owned() };
    format!("{}{open}\n{part}\n{}", &text[..begin], &text[end..])
}

/// The comparison that README.md begins with: a row for each peer, ratios to ours.
fn short(results: &Results) -> Table {
    let line = case(10_000, 100_000);
    let header = [
        "x tollgate's time or CPU",
        "granted, 1 / 2 threads",
        "refused, 1 / 2 threads",
        "awaited, 1 / 2 tasks",
        "10,000 in line: CPU, rate kept",
        "fair to large costs",
        "who gives up costs nothing",
        "1,000 idle: wake-ups/s",
    ];
    let mut table = table::new(header.map(str::to_owned));
    for (name, hot, awaited, denied, peer) in [
        ("**tollgate**", "tollgate", "tollgate", "tollgate", Peer::Tollgate),
        (
            "tokio Semaphore + interval",
            "tokio Semaphore, no refill",
            "tokio Semaphore, no refill",
            "-",
            Peer::Semaphore,
        ),
        ("governor", "governor", "governor", "governor", Peer::Governor),
        ("leaky-bucket", "leaky-bucket", "leaky-bucket", "-", Peer::Leaky),
        ("rate-net", "rate-net", "rate-net", "rate-net", Peer::RateNet),
        ("better-bucket", "better-bucket", "-", "better-bucket", Peer::BetterBucket),
        ("async-speed-limit", "async-speed-limit", "async-speed-limit", "-", Peer::SpeedLimit),
        ("ratelimit (cannot wait)", "ratelimit", "-", "ratelimit", Peer::Tollgate),
    ] {
        let waits = !name.contains("cannot wait");
        let median =
            |case: &str, measure: &str| results.find(case, peer.name(), measure).filter(|_| waits).map(Series::median);
        let pair = |kind: &str, unit: &str, contender: &str| {
            let ratio = |n| ratio(results, &format!("{kind}, {n} {unit}"), contender);
            match (ratio(1), ratio(2)) {
                (Some(one), Some(two)) => format!("{one:.1} / {two:.1}"),
                _ => "-".to_owned(),
            }
        };
        let cpu = |peer: Peer| results.find(&line, peer.name(), "CPU per grant, us").map(Series::median);
        let in_line = match (cpu(peer), cpu(Peer::Tollgate), median(&line, "achieved / configured")) {
            (Some(theirs), Some(ours), Some(rate)) => format!("{:.1}, {:.0} %", theirs / ours, rate * 100.0),
            _ => "-".to_owned(),
        };
        let fair = median(FAIR, "share of the large / fair share").map(|share| format!("{:.0} %", share * 100.0));
        let leaving = median(CANCEL, "rest finished / ideal").map(|late| match late {
            late if late < 1.03 => "yes".to_owned(),
            late => format!("no: the rest take {late:.1} x as long"),
        });
        let idle = median(IDLE, "worker wake-ups/s").map(|wakes| format!("{wakes:.0}"));
        table.add_row([
            name.to_owned(),
            pair("hot", "threads", hot),
            pair("denied", "threads", denied),
            pair("awaited", "tasks", awaited),
            in_line,
            fair.unwrap_or_else(|| "-".to_owned()),
            leaving.unwrap_or_else(|| "-".to_owned()),
            idle.unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table
}

/// A contender's time over ours, in the same case.
fn ratio(results: &Results, case: &str, name: &str) -> Option<f64> {
    Some(results.find(case, name, "ns")?.median() / results.find(case, "tollgate", "ns")?.median())
}
