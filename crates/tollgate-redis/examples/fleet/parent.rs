//! Starts all processes, reads their reports, and prints the results.

use crate::guard::Guard;
use crate::judge::{Verdict, judge};
use crate::law::Law;
use crate::log::Log;
use crate::report::{Sample, now};
use crate::show::Show;
use crate::{Failure, Options, plot};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// The interval between two readings of the reports.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const SHOW_EVERY: Duration = Duration::from_millis(100);

/// A process that shares the quota. It ends when this is dropped, if it has not yet.
struct Node {
    child: Child,
    input: ChildStdin,
    log: Arc<Mutex<Log>>,
    reader: Option<JoinHandle<Result<(), Failure>>>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let guard = Guard::start()?;
    let mut nodes = Vec::new();
    for _ in 0..options.nodes {
        nodes.push(Node::start(options, guard.url())?);
    }
    let began = Instant::now();
    while !nodes.iter().all(|node| node.log().ready) {
        if nodes.iter_mut().any(Node::has_ended) || began.elapsed() > Duration::from_secs(120) {
            return Err("a node does not start".into());
        }
        sleep(LOOK_EVERY);
    }
    for node in &mut nodes {
        node.input.write_all(b"go\n")?;
    }
    let killed = watch(options, &mut nodes)?;
    for (number, node) in nodes.iter_mut().enumerate() {
        node.finish(killed.is_some_and(|(victim, _)| victim == number))?;
    }
    let logs: Vec<_> = nodes.iter().map(Node::log).collect();
    let law = Law { rate: options.rate, burst: options.burst() };
    let verdict = judge(&law, &logs, killed)?;
    plot::draw(&options.plot, &law, &logs, verdict.began, killed)?;
    report(options, &law, &verdict, &logs);
    Ok(if verdict.is_kept() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Shows the progress until all nodes have ended. Returns the killed node and the instant.
fn watch(options: &Options, nodes: &mut [Node]) -> Result<Option<(usize, u64)>, Failure> {
    let half = Duration::from_secs_f64(options.seconds / 2.0);
    let mut show = Show::new(nodes.len());
    let (began, mut killed) = (Instant::now(), None);
    while !nodes.iter_mut().all(Node::has_ended) {
        sleep(SHOW_EVERY);
        if options.kill && killed.is_none() && began.elapsed() >= half {
            let victim = nodes.len() - 1;
            let at = now();
            nodes[victim].child.kill()?;
            killed = Some((victim, at));
        }
        let logs: Vec<_> = nodes.iter().map(Node::log).collect();
        show.update(began.elapsed(), &logs, killed.map(|(victim, _)| victim));
    }
    Ok(killed)
}

impl Node {
    fn start(options: &Options, url: &str) -> Result<Node, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        for (name, number) in [
            ("--nodes", options.nodes),
            ("--rate", options.rate),
            ("--burst", options.burst()),
            ("--tasks", options.tasks()),
        ] {
            command.args([name, &number.to_string()]);
        }
        command.args(["--seconds", &options.seconds.to_string(), "--node", url]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let log = Arc::new(Mutex::new(Log::default()));
        let filled = log.clone();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let entry = line?.parse()?;
                filled.lock().expect("no thread panics with the lock").enter(entry);
            }
            Ok(())
        });
        Ok(Node { child, input, log, reader: Some(reader) })
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("no thread panics with the lock")
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Reads the rest of its output.
    fn finish(&mut self, was_killed: bool) -> Result<(), Failure> {
        let status = self.child.wait()?;
        let read = self.reader.take().map_or(Ok(()), |reader| reader.join().expect("readers never panic"));
        match (was_killed, status.success()) {
            // Its last line may be incomplete.
            (true, _) => Ok(()),
            (false, true) => read,
            (false, false) => Err("a node has failed".into()),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn report(options: &Options, law: &Law, verdict: &Verdict, logs: &[MutexGuard<'_, Log>]) {
    let ms = |nanos: u64| nanos as f64 / 1e6;
    let seconds = ms(verdict.elapsed) / 1e3;
    println!(
        "\n{} tokens in the {seconds:.2} s until the first node was done, {} + {}/s allowed; {} tasks on each of {} nodes",
        verdict.tokens,
        law.burst,
        law.rate,
        options.tasks(),
        options.nodes
    );
    for (number, log) in logs.iter().enumerate() {
        let Sample { round_trips, lease, hold, late, .. } = log.last;
        println!(
            "node {number}: {} tokens, {round_trips} round trips, last lease {lease}, may keep {hold}, at most {:.1} ms late",
            log.tokens(),
            ms(late)
        );
    }
    println!("excess: {} tokens above the law, at the instants of the schedule", verdict.excess);
    if let Some(kill) = &verdict.kill {
        println!(
            "kill:   {:.2} s after the start; the others have the whole rate from {:.0} ms after it on (at most {:.0} ms); {} \
             tokens were lost with it",
            ms(kill.at) / 1e3,
            ms(kill.promised),
            ms(kill.bound),
            kill.lost
        );
    }
    println!("picture: {}", options.plot.display());
    println!(
        "\nfleet: achieved={:.3} excess={} fairness={:.2} trips_per_1000={:.0}",
        verdict.achieved, verdict.excess, verdict.fairness, verdict.trips_per_1000
    );
}
