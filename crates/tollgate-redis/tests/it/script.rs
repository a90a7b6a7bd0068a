//! The script and the store in memory agree to the integer: the same requests at the same instants of the server's
//! clock.

use super::server::Server;
use redis::{Cmd, Connection};
use tollgate::Quota;
use tollgate::distributed::{LeaseGrant, LeaseRequest, MemoryStore, QuotaTerms, StoreError};

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

fn quotas() -> Vec<Quota> {
    let day = std::time::Duration::from_secs(86_400);
    vec![
        Quota::per_second(10),
        Quota::per_second(10_000).burst(1),
        Quota::per_second(1_000_003).burst(77_777),
        Quota::new(3, std::time::Duration::from_nanos(7)).burst(1 << 40),
        Quota::new(99_991, day).burst(500),
        Quota::new(1, 10_000 * day).burst(3),
        Quota::per_minute(60).stepped(),
        Quota::new(5, std::time::Duration::from_millis(3)).burst(12).stepped(),
        Quota::new(1 << 40, std::time::Duration::from_millis(10)).burst(1 << 50),
    ]
}

/// A request that no correct node sends.
fn random_ask(random: &mut fastrand::Rng, number: u64, terms: QuotaTerms) -> LeaseRequest {
    let most = if random.bool() { 2 * terms.burst() } else { 5 }.min(1 << 45);
    let mut some = |odds: u32| if random.u32(..odds) == 0 { random.u64(..=most) } else { 0 };
    let mut ask = LeaseRequest::new(0, number, terms);
    (ask.want, ask.ahead, ask.banked, ask.allowance) = (some(2), some(2), some(4), some(2));
    (ask.minimum, ask.held, ask.back) = (some(6), some(3), some(4));
    ask.leave = random.u32(..12) == 0;
    ask.at_once = random.u32(..6) == 0;
    if random.u32(..20) == 0 {
        ask.ttl = random.u64(1..5_000_000);
    }
    ask
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

#[test]
fn the_script_answers_as_the_store_in_memory_does() {
    let Some(server) = Server::start() else { return };
    let mut connection = server.client();
    // As where `%d` has 32 bits.
    let scripts = [timed(), timed().replace("~= '4503599627370496'", "~= ''")];
    assert_ne!(scripts[0], scripts[1]);
    let (mut answers, mut refusals, mut repeats, mut changes, mut older) = (0, 0, 0, 0, 0);
    for seed in 0..100 {
        let script = &scripts[usize::from(seed % 10 == 9)];
        let mut random = fastrand::Rng::with_seed(seed);
        let quotas = quotas();
        let chosen = quotas[seed as usize % quotas.len()];
        let chosen = if seed % 4 == 3 { chosen.initial(chosen.capacity() / 3) } else { chosen };
        let terms = QuotaTerms::of(&chosen, 0).unwrap();
        let other = QuotaTerms::of(&Quota::per_second(11), 0).unwrap();
        // Of half of the histories, the quota changes: now and then a node comes with a newer one.
        let mut version = 0;
        let mut known = vec![terms];
        let store = MemoryStore::new();
        let key = format!("tollgate:{{history {seed}}}");
        let mut now = 1_700_000_000_000_000 + random.u64(..1 << 40);
        let (mut numbers, mut answered) = ([0_u64; 5], 0);
        let mut last: Vec<LeaseRequest> = Vec::new();
        for _ in 0..150 {
            now = match random.u32(..30) {
                0 => now - random.u64(..3_000_000),
                1 => now + random.u64(..20_000_000_000),
                2..6 => now,
                6..14 => now + random.u64(..3_000_000),
                _ => now + random.u64(..3_000),
            };
            let node = random.usize(..numbers.len());
            let ask = match last.iter().rev().find(|ask| ask.node == node as u128) {
                Some(ask) if random.u32(..6) == 0 => *ask,
                _ => {
                    numbers[node] += 1;
                    let number = if random.u32(..15) == 0 { numbers[node] / 2 } else { numbers[node] };
                    if seed % 2 == 1 && random.u32(..12) == 0 {
                        version += random.u32(1..3);
                        let changed = quotas[random.usize(..quotas.len())];
                        let larger = if random.bool() { changed } else { changed.burst(changed.capacity() + 7) };
                        let changed = QuotaTerms::of(&larger, 0).or(QuotaTerms::of(&changed, 0)).unwrap();
                        known.push(changed.with_version(version));
                        changes += 1;
                    }
                    let terms = if random.u32(..40) == 0 {
                        other.with_version(version)
                    } else {
                        known[known.len() - 1 - random.usize(..known.len().min(3))]
                    };
                    let mut ask = random_ask(&mut random, number, terms);
                    ask.node = node as u128;
                    ask
                }
            };
            expire(&mut connection, &key, answered, now);
            let (real, model) = (eval(&mut connection, script, &key, &ask, now), store.answer(&ask, now));
            match (&real, &model) {
                (Ok(real), Ok(model)) => {
                    assert_eq!(real, model, "seed {seed}, at {now}: {ask:?}");
                    answered = now;
                    answers += 1;
                    older += u32::from(real.terms.is_some());
                    repeats += u32::from(real.before == ask.number);
                }
                (Err(real), Err(model)) => {
                    let said = match model {
                        StoreError::QuotaConflict { stored, .. } => format!("\"TOLLGATEQUOTA\": {stored}"),
                        model => model.to_string().split("TOLLGATE ").nth(1).unwrap().to_owned(),
                    };
                    assert!(real.contains(&said), "seed {seed}: {real} is not {model}");
                    refusals += 1;
                }
                _ => panic!("seed {seed}, at {now}: {ask:?} gets {real:?} and {model:?}"),
            }
            last.push(ask);
        }
    }
    assert!(answers > 6_000 && refusals > 100 && repeats > 100, "{answers} answers, {refusals}, {repeats}");
    assert!(changes > 400 && older > 400, "{changes} changes, and {older} answers to nodes with older quotas");
}
