//! Measurements that run in a child process: their CPU time is measured separately, and a peer that hangs is killed and
//! recorded as such.

use crate::Failure;
use crate::peers::Peer;
use crate::rounds::print;
use serde::{Deserialize, Serialize};
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

/// Measures and numbers.
pub type Outcome = Vec<(&'static str, f64)>;

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

/// How the waiting cases are run.
pub struct Plan {
    pub rounds: usize,
    pub seconds: f64,
}

impl Plan {
    /// Runs a job of each peer in each round. Peers that burn a core take part in the first round only.
    pub fn run(&self, case: &str, job: impl Fn(Peer) -> Job) -> Result<(), Failure> {
        for round in 0..self.rounds {
            let takes_part = |peer: &Peer| round == 0 || matches!(peer, Peer::Tollgate | Peer::Semaphore);
            for peer in Peer::ALL.into_iter().filter(takes_part) {
                self.run_in_child(case, peer.name(), &job(peer))?;
            }
        }
        Ok(())
    }

    /// In the parent: runs `job` in a child process and prints the outcome.
    pub fn run_in_child(&self, case: &str, name: &str, job: &Job) -> Result<(), Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--child", &serde_json::to_string(job)?])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        // After this time it counts as hung.
        let (start, limit) = (Instant::now(), Duration::from_secs_f64(self.seconds * 2.0 + 15.0));
        while child.try_wait()?.is_none() && start.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(10));
        }
        if !child.try_wait()?.is_some_and(|status| status.success()) {
            child.kill()?;
            child.wait()?;
            print(case, name, "hung", 1.0);
            return Ok(());
        }
        let mut text = String::new();
        child.stdout.take().expect("piped").read_to_string(&mut text)?;
        text.lines().for_each(|line| println!("{case}\t{name}\t{line}"));
        Ok(())
    }
}
