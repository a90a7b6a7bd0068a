//! Measurements that run in a child process: their CPU time is measured separately, and a peer that hangs is killed and
//! recorded as such.

use crate::Failure;
use crate::peers::Peer;
use crate::results::Results;
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
    Hogs { contender: Contender, hogs: Hogs, seconds: f64 },
}

/// Numbers by measure.
pub type Outcome = BTreeMap<String, Vec<f64>>;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Contender {
    Bucket,
    CappedBucket,
    Limiter,
    CappedLimiter,
    /// Shows that the test can fail.
    Burning,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Hogs {
    pub count: usize,
    pub tasks: bool,
}

/// In the parent: runs `job` in a child process and records the outcome.
pub fn run_in_child(results: &mut Results, case: &str, name: &str, job: &Job, limit: Duration) -> Result<(), Failure> {
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
