//! The child process: does one job.

use crate::job::Job;
use crate::{Failure, cancel, fair, hogs, idle, waiting};

/// In the child: prints the outcome as JSON, and exits at once without waiting for the tasks that still wait.
pub fn work(job: &str) -> Result<(), Failure> {
    let outcome = match serde_json::from_str(job)? {
        Job::Waiting { peer, tasks, rate, seconds } => waiting::measure(peer, tasks, rate, seconds),
        Job::Order { peer } => waiting::order(peer),
        Job::Fair { peer, seconds } => fair::measure(peer, seconds),
        Job::Alone { peer, seconds } => fair::alone(peer, seconds),
        Job::Cancel { peer } => cancel::measure(peer),
        Job::Idle { peer, seconds } => idle::measure(peer, seconds),
        Job::Hogs { contender, hogs, seconds } => hogs::measure(contender, hogs, seconds),
    };
    println!("{}", serde_json::to_string(&outcome)?);
    std::process::exit(0)
}
