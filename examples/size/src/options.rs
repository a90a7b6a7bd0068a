//! The command line.

use crate::Failure;
use crate::demo::{Demo, Shape};
use crate::goal::Goal;
use crate::instant::Unit;
use crate::per::Per;
use crate::read::Format;
use crate::replay::{Candidate, Setting};
use crate::share::Share;
use clap::{Parser, value_parser};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;
use tollgate::Quota;

/// Which rate and which burst does a trace of calls need?
///
/// Replays the trace against a tollgate limiter in simulated time. With --quota, compares these quotas. Without, finds
/// the smallest rate that meets the goal with a burst of at most --max-burst, and then the smallest burst at that rate.
///
/// Exit codes: 0; 1 if no quota meets the goal, or for a malformed line under --strict; 2 for options and traces that
/// cannot be used.
#[derive(Debug, Parser)]
#[command(name = "size")]
pub struct Options {
    /// The trace, or - for standard input
    #[arg(required_unless_present = "demo", conflicts_with = "demo")]
    pub trace: Option<PathBuf>,
    /// The format of the trace [default: what its first line looks like]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// The unit of instants that are numbers
    #[arg(long, value_enum, default_value = "s")]
    pub unit: Unit,
    /// The column of an access log that is the client, from 1; what is between quotes or brackets is one column [default:
    /// the only one with an address]
    #[arg(long)]
    pub key_column: Option<NonZeroUsize>,
    /// Do not spread the calls of an access log over their seconds: keep them at the whole second that the log gives
    #[arg(long)]
    pub no_spread: bool,
    /// Fail if a line is malformed, instead of leaving it out
    #[arg(long)]
    pub strict: bool,

    /// Generate a trace instead of reading one
    #[arg(long, value_enum)]
    pub demo: Option<Shape>,
    /// Calls of the generated trace
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(1..))]
    pub events: u64,
    /// Calls per second of the generated trace, on average
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u64).range(1..=1_000_000))]
    pub demo_rate: u64,
    /// Seed of the generated trace
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the trace to this file as CSV
    #[arg(long)]
    pub write: Option<PathBuf>,

    /// A quota to compare, such as "100/s, burst 20"; may be repeated
    #[arg(long, value_parser = quota)]
    pub quota: Vec<Candidate>,
    /// Give each key a quota of its own
    #[arg(long)]
    pub per_key: bool,
    /// The longest wait that a caller accepts, such as 1s: longer waits are refused on arrival [default: any wait]
    #[arg(long, value_parser = duration)]
    pub max_wait: Option<Duration>,

    /// Goal: at most 1 % of the granted calls wait for longer than this, such as 50ms
    #[arg(long, value_parser = duration)]
    pub wait_p99: Option<Duration>,
    /// Goal: at most this share of the calls is refused, such as 0.1% [default: 0%]
    #[arg(long)]
    pub refuse: Option<Share>,
    /// The largest burst of the search [default: the tokens of the busiest second]
    #[arg(long, value_parser = value_parser!(u64).range(1..=1 << 60))]
    pub max_burst: Option<u64>,
    /// The period of the rates of the search, which are whole numbers
    #[arg(long, value_enum, default_value = "s")]
    pub per: Per,
}

impl Options {
    pub fn setting(&self) -> Setting {
        Setting { per_key: self.per_key, max_wait: self.max_wait }
    }

    pub fn demo(&self) -> Option<Demo> {
        let shape = self.demo?;
        Some(Demo { shape, events: self.events, rate: self.demo_rate, seed: self.seed })
    }

    /// `None` without a goal: then there must be quotas to compare.
    pub fn goal(&self) -> Result<Option<Goal>, Failure> {
        if self.wait_p99.is_none() && self.refuse.is_none() {
            let to_do = "say what is good enough, such as --wait-p99 50ms, or name quotas to compare, such as \
                         --quota '100/s, burst 20'";
            return if self.quota.is_empty() { Err(to_do.into()) } else { Ok(None) };
        }
        if self.wait_p99.is_none() && self.max_wait.is_none() {
            let refuse = self.refuse.unwrap_or_default();
            return Err(format!(
                "--refuse {refuse} alone is met by every quota, because callers that wait for as long as it takes are \
                 never refused: add --max-wait 1s or --wait-p99 50ms"
            )
            .into());
        }
        Ok(Some(Goal { wait_p99: self.wait_p99, refuse: self.refuse.unwrap_or_default() }))
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).ok().filter(|duration| duration.as_nanos() < u128::from(u64::MAX));
    duration.ok_or_else(|| format!("`{text}` is no duration: write a number and a unit, such as 50ms, 1s or 2min"))
}

fn quota(text: &str) -> Result<Candidate, Failure> {
    Candidate::new(text.parse::<Quota>()?)
}
