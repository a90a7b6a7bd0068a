//! Masters that are killed, and replicas that take over.

use crate::Failure;
use crate::masters::Cluster;
use crate::server::{FOR_EVER, Server};
use crate::stores::{Kind, MASTER};
use crate::trial::{Bound, Ran, Trial};
use std::time::Instant;

const NOT_INSTALLED: Ran = Ran::No("redis-server is not installed");

/// The replica may lack the last writes.
fn kill(trial: &mut Trial, master: impl FnOnce()) -> Result<Ran, Failure> {
    trial.allow(Bound::LostState);
    trial.begin();
    master();
    trial.wait_for_grants()?;
    trial.finish()
}

pub(crate) fn sentinels(trial: &mut Trial) -> Result<Ran, Failure> {
    let (Some(mut master), Some(replica)) = (Server::start(), Server::start()) else { return Ok(NOT_INSTALLED) };
    replica.follow(&master);
    let Some(sentinel) = Server::start_sentinel(MASTER, &master) else { return Ok(NOT_INSTALLED) };
    let began = Instant::now();
    while !sentinel.say(&["INFO", "sentinel"]).contains("slaves=1,") {
        if began.elapsed() > FOR_EVER {
            return Err("the sentinel does not find the replica".into());
        }
        trial.sleep(50);
    }
    trial.start(Kind::Sentinels, &sentinel.url())?;
    sentinel.fail_over_soon(MASTER);
    kill(trial, || master.kill())
}

pub(crate) fn cluster(trial: &mut Trial) -> Result<Ran, Failure> {
    let Some(mut cluster) = Cluster::start() else { return Ok(NOT_INSTALLED) };
    let name = (0..).map(|number| format!("fleet {number}")).find(|name| cluster.is_on_first(name));
    let name = name.ok_or("no name belongs to the first master")?;
    let addresses: Vec<String> = cluster.masters.iter().map(Server::url).collect();
    trial.start_named(Kind::Cluster, &name, &addresses.join(","))?;
    kill(trial, || cluster.kill_first())
}
