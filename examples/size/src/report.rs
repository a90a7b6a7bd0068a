//! What the program does: read, replay, search, print.

use crate::Failure;
use crate::goal::Goal;
use crate::options::Options;
use crate::outcome::Outcome;
use crate::read::{self, Collected, Format};
use crate::replay::Candidate;
use crate::search::{Search, TradeOff};
use crate::table;
use crate::trace::Trace;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write, stdin};
use std::path::Path;

/// The outcome of the program; [`Options`] lists the exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Done,
    GoalNotMet,
    Malformed,
}

/// Does what the options say. The result goes to `output`, remarks about the trace to `remarks`.
pub fn run(options: &Options, output: &mut dyn Write, remarks: &mut dyn Write) -> Result<Verdict, Failure> {
    let goal = options.goal()?;
    let Some(trace) = load(options, remarks)? else { return Ok(Verdict::Malformed) };
    if options.per_key && trace.keys.iter().all(|key| key.is_empty()) {
        return Err("--per-key needs a key for each call, and the trace has none: add a column or a field `key`".into());
    }
    if let Some(path) = &options.write {
        trace.write(BufWriter::new(create(path)?))?;
    }
    table::head(output, &trace, options, goal)?;
    match goal {
        Some(goal) if options.quota.is_empty() => find(options, &trace, goal, output),
        _ => compare(options, &trace, goal, output),
    }
}

/// Reads or generates the trace. `None` if a line is malformed under `--strict`.
fn load(options: &Options, remarks: &mut dyn Write) -> Result<Option<Trace>, Failure> {
    if let Some(demo) = options.demo() {
        return demo.trace().map(Some);
    }
    let path = options.trace.as_deref().unwrap_or(Path::new("-"));
    let read = |input: &mut dyn BufRead| read::read(input, options.format, options.unit, options.key_column);
    let (Collected { mut trace, malformed, doubt }, format) = if path == Path::new("-") {
        read(&mut stdin().lock())?
    } else {
        let file = File::open(path).map_err(|error| format!("cannot open the trace `{}`: {error}", path.display()))?;
        read(&mut BufReader::new(file))?
    };
    if let Some(doubt) = doubt.filter(|_| options.per_key) {
        return Err(format!("--per-key needs the client of each call: {doubt}").into());
    }
    if malformed.count > 0 {
        let rest = if options.strict { "fix them, or leave out --strict" } else { "they are left out" };
        writeln!(remarks, "{malformed}\n{rest}")?;
    }
    if format == Format::Log && !options.no_spread && trace.has_whole_seconds() {
        trace.spread_over_seconds();
        writeln!(
            remarks,
            "times of access logs are whole seconds: the calls of each second are spread evenly over it (see --no-spread)"
        )?;
    }
    if trace.disordered > 0 {
        writeln!(
            remarks,
            "{} times a call stands behind a later one: the calls are sorted by their instants",
            trace.disordered
        )?;
    }
    Ok(Some(trace).filter(|_| malformed.count == 0 || !options.strict))
}

/// Compares the quotas of the options.
fn compare(options: &Options, trace: &Trace, goal: Option<Goal>, output: &mut dyn Write) -> Result<Verdict, Failure> {
    let outcomes = options.quota.iter().map(|quota| Outcome::new(trace, *quota, options.setting(), goal));
    let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
    table::outcomes(output, &outcomes)?;
    if goal.is_none() {
        outcomes.iter().try_for_each(|outcome| table::last_line(output, outcome))?;
        return Ok(Verdict::Done);
    }
    let good = outcomes.iter().filter(|outcome| outcome.meets_goal == Some(true));
    let chosen = good.min_by(|one, other| one.candidate.compare(other.candidate));
    conclude(output, chosen)
}

/// Finds the smallest quota that meets the goal.
fn find(options: &Options, trace: &Trace, goal: Goal, output: &mut dyn Write) -> Result<Verdict, Failure> {
    let search = Search { events: &trace.events, setting: options.setting(), goal, per: options.per };
    let max_burst = options.max_burst.unwrap_or_else(|| trace.busiest_second(options.per_key).max(1));
    let Some(TradeOff { burst, rate: Some(rate) }) = search.choose(max_burst) else {
        table::no_quota_found(output, max_burst)?;
        return conclude(output, None);
    };
    let trade_offs = search.trade_offs(max_burst, rate);
    table::trade_offs(output, &search, &trade_offs)?;
    let candidate = Candidate::new(search.quota(rate, burst))?;
    let outcomes = [Outcome::new(trace, candidate, options.setting(), Some(goal))?];
    table::outcomes(output, &outcomes)?;
    table::choice(output, &search, TradeOff { burst, rate: Some(rate) }, max_burst)?;
    conclude(output, outcomes.first())
}

fn conclude(output: &mut dyn Write, chosen: Option<&Outcome>) -> Result<Verdict, Failure> {
    match chosen {
        Some(outcome) => table::last_line(output, outcome).map(|()| Verdict::Done),
        None => table::last_line_without_quota(output).map(|()| Verdict::GoalNotMet),
    }
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| format!("cannot write `{}`: {error}", path.display()).into())
}
