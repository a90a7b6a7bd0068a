//! Runs each waiting case in a process of its own: its CPU time is measured separately, and a peer that hangs is killed
//! and recorded.

use crate::peers::Peer;
use crate::results::Results;
use crate::{Failure, cancel, fair, hogs, idle, waiting};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The job of a child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Job {
    Waiting { peer: Peer, tasks: usize, rate: u32, seconds: f64 },
    Order { peer: Peer },
    Fair { peer: Peer, seconds: f64 },
    Alone { peer: Peer, seconds: f64 },
    Cancel { peer: Peer },
    Idle { peer: Option<Peer>, seconds: f64 },
    Hogs { contender: hogs::Contender, hogs: hogs::Hogs, seconds: f64 },
}

/// Numbers by measure.
pub type Outcome = BTreeMap<String, Vec<f64>>;

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

/// In the parent: has a child do `job` and records the outcome.
pub fn have_done(results: &mut Results, case: &str, name: &str, job: &Job, limit: Duration) -> Result<(), Failure> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--child", &serde_json::to_string(job)?])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let start = Instant::now();
    while child.try_wait()?.is_none() && start.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(10));
    }
    let done = child.try_wait()?.is_some_and(|status| status.success());
    if !done {
        child.kill()?;
        child.wait()?;
        results.series(case, name, "came to an end").hung += 1;
        return Ok(());
    }
    let mut text = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut text)?;
    let outcome: Outcome = serde_json::from_str(&text)?;
    for (measure, numbers) in outcome {
        results.series(case, name, &measure).rounds.extend(numbers);
    }
    Ok(())
}
