//! The reports of a node to its parent, one line of text each.

use crate::Failure;
use std::fmt;
use std::io::{Write, stdout};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// Instants are in nanoseconds of the system's clock, which Redis and all processes of a machine share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The node is connected.
    Ready,
    /// The node begins to claim.
    Began {
        at: u64,
    },
    /// Tokens whose instants by the store's schedule lie between `first` and `last`.
    Grants {
        first: u64,
        last: u64,
        tokens: u64,
    },
    Leased(Lease),
    Sample(Sample),
    /// The node has stopped claiming.
    Ended {
        at: u64,
    },
}

/// The state of a node's limiter and of its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The number of waiters.
    pub(crate) waiting: u64,
    pub(crate) round_trips: u64,
    /// The tokens of the last lease.
    pub(crate) lease: u64,
    /// The tokens that may be kept unused.
    pub(crate) hold: u64,
    /// The longest time between the instant of a grant and its delivery, in nanoseconds.
    pub(crate) late: u64,
    /// The number of connections made so far. Earlier versions of this program do not report it.
    pub(crate) connections: u64,
}

/// An answer of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) tokens: u64,
    /// When the last of the tokens comes.
    pub(crate) until: u64,
    /// The round trip in nanoseconds.
    pub(crate) took: u64,
    /// How many nodes had waiters recently.
    pub(crate) busy: u64,
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Sends a report to the parent.
pub(crate) fn say(report: Report) -> Result<(), Failure> {
    writeln!(stdout(), "{report}").map_err(|error| format!("the parent does not read the reports: {error}").into())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => write!(f, "ready"),
            Self::Began { at } => write!(f, "began {at}"),
            Self::Grants { first, last, tokens } => write!(f, "grants {first} {last} {tokens}"),
            Self::Sample(Sample { waiting, round_trips, lease, hold, late, connections }) => {
                write!(f, "sample {waiting} {round_trips} {lease} {hold} {late} {connections}")
            }
            Self::Leased(Lease { tokens, until, took, busy }) => write!(f, "leased {tokens} {until} {took} {busy}"),
            Self::Ended { at } => write!(f, "ended {at}"),
        }
    }
}

impl FromStr for Report {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("not a report of a node: `{text}`");
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        let numbers: Result<Vec<u64>, _> = rest.split_whitespace().map(str::parse).collect();
        match (verb, numbers.map_err(|_| unknown())?.as_slice()) {
            ("ready", []) => Ok(Self::Ready),
            ("began", &[at]) => Ok(Self::Began { at }),
            ("grants", &[first, last, tokens]) => Ok(Self::Grants { first, last, tokens }),
            ("sample", &[waiting, round_trips, lease, hold, late, ref more @ ..]) => {
                let connections = more.first().copied().unwrap_or(0);
                Ok(Self::Sample(Sample { waiting, round_trips, lease, hold, late, connections }))
            }
            ("leased", &[tokens, until, took, busy]) => Ok(Self::Leased(Lease { tokens, until, took, busy })),
            ("ended", &[at]) => Ok(Self::Ended { at }),
            _ => Err(unknown()),
        }
    }
}

#[test]
fn reports_survive_the_pipe() {
    let sample = Sample { waiting: 1, round_trips: 2, lease: 3, hold: 4, late: u64::MAX, connections: 6 };
    let grants = Report::Grants { first: 1, last: 2, tokens: 3 };
    let (began, ended) = (Report::Began { at: 7 }, Report::Ended { at: 8 });
    let leased = Report::Leased(Lease { tokens: 1, until: 2, took: 3, busy: 4 });
    for report in [Report::Ready, began, grants, leased, Report::Sample(sample), ended] {
        assert_eq!(report.to_string().parse(), Ok(report));
    }
    for nonsense in ["", "grants 1 2", "grants 1 2 -3", "sample"] {
        assert!(nonsense.parse::<Report>().is_err(), "{nonsense}");
    }
}
