//! Deployments: nodes are replaced one after the other.

use crate::Failure;
use crate::law::Law;
use crate::process::Node;
use crate::server::Server;
use crate::stores::{Kind, node_command};
use crate::trial::{LAW, Launch, NODES, Ran, Trial};
use std::process::Command;

/// The time between two replacements, in milliseconds.
const PAUSE: u64 = 500;

/// Ends each node, after its successor has begun.
fn replace_all(
    trial: &mut Trial,
    law: Law,
    url: &str,
    end: impl Fn(&mut Node) -> Result<(), Failure>,
    successor: impl Fn() -> Result<Command, Failure>,
) -> Result<(), Failure> {
    for number in 0..NODES {
        trial.join(successor()?, &Trial::work(law), url)?;
        end(trial.node(number))?;
        trial.sleep(PAUSE);
    }
    trial.end();
    Ok(())
}

pub(crate) fn quota_changed(trial: &mut Trial) -> Result<Ran, Failure> {
    let Some(server) = Server::start() else { return Ok(Ran::No("redis-server is not installed")) };
    let doubled = Law { rate: 2 * LAW.rate, burst: 2 * LAW.burst };
    trial.start(Kind::Redis, &server.url())?;
    trial.begin();
    trial.change(doubled);
    let end = |node: &mut Node| {
        node.stop();
        Ok(())
    };
    replace_all(trial, doubled, &server.url(), end, || node_command(Kind::Redis, "fleet", 1))?;
    trial.finish()
}

pub(crate) fn upgraded(trial: &mut Trial) -> Result<Ran, Failure> {
    let Some(server) = Server::start() else { return Ok(Ran::No("redis-server is not installed")) };
    let Some(earlier) = trial.earlier.clone() else { return Ok(Ran::No("no --earlier version was given")) };
    let url = server.url();
    trial.start_as((0..NODES).map(|_| Launch::now(Command::new(&earlier), &url)).collect())?;
    trial.begin();
    // The earlier version cannot be told to stop.
    replace_all(trial, LAW, &url, Node::kill, || node_command(Kind::Redis, "fleet", 0))?;
    trial.finish()
}
