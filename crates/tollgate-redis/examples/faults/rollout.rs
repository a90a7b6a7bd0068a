//! Deployments: nodes are replaced one after the other.

use crate::Failure;
use crate::law::Law;
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
    successor: impl Fn() -> Result<Command, Failure>,
    url: &str,
) -> Result<(), Failure> {
    for number in 0..NODES {
        trial.join(successor()?, &Trial::work(law), url)?;
        trial.node(number).stop();
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
    replace_all(trial, doubled, || node_command(Kind::Redis, "fleet", 1), &server.url())?;
    trial.finish()
}

pub(crate) fn upgraded(trial: &mut Trial) -> Result<Ran, Failure> {
    let Some(server) = Server::start() else { return Ok(Ran::No("redis-server is not installed")) };
    let Some(earlier) = trial.earlier.clone() else { return Ok(Ran::No("no --earlier version was given")) };
    let url = server.url();
    trial.start_as((0..NODES).map(|_| Launch::now(Command::new(&earlier), &url)).collect())?;
    trial.begin();
    replace_all(trial, LAW, || node_command(Kind::Redis, "fleet", 0), &url)?;
    trial.finish()
}
