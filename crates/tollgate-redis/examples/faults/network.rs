//! Faults of the network between nodes and Redis.

use crate::Failure;
use crate::proxy::Proxy;
use crate::redis_server::with_redis;
use crate::server::Server;
use crate::stores::Kind;
use crate::trial::{Ran, Trial};
use std::sync::atomic::Ordering;

/// A delay of everything that passes a proxy. It ends when this is dropped.
pub(crate) struct Delay<'a>(&'a Proxy);

impl<'a> Delay<'a> {
    /// `round_trip` is in milliseconds, half of it for each direction.
    pub(crate) fn of(proxy: &'a Proxy, round_trip: u64) -> Self {
        proxy.latency.store(round_trip / 2, Ordering::Release);
        Self(proxy)
    }
}

impl Drop for Delay<'_> {
    fn drop(&mut self) {
        self.0.latency.store(0, Ordering::Release);
    }
}

pub(crate) fn dropped(trial: &mut Trial) -> Result<Ran, Failure> {
    with_redis(trial, &[], |trial, server| {
        trial.begin();
        for _ in 0..60 {
            // The connection of this command is one of them, and ends after the answer.
            redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec(&mut server.client())?;
            trial.sleep(50);
        }
        trial.end();
        Ok(())
    })
}

/// All nodes connect through one proxy.
fn through_proxy(
    trial: &mut Trial,
    fault: impl FnOnce(&mut Trial, &Proxy) -> Result<(), Failure>,
) -> Result<Ran, Failure> {
    let Some(server) = Server::start() else { return Ok(Ran::No("redis-server is not installed")) };
    let (proxy, url) = trial.runtime.block_on(Proxy::before(server.port()));
    trial.count_connections_of(&proxy);
    trial.start(Kind::Redis, &url)?;
    fault(trial, &proxy)?;
    trial.finish()
}

pub(crate) fn replies_lost(trial: &mut Trial) -> Result<Ran, Failure> {
    through_proxy(trial, lose_replies)
}

/// The next answer is lost, every 150 ms.
pub(crate) fn lose_replies(trial: &mut Trial, proxy: &Proxy) -> Result<(), Failure> {
    trial.begin();
    for _ in 0..20 {
        proxy.cuts.store(true, Ordering::Release);
        trial.sleep(150);
    }
    proxy.cuts.store(false, Ordering::Release);
    trial.end();
    match proxy.cut.load(Ordering::Acquire) {
        0 => Err("no answer was lost".into()),
        _ => Ok(()),
    }
}

pub(crate) fn delayed_50(trial: &mut Trial) -> Result<Ran, Failure> {
    through_proxy(trial, |trial, proxy| delay(trial, proxy, 50))
}

pub(crate) fn delayed_200(trial: &mut Trial) -> Result<Ran, Failure> {
    through_proxy(trial, |trial, proxy| delay(trial, proxy, 200))
}

pub(crate) fn delayed_600(trial: &mut Trial) -> Result<Ran, Failure> {
    through_proxy(trial, |trial, proxy| delay(trial, proxy, 600))
}

pub(crate) fn delay(trial: &mut Trial, proxy: &Proxy, round_trip: u64) -> Result<(), Failure> {
    trial.begin();
    let delay = Delay::of(proxy, round_trip);
    trial.sleep(3_000);
    drop(delay);
    trial.end();
    Ok(())
}
