//! A node, as the parent sees it: a process that reports what it is granted.

use crate::Failure;
use crate::log::Log;
use crate::work::Work;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// This only ends a hang: a busy machine may take long to start a process.
const HANGS: Duration = Duration::from_secs(120);

/// A process that shares the quota. It ends when this is dropped, if it has not yet.
pub(crate) struct Node {
    child: Child,
    input: ChildStdin,
    log: Arc<Mutex<Log>>,
    reader: Option<JoinHandle<Result<(), Failure>>>,
    was_killed: bool,
}

impl Node {
    /// Starts `program` as a node whose store is at `url`. It claims from [`begin`](Self::begin) on. Its clock is ahead of
    /// that of this process by `ahead` nanoseconds.
    pub(crate) fn start(mut program: Command, work: &Work, url: &str, ahead: i64) -> Result<Node, Failure> {
        work.tell(&mut program, url);
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let log = Arc::new(Mutex::new(Log::default()));
        let filled = log.clone();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let entry = line?.parse()?;
                filled.lock().expect("no thread panics with the lock").enter(entry, ahead);
            }
            Ok(())
        });
        Ok(Node { child, input, log, reader: Some(reader), was_killed: false })
    }

    /// Waits until all these nodes are connected.
    pub(crate) fn all_ready(nodes: &mut [Node]) -> Result<(), Failure> {
        let began = Instant::now();
        while !nodes.iter().all(|node| node.log().ready) {
            if nodes.iter_mut().any(Node::has_ended) || began.elapsed() > HANGS {
                return Err("a node does not start".into());
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Makes the node begin to claim.
    pub(crate) fn begin(&mut self) -> Result<(), Failure> {
        Ok(self.input.write_all(b"go\n")?)
    }

    /// Ends the process by `kill -9`.
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        self.was_killed = true;
        Ok(self.child.kill()?)
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("no thread panics with the lock")
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the end of the process, and reads the rest of its reports.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        let status = self.child.wait()?;
        let read = self.reader.take().map_or(Ok(()), |reader| reader.join().expect("readers never panic"));
        match (self.was_killed, status.success()) {
            // Its last line may be incomplete.
            (true, _) => Ok(()),
            (false, true) => read,
            (false, false) => Err("a node has failed".into()),
        }
    }
}

/// What only the example `faults` does.
#[allow(dead_code, reason = "for `faults`")]
impl Node {
    /// Makes the node stop claiming, report and end.
    pub(crate) fn stop(&mut self) {
        // It may have ended.
        _ = self.input.write_all(b"stop\n");
    }

    pub(crate) fn was_killed(&self) -> bool {
        self.was_killed
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
