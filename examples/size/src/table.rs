//! Prints the results as text.

use crate::Failure;
use crate::goal::Goal;
use crate::options::Options;
use crate::outcome::Outcome;
use crate::search::{Search, TradeOff};
use crate::trace::Trace;
use humantime::format_duration;
use std::io::Write;
use std::time::Duration;
use tollgate::Quota;

/// Prints the trace, the limit and the goal.
pub fn head(output: &mut dyn Write, trace: &Trace, options: &Options, goal: Option<Goal>) -> Result<(), Failure> {
    let (tokens, seconds) = (trace.tokens(), trace.span().as_secs_f64());
    let (calls, keys) = (trace.events.len(), trace.keys.len());
    let noun = if keys == 1 { "key" } else { "keys" };
    write!(output, "trace: {calls} calls, {keys} {noun}, {tokens} tokens in {seconds:.3} s")?;
    if seconds > 0.0 {
        write!(output, ": {:.3}/s on average", tokens as f64 / seconds)?;
    }
    let of_a_key = if options.per_key { " of a key" } else { "" };
    let busiest = trace.busiest_second(options.per_key);
    writeln!(output, ", {busiest} in the busiest second{of_a_key}")?;
    let longest_wait = options.max_wait.map(|most| format!("for {} at most", format_duration(most)));
    let longest_wait = longest_wait.unwrap_or_else(|| "for as long as it takes".into());
    let scope = if options.per_key { "a quota per key" } else { "one quota for all calls" };
    writeln!(output, "limit: {scope}, callers wait {longest_wait}")?;
    if let Some(goal) = goal {
        writeln!(output, "goal:  {goal}")?;
    }
    Ok(())
}

/// Prints a line for each quota.
pub fn outcomes(output: &mut dyn Write, outcomes: &[Outcome]) -> Result<(), Failure> {
    let heads = ["quota", "granted", "refused", "refused %", "p50 ms", "p99 ms", "max ms", "queue", "goal"];
    let columns =
        if outcomes.iter().any(|outcome| outcome.meets_goal.is_some()) { heads.len() } else { heads.len() - 1 };
    let rows = outcomes.iter().map(|outcome| row(outcome).to_vec());
    print(output, &heads[..columns], rows)
}

fn row(outcome: &Outcome) -> [String; 9] {
    let summary = outcome.summary;
    let share = summary.refused as f64 * 100.0 / (summary.granted + summary.refused) as f64;
    [
        outcome.candidate.quota().to_string(),
        summary.granted.to_string(),
        summary.refused.to_string(),
        format!("{share:.3}"),
        millis(summary.p50),
        millis(summary.p99),
        millis(summary.max),
        summary.queue.to_string(),
        if outcome.meets_goal == Some(true) { "met".into() } else { "missed".into() },
    ]
}

/// Prints the smallest rate for each of several bursts.
pub fn trade_offs(output: &mut dyn Write, search: &Search<'_>, rows: &[TradeOff]) -> Result<(), Failure> {
    let rate = |row: &TradeOff| row.rate.map_or("none".into(), |rate| rate_of(search.quota(rate, row.burst)));
    print(output, &["burst", "smallest rate"], rows.iter().map(|row| vec![row.burst.to_string(), rate(row)]))
}

/// Prints which of the pairs that meet the goal is chosen, and why.
pub fn choice(output: &mut dyn Write, search: &Search<'_>, chosen: TradeOff, max_burst: u64) -> Result<(), Failure> {
    let (rate, burst) = (chosen.rate.unwrap_or_default(), chosen.burst);
    let quota = search.quota(rate, burst);
    writeln!(
        output,
        "\n\"{quota}\" is chosen: {} is the smallest rate that meets the goal with a burst of {max_burst} (--max-burst), \
         and {burst} the smallest burst that does at this rate",
        rate_of(quota)
    )?;
    if rate < 20 {
        writeln!(output, "rates are whole numbers: for a finer one, say --per min, h or d")?;
    }
    Ok(())
}

/// Prints that no rate meets the goal, and what to change.
pub fn no_quota_found(output: &mut dyn Write, max_burst: u64) -> Result<(), Failure> {
    let advice = "raise --max-burst, --wait-p99, --refuse or --max-wait";
    Ok(writeln!(output, "\nno rate up to 1000000000/s meets the goal with a burst of at most {max_burst}: {advice}")?)
}

/// Prints the machine-readable last line.
pub fn last_line(output: &mut dyn Write, outcome: &Outcome) -> Result<(), Failure> {
    let (quota, summary) = (outcome.candidate.quota(), outcome.summary);
    let (rate, burst, p99) = (rate_of(quota), quota.capacity(), millis(summary.p99));
    Ok(writeln!(output, "size: rate={rate} burst={burst} wait_p99_ms={p99} refused={}", summary.refused)?)
}

/// Prints the machine-readable last line if no quota meets the goal.
pub fn last_line_without_quota(output: &mut dyn Write) -> Result<(), Failure> {
    Ok(writeln!(output, "size: rate=none burst=none wait_p99_ms=none refused=none")?)
}

fn rate_of(quota: Quota) -> String {
    Quota::new(quota.amount(), quota.period()).to_string()
}

fn millis(wait: Duration) -> String {
    // In integers, so that the digits are the same on every machine.
    let micros = wait.as_nanos().div_ceil(1_000);
    format!("{}.{:03}", micros / 1_000, micros % 1_000)
}

/// Prints columns: the first to the left, the others to the right.
fn print(output: &mut dyn Write, heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Result<(), Failure> {
    let heads = heads.iter().map(|head| head.to_string()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(heads).chain(rows).collect();
    let widths: Vec<_> =
        (0..lines[0].len()).map(|column| lines.iter().map(|line| line[column].len()).max().unwrap_or(0)).collect();
    writeln!(output)?;
    for line in &lines {
        write!(output, "{:<width$}", line[0], width = widths[0])?;
        for (text, width) in line.iter().zip(&widths).skip(1) {
            write!(output, "  {text:>width$}")?;
        }
        writeln!(output)?;
    }
    Ok(())
}
