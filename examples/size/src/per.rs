//! The period of a rate.

use clap::ValueEnum;
use std::fmt;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Per {
    S,
    Min,
    H,
    D,
}

impl Per {
    pub fn period(self) -> Duration {
        Duration::from_secs(match self {
            Self::S => 1,
            Self::Min => 60,
            Self::H => 3_600,
            Self::D => 86_400,
        })
    }
}

impl fmt::Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::S => "s",
            Self::Min => "min",
            Self::H => "h",
            Self::D => "d",
        })
    }
}
