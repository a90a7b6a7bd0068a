//! Numbers as tables, for terminals and Markdown alike.

use crate::results::{Results, Series};
use comfy_table::{Table, presets::ASCII_MARKDOWN};

pub fn new(header: impl IntoIterator<Item = String>) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(header.into_iter().collect::<Vec<_>>());
    table
}

/// A case in nanoseconds has its floor first, and ratios to it; others have a column for each measure.
pub fn of_case(results: &Results, case: &str) -> Table {
    let (names, measures) = results.names_and_measures(case);
    if measures == ["ns"] {
        let floor = results.find(case, names[0], "ns").map_or(f64::NAN, Series::median);
        let mut table = new(["", "x floor", "ns, median", "ns, p10..p90"].map(str::to_owned));
        for series in names.iter().filter_map(|name| results.find(case, name, "ns")) {
            let spread = format!("{:.1}..{:.1}", series.quantile(0.1), series.quantile(0.9));
            let ratio = format!("{:.2}", series.median() / floor);
            table.add_row([series.name.clone(), ratio, format!("{:.1}", series.median()), spread]);
        }
        return table;
    }
    let mut table = new(std::iter::once(String::new()).chain(measures.iter().map(|m| m.to_string())));
    for name in names {
        let cells = measures.iter().map(|measure| results.find(case, name, measure).map_or_else(String::new, cell));
        table.add_row(std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>());
    }
    table
}

fn cell(series: &Series) -> String {
    let mut text = if series.rounds.is_empty() { String::new() } else { number(series.median()) };
    if series.rounds.len() > 1 && series.quantile(0.1) != series.quantile(0.9) {
        text += &format!(" ({}..{})", number(series.quantile(0.1)), number(series.quantile(0.9)));
    }
    match series.hung {
        0 => text,
        hung => format!("{text} hung {hung} x").trim_start().to_owned(),
    }
}

/// With fewer decimal places for larger numbers.
pub fn number(n: f64) -> String {
    match n.abs() {
        _ if n.fract() == 0.0 && n.abs() < 1e6 => format!("{n:.0}"),
        x if x < 2.0 => format!("{n:.3}"),
        x if x < 100.0 => format!("{n:.2}"),
        _ => format!("{n:.0}"),
    }
}
