//! The script and the shared bucket agree to the integer: the same requests at the same instants of the server's clock.

use super::server::Server;
use redis::{Cmd, Connection};
use std::collections::HashMap;
use std::sync::Mutex;
use tollgate::Quota;
use tollgate::distributed::{LeaseGrant, LeaseRequest, MemoryStore, QuotaTerms, StoreError};
use tollgate_store_tests::check_at;

#[path = "../../src/claim.rs"]
mod claim;

/// The time, which is added to the arguments.
const TIME: &str = "local usec = table.remove(ARGV)
local time = {table.remove(ARGV), usec}
local redis_of_the_server = redis
local redis = setmetatable({
  call = function(name, ...)
    if name == 'TIME' then return time end
    if name == 'PEXPIRE' then
      local key, millis = ...
      return redis_of_the_server.call('HSET', key, 'x', millis)
    end
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
    DECLARED.to_owned() + TIME + claim::SCRIPT
}

/// Deletes the key when Redis would.
pub fn expire(connection: &mut Connection, key: &str, answered: u64, now: u64) {
    let millis: Option<u64> = redis::cmd("HGET").arg(key).arg("x").query(connection).unwrap();
    if millis.is_some_and(|millis| now > answered + millis * 1_000) {
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
    answer(connection, command, ask, micros)
}

fn answer(
    connection: &mut Connection,
    mut command: Cmd,
    ask: &LeaseRequest,
    micros: u64,
) -> Result<LeaseGrant, String> {
    claim::add_arguments(&mut command, ask);
    command.arg(micros / 1_000_000).arg(micros % 1_000_000);
    let answer = command.query(connection).map_err(|error| error.to_string())?;
    Ok(claim::read_answer(ask, answer).unwrap().unwrap())
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

/// Redis does not support such an expiry: the script would fail after its writes, and so would every later request.
#[test]
fn a_claim_that_takes_longer_than_redis_can_count_is_answered() {
    let Some(server) = Server::start() else { return };
    let (mut connection, store) = (server.client(), MemoryStore::new());
    let terms = QuotaTerms::of(&Quota::per_day(1).burst(10), 0).unwrap();
    let (mut now, key) = (1_700_000_000_000_000, "tollgate:{for ever}");
    for (node, want) in [(1, 1 << 48), (2, 1), (1, 0)] {
        let mut ask = LeaseRequest::new(node, 1 + u64::from(want == 0), terms);
        ask.want = want;
        let mut command = redis::cmd("EVAL");
        command.arg(timed().replace("'HSET', key, 'x', millis", "'PEXPIRE', key, millis")).arg(1).arg(key);
        let real = answer(&mut connection, command, &ask, now);
        assert_eq!(real, Ok(store.answer(&ask, now).unwrap()));
        now += 1_000;
    }
}

/// Beyond 2^53 Lua would round the owed tokens: both refuse to promise more than 2^52, at the same token.
#[test]
fn a_store_that_owes_more_than_lua_can_count_promises_no_more() {
    let Some(server) = Server::start() else { return };
    let (mut connection, store, script) = (server.client(), MemoryStore::new(), timed());
    let terms = QuotaTerms::of(&Quota::per_second(1).burst(10), 0).unwrap();
    let (mut now, key) = (1_700_000_000_000_000, "tollgate:{owes}");
    let mut numbers = [0; 20];
    let mut ask = |node: usize, want: u64, ahead: u64, seconds: u64| {
        now += 1_000_000 * seconds;
        numbers[node] += 1;
        let mut ask = LeaseRequest::new(node as u128, numbers[node], terms);
        (ask.want, ask.ahead) = (want, ahead);
        let (real, model) = (eval(&mut connection, &script, key, &ask, now), store.answer(&ask, now));
        match (real, model) {
            (Ok(real), Ok(model)) => {
                assert_eq!(real, model);
                Ok(model.queued_before)
            }
            (real, model) => {
                let (real, model) = (real.unwrap_err(), model.unwrap_err().to_string());
                let said = model.split("TOLLGATE ").nth(1).unwrap();
                assert!(real.contains(said), "{real} is not {model}");
                Err(said.to_owned())
            }
        }
    };
    for node in 0..16 {
        assert!(ask(node, 1 << 48, 0, 0).is_ok());
    }
    let owed = (1_u64 << 52) - 10;
    let refused = |owed: u64| Err(format!("the store owes {owed} tokens and promises no more: try later"));
    assert_eq!(ask(16, 1 << 48, 0, 0), refused(owed));
    assert_eq!(ask(16, 11, 0, 0), refused(owed));
    assert_eq!(ask(16, u64::MAX, 0, 0), refused(owed));
    assert_eq!(ask(16, 10, 0, 0), Ok(owed));
    assert_eq!(ask(17, 1, 0, 0), refused(owed + 10));
    // A request for no tokens is answered. A second later one more token can be promised, and is counted exactly.
    assert_eq!(ask(17, 0, 0, 0), Ok(owed + 10));
    assert_eq!(ask(17, 2, 0, 1), refused(owed + 9));
    assert_eq!(ask(17, 1, 0, 0), Ok(owed + 9));
    // All nodes but the last were forgotten, but their promised tokens were not.
    assert_eq!(ask(18, 7, 0, 7), Ok(owed + 3));
    assert_eq!(ask(18, 0, 1, 0), Ok(owed + 10));
}

/// Nodes of an earlier release and of this one share a store while a release is deployed: if a field had another form
/// than in the commits before this test, one of them would take it for damaged. New numbers need a new field of one letter.
#[test]
fn no_field_changes_its_form_between_releases() {
    let Some(server) = Server::start() else { return };
    let terms = QuotaTerms::of(&Quota::per_second(10).burst(20), 0).unwrap();
    let mut ask = LeaseRequest::new(7, 1, terms);
    (ask.want, ask.ahead, ask.allowance) = (25, 3, 3);
    let key = "tollgate:{form}";
    eval(&mut server.client(), &timed(), key, &ask, 1_700_000_000_000_000).unwrap();
    let known = server.knows(key);
    let numbers: Vec<(&str, usize)> = known
        .iter()
        .map(|field| field.split_once('=').unwrap())
        .map(|(name, text)| (name, text.split(' ').count()))
        .collect();
    let node = "00000000000000000000000000000007";
    assert_eq!(numbers, [(node, 9), ("h", 2), ("q", 5), ("s", 8), ("u", 1), ("x", 1)]);
}

/// Earlier releases do not write until when the last node is remembered.
#[test]
fn a_store_that_an_earlier_release_has_written_is_kept_for_as_long_as_its_nodes() {
    let Some(server) = Server::start() else { return };
    let (mut connection, key) = (server.client(), "tollgate:{earlier}");
    let terms = QuotaTerms::of(&Quota::per_second(10).burst(20), 0).unwrap();
    let mut now = 1_700_000_000_000_000;
    for (node, ttl, number) in [(1, 10_000_000, 1), (2, 100_000, 1), (2, 100_000, 2)] {
        let mut ask = LeaseRequest::new(node, number, terms);
        (ask.ttl, ask.ahead, ask.allowance) = (ttl, 3, 3);
        redis::cmd("HDEL").arg(key).arg("u").exec(&mut connection).unwrap();
        eval(&mut connection, &timed(), key, &ask, now).unwrap();
        now += 500;
    }
    let kept: u64 = redis::cmd("HGET").arg(key).arg("x").query(&mut connection).unwrap();
    assert!(kept >= 9_999, "{kept} ms");
}

#[tokio::test]
async fn the_script_answers_as_the_shared_bucket_does() {
    let Some(server) = Server::start() else { return };
    // As where `%d` has 32 bits.
    let narrow = timed().replace("~= '4503599627370496'", "~= ''");
    assert_ne!(narrow, timed());
    for (script, seeds) in [(timed(), 0..100), (narrow, 100..110)] {
        let connection = Mutex::new(server.client());
        // When each key was last written.
        let written = Mutex::new(HashMap::<String, u64>::new());
        let ask_at = async |name: &str, ask: LeaseRequest, micros: u64| {
            let (mut connection, mut written) = (connection.lock().unwrap(), written.lock().unwrap());
            expire(&mut connection, name, written.get(name).copied().unwrap_or(0), micros);
            let answer = eval(&mut connection, &script, name, &ask, micros);
            // These refusals alone leave the key as it was.
            if answer.as_ref().is_ok() || answer.as_ref().is_err_and(|text| text.contains("owes")) {
                written.insert(name.to_owned(), micros);
            }
            answer.map_err(|text| match text.split_once("TOLLGATEQUOTA\": ") {
                Some((_, stored)) => {
                    StoreError::QuotaConflict { stored: QuotaTerms::from_text(stored).unwrap(), asked: ask.terms }
                }
                None => StoreError::Refused(text),
            })
        };
        check_at(ask_at, seeds).await.unwrap();
    }
}
