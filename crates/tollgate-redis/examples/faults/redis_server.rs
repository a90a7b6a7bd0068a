//! Faults of a Redis server.

use crate::Failure;
use crate::server::Server;
use crate::stores::Kind;
use crate::trial::{Bound, Ran, Trial};

/// How long a fault lasts that Redis answers with errors, in milliseconds.
const LASTS: u64 = 1_500;

/// The user of the nodes, with the rights that docs/operations.md lists.
const USER: &str = "ACL SETUSER limits reset on >secret ~tollgate:* +eval +evalsha +ping +time +hget +hmget +hgetall +hset \
                    +hdel +pexpire +info";

/// Starts a Redis with these options and the nodes, and ends them after the fault.
pub(crate) fn with_redis(
    trial: &mut Trial,
    options: &[&str],
    fault: impl FnOnce(&mut Trial, &mut Server) -> Result<(), Failure>,
) -> Result<Ran, Failure> {
    let Some(mut server) = Server::start_with(options) else { return Ok(Ran::No("redis-server is not installed")) };
    trial.start(Kind::Redis, &server.url())?;
    fault(trial, &mut server)?;
    trial.finish()
}

/// The same, with nodes that log in.
fn with_user(
    trial: &mut Trial,
    fault: impl FnOnce(&mut Trial, &mut Server) -> Result<(), Failure>,
) -> Result<Ran, Failure> {
    let Some(mut server) = Server::start() else { return Ok(Ran::No("redis-server is not installed")) };
    say(&server, USER)?;
    trial.start(Kind::Redis, &format!("redis://limits:secret@127.0.0.1:{}/", server.port()))?;
    fault(trial, &mut server)?;
    trial.finish()
}

/// Sends a command, of which the reply does not matter.
fn say(server: &Server, words: &str) -> Result<(), Failure> {
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().unwrap_or_default());
    words.for_each(|word| _ = command.arg(word));
    Ok(command.exec(&mut server.client())?)
}

/// A fault that begins with one command, lasts for a while, and ends with others.
fn between(trial: &mut Trial, server: &Server, first: &str, last: &[&str]) -> Result<(), Failure> {
    trial.begin();
    say(server, first)?;
    trial.sleep(LASTS);
    last.iter().try_for_each(|words| say(server, words))?;
    trial.end();
    Ok(())
}

fn kill_for_a_second(trial: &mut Trial, server: &mut Server) {
    trial.begin();
    server.kill();
    trial.sleep(1_000);
    server.restart();
    trial.end();
}

pub(crate) fn killed(trial: &mut Trial) -> Result<Ran, Failure> {
    with_redis(trial, &[], |trial, server| {
        trial.allow(Bound::LostState);
        kill_for_a_second(trial, server);
        Ok(())
    })
}

/// The system has all writes of a process that is killed: only a machine that crashes loses the last second.
pub(crate) fn killed_with_aof(trial: &mut Trial) -> Result<Ran, Failure> {
    with_redis(trial, &["--appendonly", "yes", "--appendfsync", "everysec"], |trial, server| {
        kill_for_a_second(trial, server);
        Ok(())
    })
}

pub(crate) fn stopped(trial: &mut Trial) -> Result<Ran, Failure> {
    with_redis(trial, &[], |trial, server| {
        trial.begin();
        server.signal("-STOP");
        trial.sleep(2_500);
        server.signal("-CONT");
        trial.end();
        Ok(())
    })
}

pub(crate) fn stalled(trial: &mut Trial) -> Result<Ran, Failure> {
    with_redis(trial, &[], |trial, server| {
        trial.begin();
        say(server, "CLIENT PAUSE 500 ALL")?;
        trial.sleep(500);
        trial.end();
        Ok(())
    })
}

pub(crate) fn flushed(trial: &mut Trial) -> Result<Ran, Failure> {
    with_redis(trial, &[], |trial, server| {
        trial.allow(Bound::LostState);
        trial.begin();
        say(server, "FLUSHALL")
    })
}

pub(crate) fn evicted(trial: &mut Trial) -> Result<Ran, Failure> {
    with_redis(trial, &["--maxmemory-policy", "allkeys-random"], |trial, server| {
        trial.allow(Bound::LostState);
        trial.begin();
        // The next command evicts what there is.
        say(server, "CONFIG SET maxmemory 1")?;
        say(server, "EXISTS tollgate:{fleet}")?;
        say(server, "CONFIG SET maxmemory 0")?;
        trial.end();
        let evicted = server.say(&["INFO", "stats"]).lines().any(|line| line.starts_with("evicted_keys:0"));
        if evicted { Err("the key was not evicted".into()) } else { Ok(()) }
    })
}

pub(crate) fn script_flushed(trial: &mut Trial) -> Result<Ran, Failure> {
    with_redis(trial, &[], |trial, server| {
        trial.begin();
        for _ in 0..5 {
            say(server, "SCRIPT FLUSH")?;
            trial.sleep(200);
        }
        trial.end();
        Ok(())
    })
}

pub(crate) fn out_of_memory(trial: &mut Trial) -> Result<Ran, Failure> {
    with_redis(trial, &[], |trial, server| {
        between(trial, server, "CONFIG SET maxmemory 1", &["CONFIG SET maxmemory 0"])
    })
}

pub(crate) fn wrong_type(trial: &mut Trial) -> Result<Ran, Failure> {
    with_redis(trial, &[], |trial, server| {
        trial.allow(Bound::LostState);
        between(trial, server, "SET tollgate:{fleet} text", &["DEL tollgate:{fleet}"])
    })
}

pub(crate) fn right_revoked(trial: &mut Trial) -> Result<Ran, Failure> {
    with_user(trial, |trial, server| between(trial, server, "ACL SETUSER limits -hset", &["ACL SETUSER limits +hset"]))
}

pub(crate) fn password_rotated(trial: &mut Trial) -> Result<Ran, Failure> {
    with_user(trial, |trial, server| {
        trial.begin();
        say(server, "ACL SETUSER limits resetpass >other")?;
        // A connection keeps the user that it logged in as.
        say(server, "CLIENT KILL TYPE normal")?;
        trial.sleep(LASTS);
        say(server, "ACL SETUSER limits >secret")?;
        trial.end();
        Ok(())
    })
}

pub(crate) fn busy(trial: &mut Trial) -> Result<Ran, Failure> {
    with_redis(trial, &["--lua-time-limit", "100"], |trial, server| {
        let mut other = server.client();
        trial.begin();
        let script = std::thread::spawn(move || redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut other));
        trial.sleep(LASTS);
        say(server, "SCRIPT KILL")?;
        trial.end();
        // It ends with an error.
        _ = script.join();
        Ok(())
    })
}
