//! Faults of nodes.

use crate::Failure;
use crate::law::SECOND;
use crate::network::Delay;
use crate::proxy::Proxy;
use crate::redis_server::with_redis;
use crate::server::Server;
use crate::stores::{Kind, node_command};
use crate::trial::{Bound, Launch, NODES, Ran, Trial};
use std::path::Path;
use std::process::Command;

pub(crate) fn none(trial: &mut Trial) -> Result<Ran, Failure> {
    with_redis(trial, &[], |trial, _| {
        trial.begin();
        Ok(())
    })
}

pub(crate) fn killed(trial: &mut Trial) -> Result<Ran, Failure> {
    with_redis(trial, &[], |trial, _| {
        trial.begin();
        trial.node(NODES - 1).kill()
    })
}

/// The excess is bounded by a 64th of the node's allowance, which is less than a token.
pub(crate) fn stopped(trial: &mut Trial) -> Result<Ran, Failure> {
    with_redis(trial, &[], |trial, _| {
        let id = trial.node(NODES - 1).id();
        trial.allow(Bound::Tokens(1));
        trial.begin();
        signal("-STOP", &[id])?;
        trial.sleep(3_000);
        signal("-CONT", &[id])?;
        trial.end();
        Ok(())
    })
}

pub(crate) fn far(trial: &mut Trial) -> Result<Ran, Failure> {
    let Some(server) = Server::start() else { return Ok(Ran::No("redis-server is not installed")) };
    let (proxy, far) = trial.runtime.block_on(Proxy::before(server.port()));
    let near = server.url();
    let launch = |address| Ok(Launch::now(node_command(Kind::Redis, "fleet", 0)?, address));
    trial.start_as(
        [&near, &near, &near, &far].map(|address| launch(address)).into_iter().collect::<Result<_, Failure>>()?,
    )?;
    trial.begin();
    let delay = Delay::of(&proxy, 200);
    trial.sleep(3_000);
    drop(delay);
    trial.end();
    trial.finish()
}

/// Where Debian has the library that fakes clocks, without the architecture.
const FAKETIME: &str = "faketime/libfaketime.so.1";

/// One node's wall clock is an hour behind, one's an hour ahead.
pub(crate) fn clocks(trial: &mut Trial) -> Result<Ran, Failure> {
    let Some(server) = Server::start() else { return Ok(Ran::No("redis-server is not installed")) };
    let library = format!("/usr/lib/{}-linux-gnu/{FAKETIME}", std::env::consts::ARCH);
    if !Path::new(&library).exists() {
        return Ok(Ran::No("libfaketime is not installed"));
    }
    let mut launches = Vec::new();
    for hours in [0, -1, 1, 0] {
        let mut program = node_command(Kind::Redis, "fleet", 0)?;
        if hours != 0 {
            program.env("LD_PRELOAD", &library).env("FAKETIME", format!("{hours:+}h"));
            program.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        }
        launches.push(Launch { program, address: server.url(), ahead: hours * 3_600 * SECOND as i64 });
    }
    trial.start_as(launches)?;
    trial.begin();
    trial.sleep(2_000);
    trial.end();
    trial.finish()
}

/// Sends a signal to processes.
pub(crate) fn signal(name: &str, ids: &[u32]) -> Result<(), Failure> {
    let ids = ids.iter().map(u32::to_string);
    let is_sent = Command::new("kill").arg(name).args(ids).status()?.success();
    if is_sent { Ok(()) } else { Err(format!("no {name} was sent").into()) }
}
