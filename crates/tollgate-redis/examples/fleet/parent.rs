//! Starts all processes, reads their reports, and prints the results.

use crate::guard::Guard;
use crate::judge::{Verdict, judge};
use crate::law::Law;
use crate::log::Log;
use crate::process::Node;
use crate::report::{Sample, now};
use crate::show::Show;
use crate::{Failure, Options, plot};
use std::process::{Command, ExitCode};
use std::sync::MutexGuard;
use std::thread::sleep;
use std::time::{Duration, Instant};

const SHOW_EVERY: Duration = Duration::from_millis(100);

pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let (guard, work) = (Guard::start()?, &options.work);
    let mut nodes = Vec::new();
    for _ in 0..work.nodes {
        nodes.push(Node::start(Command::new(std::env::current_exe()?), work, guard.url(), 0)?);
    }
    Node::all_ready(&mut nodes)?;
    nodes.iter_mut().try_for_each(Node::begin)?;
    let killed = watch(options, &mut nodes)?;
    nodes.iter_mut().try_for_each(Node::finish)?;
    let logs: Vec<_> = nodes.iter().map(Node::log).collect();
    let law = Law { rate: work.rate, burst: work.burst() };
    let verdict = judge(&law, &logs, killed)?;
    plot::draw(&options.plot, &law, &logs, verdict.began, killed)?;
    report(options, &law, &verdict, &logs);
    Ok(if verdict.is_kept() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Shows the progress until all nodes have ended. Returns the killed node and the instant.
fn watch(options: &Options, nodes: &mut [Node]) -> Result<Option<(usize, u64)>, Failure> {
    let half = Duration::from_secs_f64(options.work.seconds / 2.0);
    let mut show = Show::new(nodes.len());
    let (began, mut killed) = (Instant::now(), None);
    while !nodes.iter_mut().all(Node::has_ended) {
        sleep(SHOW_EVERY);
        if options.kill && killed.is_none() && began.elapsed() >= half {
            let victim = nodes.len() - 1;
            let at = now();
            nodes[victim].kill()?;
            killed = Some((victim, at));
        }
        let logs: Vec<_> = nodes.iter().map(Node::log).collect();
        show.update(began.elapsed(), &logs, killed.map(|(victim, _)| victim));
    }
    Ok(killed)
}

fn report(options: &Options, law: &Law, verdict: &Verdict, logs: &[MutexGuard<'_, Log>]) {
    let ms = |nanos: u64| nanos as f64 / 1e6;
    let seconds = ms(verdict.elapsed) / 1e3;
    println!(
        "\n{} tokens in the {seconds:.2} s until the first node was done, {} + {}/s allowed; {} tasks on each of {} nodes",
        verdict.tokens,
        law.burst,
        law.rate,
        options.work.tasks(),
        options.work.nodes
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
