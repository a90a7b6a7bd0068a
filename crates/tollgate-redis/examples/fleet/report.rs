//! What a node tells its parent, a line of text each.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// Instants are nanoseconds of the system's clock, by which Redis counts too, and all processes of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// It is connected.
    Ready,
    /// It begins to ask.
    Began {
        at: u64,
    },
    /// Tokens that were granted from `first` to `last`.
    Grants {
        first: u64,
        last: u64,
        tokens: u64,
    },
    Sample(Sample),
    /// It does not ask any more.
    Ended {
        at: u64,
    },
}

/// What a node's limiter, and its line, look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Callers who wait.
    pub(crate) waiting: u64,
    pub(crate) round_trips: u64,
    /// Tokens of the last lease.
    pub(crate) lease: u64,
    /// Tokens that may be kept unused.
    pub(crate) hold: u64,
    /// How late a grant of the line may be seen here: a timer, and the way of an answer. In nanoseconds.
    pub(crate) late: u64,
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => write!(f, "ready"),
            Self::Began { at } => write!(f, "began {at}"),
            Self::Grants { first, last, tokens } => write!(f, "grants {first} {last} {tokens}"),
            Self::Sample(Sample { waiting, round_trips, lease, hold, late }) => {
                write!(f, "sample {waiting} {round_trips} {lease} {hold} {late}")
            }
            Self::Ended { at } => write!(f, "ended {at}"),
        }
    }
}

impl FromStr for Report {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("a node said what is no report: `{text}`");
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        let numbers: Result<Vec<u64>, _> = rest.split_whitespace().map(str::parse).collect();
        match (verb, numbers.map_err(|_| unknown())?.as_slice()) {
            ("ready", []) => Ok(Self::Ready),
            ("began", &[at]) => Ok(Self::Began { at }),
            ("grants", &[first, last, tokens]) => Ok(Self::Grants { first, last, tokens }),
            ("sample", &[waiting, round_trips, lease, hold, late]) => {
                Ok(Self::Sample(Sample { waiting, round_trips, lease, hold, late }))
            }
            ("ended", &[at]) => Ok(Self::Ended { at }),
            _ => Err(unknown()),
        }
    }
}

#[test]
fn reports_survive_the_pipe() {
    let sample = Sample { waiting: 1, round_trips: 2, lease: 3, hold: 4, late: u64::MAX };
    let grants = Report::Grants { first: 1, last: 2, tokens: 3 };
    let (began, ended) = (Report::Began { at: 7 }, Report::Ended { at: 8 });
    for report in [Report::Ready, began, grants, Report::Sample(sample), ended] {
        assert_eq!(report.to_string().parse(), Ok(report));
    }
    for nonsense in ["", "grants 1 2", "grants 1 2 -3", "sample"] {
        assert!(nonsense.parse::<Report>().is_err(), "{nonsense}");
    }
}
