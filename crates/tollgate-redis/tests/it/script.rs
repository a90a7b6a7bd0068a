//! The script and the shared bucket agree to the integer: the same requests at the same instants of the server's clock.

use super::server::Server;
use redis::Connection;
use std::sync::Mutex;
use tollgate::distributed::{LeaseGrant, LeaseRequest, QuotaTerms, StoreError};
use tollgate_store_tests::check_at;

#[path = "../../src/ask.rs"]
mod ask;

/// The time, which is added to the arguments.
const TIME: &str = "local usec = table.remove(ARGV)
local time = {table.remove(ARGV), usec}
local redis_of_the_server = redis
local redis = setmetatable({
  call = function(name, ...)
    if name == 'TIME' then return time end
    local key, millis = ...
    local now = time[1] * 1000000 + time[2]
    if name == 'PEXPIRE' then
      return redis_of_the_server.call('HSET', key, 'x', string.format('%.0f', now + millis * 1000))
    end
    if name == 'PTTL' then return ((redis_of_the_server.call('HGET', key, 'x') or now) - now) / 1000 end
    return redis_of_the_server.call(name, ...)
  end,
}, { __index = redis_of_the_server })
";

/// Fails where a script touches a key that is not declared in `KEYS`: Dragonfly, and other servers that lock the keys of a
/// script before it runs, refuse such a script.
pub const DECLARED: &str = "local redis_of_the_server = redis
local redis = setmetatable({
  call = function(name, key, ...)
    local is_declared = name == 'TIME'
    for _, declared in ipairs(KEYS) do is_declared = is_declared or key == declared end
    if not is_declared then error(name .. ' touches the key ' .. tostring(key) .. ', which is not declared') end
    return redis_of_the_server.call(name, key, ...)
  end,
  pcall = function() error('the test does not see what `redis.pcall` touches') end,
}, { __index = redis_of_the_server })
";

/// The script, which gets the time as an argument instead of reading it, and records the expiry instead of setting it
/// in Redis. It fails where it touches a key that is not declared.
pub fn timed() -> String {
    DECLARED.to_owned() + TIME + ask::SCRIPT
}

/// Deletes the key when Redis would.
pub fn expire(connection: &mut Connection, key: &str, now: u64) {
    let ends: Option<u64> = redis::cmd("HGET").arg(key).arg("x").query(connection).unwrap();
    if ends.is_some_and(|ends| now > ends) {
        redis::cmd("DEL").arg(key).exec(connection).unwrap();
    }
}

pub fn eval(
    connection: &mut Connection,
    script: &str,
    key: &str,
    ask: &LeaseRequest,
    micros: u64,
) -> Result<LeaseGrant, String> {
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(1).arg(key);
    ask::add_arguments(&mut command, ask);
    command.arg(micros / 1_000_000).arg(micros % 1_000_000);
    let reply: Vec<u8> = command.query(connection).map_err(|error| error.to_string())?;
    Ok(ask::answer(&reply, ask.classes.len()).unwrap())
}

#[test]
fn a_key_that_is_not_declared_is_found() {
    let Some(server) = Server::start() else { return };
    for (script, is_declared) in [("redis.call('HLEN', KEYS[1])", true), ("redis.call('HLEN', 'other')", false)] {
        let ran =
            redis::cmd("EVAL").arg(format!("{DECLARED}return {script}")).arg(1).arg("key").exec(&mut server.client());
        assert_eq!(ran.is_ok(), is_declared, "{script}: {ran:?}");
    }
}

#[tokio::test]
async fn the_script_answers_as_the_shared_bucket_does() {
    let Some(server) = Server::start() else { return };
    let (connection, script) = (Mutex::new(server.client()), timed());
    let ask_at = async |name: &str, ask: LeaseRequest, micros: u64| {
        let mut connection = connection.lock().unwrap();
        expire(&mut connection, name, micros);
        eval(&mut connection, &script, name, &ask, micros).map_err(|text| match text.split_once("\": ") {
            Some((code, stored)) if code.ends_with("TOLLGATEQUOTA") => {
                StoreError::QuotaConflict { stored: Box::new(QuotaTerms::from_text(stored).unwrap()), asked: ask.terms }
            }
            Some((code, clock)) if code.ends_with("TOLLGATECLOCK") => {
                StoreError::OtherPeriod { clock: clock.parse().unwrap() }
            }
            _ => StoreError::Refused(text),
        })
    };
    check_at(ask_at, 0..110).await.unwrap();
}
