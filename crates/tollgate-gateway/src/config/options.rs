//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use tollgate::Quota;

use super::file::Address;
use crate::upstream::target::Target;

/// Put limits before an HTTP API, and watch them at work
#[derive(Parser)]
#[command(name = "tollgate-gateway", version, args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// The file with the limits
    #[arg(long, value_name = "FILE", default_value = "gateway.toml")]
    pub(crate) config: PathBuf,
    /// Run without a file, before this upstream, like "http://127.0.0.1:3000"
    #[arg(long, value_name = "URL", requires = "limit", conflicts_with = "config")]
    pub(crate) upstream: Option<Target>,
    /// The limit of each address, like "20/s, burst 20"
    #[arg(long, value_name = "RATE", requires = "upstream")]
    pub(crate) limit: Option<Quota>,
    /// Run with an upstream and traffic of its own, and with limits made for them
    #[arg(long, conflicts_with_all = ["config", "upstream"])]
    pub(crate) demo: bool,
    /// End after this many seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) seconds: Option<u64>,
    /// The address for clients, instead of the one in the file
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<Address>,
    /// The address of the page, instead of the one in the file
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<Address>,
    /// Do all but the limits, to measure their cost
    #[arg(long)]
    pub(crate) without_limits: bool,
    /// Run only an upstream that responds at once, for measurements
    #[arg(long, value_name = "ADDRESS", exclusive = true)]
    pub(crate) echo: Option<SocketAddr>,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Write a file with all settings, and comments
    Init {
        /// The file, which must not exist yet
        #[arg(default_value = "gateway.toml")]
        file: PathBuf,
    },
    /// Check whether a file is valid
    Check {
        /// The file with the limits
        #[arg(default_value = "gateway.toml")]
        file: PathBuf,
    },
}

impl Options {
    /// The file that says the same as `--upstream` and `--limit`. All requests together have no limit that matters.
    pub(crate) fn of_command_line(&self) -> Option<String> {
        let (upstream, limit) = (self.upstream.as_ref()?, self.limit?);
        Some(format!(
            "listen = \"127.0.0.1:8080\"\nadmin = \"127.0.0.1:9090\"\nupstream = \"{upstream}\"\n\
             quota = \"1000000000/s\"\nmax_wait = \"2s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"{limit}\"\n"
        ))
    }
}
