//! Faults of PostgreSQL, and of the network in front of it.

use crate::Failure;
use crate::network::{delay, lose_replies};
use crate::nodes::signal;
use crate::postgres_server::Server;
use crate::proxy::Proxy;
use crate::stores::Kind;
use crate::trial::{Bound, Ran, Trial};
use std::fs::{read_dir, read_to_string};
use tollgate_postgres::pool;

/// Starts PostgreSQL, a proxy in front of it, and the nodes, and ends them after the fault.
fn with_postgres(
    trial: &mut Trial,
    fault: impl FnOnce(&mut Trial, &mut Server, &Proxy) -> Result<(), Failure>,
) -> Result<Ran, Failure> {
    let Some(mut server) = trial.runtime.block_on(Server::start()) else {
        return Ok(Ran::No("PostgreSQL is not installed"));
    };
    let (proxy, url) = trial.runtime.block_on(Proxy::before(server.port()));
    trial.count_connections_of(&proxy);
    let proxied = url.trim_start_matches("redis://");
    trial.start(Kind::Postgres, &format!("postgres://owner@{}/postgres", proxied.trim_end_matches('/')))?;
    fault(trial, &mut server, &proxy)?;
    trial.finish()
}

/// The processes that answer requests, and the one that starts them.
fn processes(server: &Server) -> Result<Vec<u32>, Failure> {
    let first = server.process();
    let mut all = vec![first];
    for entry in read_dir("/proc")?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // After the name, in parentheses: the state and the parent. The process may have ended.
        let Ok(stat) = read_to_string(format!("/proc/{id}/stat")) else { continue };
        let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        if parent == Some(first) {
            all.push(id);
        }
    }
    Ok(all)
}

pub(crate) fn killed(trial: &mut Trial) -> Result<Ran, Failure> {
    with_postgres(trial, |trial, server, _| {
        trial.begin();
        server.stop();
        trial.sleep(1_000);
        trial.runtime.block_on(server.restart());
        trial.end();
        Ok(())
    })
}

pub(crate) fn stopped(trial: &mut Trial) -> Result<Ran, Failure> {
    with_postgres(trial, |trial, server, _| {
        let all = processes(server)?;
        trial.begin();
        signal("-STOP", &all)?;
        trial.sleep(2_500);
        signal("-CONT", &all)?;
        trial.end();
        Ok(())
    })
}

pub(crate) fn truncated(trial: &mut Trial) -> Result<Ran, Failure> {
    with_postgres(trial, |trial, server, _| {
        trial.allow(Bound::LostState);
        trial.begin();
        trial.runtime.block_on(server.say("TRUNCATE tollgate"));
        Ok(())
    })
}

pub(crate) fn locked(trial: &mut Trial) -> Result<Ran, Failure> {
    with_postgres(trial, |trial, server, _| {
        let mut holder = trial.runtime.block_on(pool(&server.address())?.get())?;
        trial.begin();
        let lock = trial.runtime.block_on(async {
            let lock = holder.transaction().await?;
            lock.batch_execute("SELECT * FROM tollgate FOR UPDATE").await?;
            Ok::<_, Failure>(lock)
        })?;
        trial.sleep(1_500);
        trial.runtime.block_on(lock.rollback())?;
        trial.end();
        Ok(())
    })
}

pub(crate) fn dropped(trial: &mut Trial) -> Result<Ran, Failure> {
    with_postgres(trial, |trial, server, _| {
        trial.begin();
        for _ in 0..60 {
            let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()";
            trial.runtime.block_on(server.count(&format!("{end} AND query LIKE 'SELECT tollgate_ask_1%'")));
            trial.sleep(50);
        }
        trial.end();
        Ok(())
    })
}

pub(crate) fn replies_lost(trial: &mut Trial) -> Result<Ran, Failure> {
    with_postgres(trial, |trial, _, proxy| lose_replies(trial, proxy))
}

pub(crate) fn delayed_200(trial: &mut Trial) -> Result<Ran, Failure> {
    with_postgres(trial, |trial, _, proxy| delay(trial, proxy, 200))
}
