//! What each node does. The parent passes it to the process of the node as options.

use clap::{Args, value_parser};
use std::process::Command;

/// The quota, and how a node uses it.
#[derive(Clone, Debug, Args)]
pub(crate) struct Work {
    /// Processes that share the quota
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u64).range(1..=100))]
    pub(crate) nodes: u64,
    /// Tokens per second, for all processes together
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(1..))]
    pub(crate) rate: u64,
    /// Burst in tokens, for all processes together [default: a tenth of a second's worth]
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    pub(crate) burst: Option<u64>,
    /// Tasks of each process that claim at the same time [default: a fifth of a second's worth of the rate of each
    /// node]
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    pub(crate) tasks: Option<u64>,
    /// Seconds to run
    #[arg(long, default_value_t = 5.0, value_parser = parse_seconds)]
    pub(crate) seconds: f64,
    /// Run as the node whose store is at this address; used by the program itself
    #[arg(long, hide = true, value_name = "URL")]
    pub(crate) node: Option<String>,
}

impl Work {
    pub(crate) fn burst(&self) -> u64 {
        self.burst.unwrap_or((self.rate / 10).max(1))
    }

    pub(crate) fn tasks(&self) -> u64 {
        self.tasks.unwrap_or((self.rate / 5 / self.nodes).max(4))
    }

    /// Adds the options with which a program does this work on the store at `url`.
    pub(crate) fn tell(&self, command: &mut Command, url: &str) {
        for (name, number) in
            [("--nodes", self.nodes), ("--rate", self.rate), ("--burst", self.burst()), ("--tasks", self.tasks())]
        {
            command.args([name, &number.to_string()]);
        }
        command.args(["--seconds", &self.seconds.to_string(), "--node", url]);
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if (0.5..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("must be from 0.5 to 3600".into()) }
}
