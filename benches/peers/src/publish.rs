//! Rewrites the tables and plots of docs/BENCHMARKS.md.

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

/// Each table is between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`.
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
        let tables =
            results.cases(prefix).into_iter().map(|case| format!("**{case}**\n\n{}", table::of_case(results, case)));
        parts.push((name, tables.collect::<Vec<_>>().join("\n\n")));
    }
    let path = root.join("docs/BENCHMARKS.md");
    let mut text = std::fs::read_to_string(&path)?;
    for (name, part) in parts.iter().filter(|(_, part)| !part.is_empty()) {
        text = replaced(&text, name, part);
    }
    std::fs::write(path, text)?;
    Ok(())
}

/// Unchanged if there are no such markers.
fn replaced(text: &str, name: &str, part: &str) -> String {
    let (open, close) = (format!("<!-- bench:{name} -->"), format!("<!-- /bench:{name} -->"));
    let (Some(begin), Some(end)) = (text.find(&open), text.find(&close)) else { return text.to_owned() };
    format!("{}{open}\n{part}\n{}", &text[..begin], &text[end..])
}

/// The summary: tollgate's own figures, and those of the other crates relative to them.
fn short(results: &Results) -> Table {
    let header = [
        "",
        "granted, 1 / 2 threads",
        "refused, 1 / 2 threads",
        "awaited, 1 / 2 tasks",
        "10,000 waiting: CPU, rate kept",
        "share of a large asker",
        "cancellation leaks tokens",
        "1,000 idle: wake-ups/s",
    ];
    let mut table = table::new(header.map(str::to_owned));
    let semaphore = "tokio Semaphore, no refill";
    for (name, hot, denied, awaited, peer) in [
        ("**tollgate**", "tollgate", "tollgate", "tollgate", Some(Peer::Tollgate)),
        ("tokio Semaphore + interval", semaphore, "", semaphore, Some(Peer::Semaphore)),
        ("governor", "governor", "governor", "governor", Some(Peer::Governor)),
        ("leaky-bucket", "leaky-bucket", "", "leaky-bucket", Some(Peer::Leaky)),
        ("rate-net", "rate-net", "rate-net", "rate-net", Some(Peer::RateNet)),
        ("better-bucket", "better-bucket", "better-bucket", "", Some(Peer::BetterBucket)),
        ("async-speed-limit", "async-speed-limit", "", "async-speed-limit", Some(Peer::SpeedLimit)),
        ("ratelimit", "ratelimit", "ratelimit", "", None),
    ] {
        let median = |case: &str, measure: &str| results.find(case, peer?.name(), measure).map(Series::median);
        let cells = [
            pair(results, ["hot, 1 threads", "hot, 2 threads"], hot),
            pair(results, ["denied, 1 threads", "denied, 2 threads"], denied),
            pair(results, ["awaited, 1 tasks", "awaited, 2 tasks"], awaited),
            peer.and_then(|peer| in_line(results, peer)),
            median(FAIR, "share of the large / fair share").map(|share| format!("{:.0} %", share * 100.0)),
            median(CANCEL, "rest finished / ideal").map(|took| match took {
                took if took < 1.03 => "no".to_owned(),
                took => format!("yes: the rest take {took:.1} x as long"),
            }),
            median(IDLE, "worker wake-ups/s").map(|wakes| format!("{wakes:.0}")),
        ];
        table.add_row(std::iter::once(name.to_owned()).chain(cells.map(Option::unwrap_or_default)).collect::<Vec<_>>());
    }
    table
}

fn pair(results: &Results, cases: [&str; 2], name: &str) -> Option<String> {
    let [one, two] = cases.map(|case| results.find(case, name, "ns").map(Series::median));
    if name == "tollgate" {
        return Some(format!("{:.0} / {:.0} ns", one?, two?));
    }
    let [our_one, our_two] = cases.map(|case| results.find(case, "tollgate", "ns").map(Series::median));
    Some(format!("{:.1} / {:.1} x", one? / our_one?, two? / our_two?))
}

fn in_line(results: &Results, peer: Peer) -> Option<String> {
    let line = case(10_000, 100_000);
    let cpu = |peer: Peer| results.find(&line, peer.name(), "CPU per grant, us").map(Series::median);
    let kept = results.find(&line, peer.name(), "achieved / configured")?.median() * 100.0;
    match peer {
        Peer::Tollgate => Some(format!("{:.1} us, {kept:.0} %", cpu(peer)?)),
        _ => Some(format!("{:.1} x, {kept:.0} %", cpu(peer)? / cpu(Peer::Tollgate)?)),
    }
}
