//! Single claims, of callers that the store does not remember: the script ends early for them, while it has the short record of
//! a bucket without nodes.

use super::script::{eval, expire, timed};
use super::server::Server;
use redis::Connection;
use tollgate::Quota;
use tollgate::distributed::{LeaseRequest, MemoryStore, QuotaTerms, StoreError};

const BEGIN: u64 = 1_700_000_000_000_000;

fn single(node: u128, terms: QuotaTerms, want: u64) -> LeaseRequest {
    let mut ask = LeaseRequest::new(node, 1, terms);
    (ask.want, ask.at_once, ask.leave) = (want, true, true);
    ask
}

/// Whether the bucket is recorded in the short form: no node is known.
fn is_short(connection: &mut Connection, key: &str) -> bool {
    redis::cmd("HSTRLEN").arg(key).arg("s").query::<usize>(connection).unwrap() == 32
}

fn terms(quota: Quota) -> QuotaTerms {
    QuotaTerms::of(&quota).unwrap()
}

fn quotas() -> Vec<Quota> {
    let day = std::time::Duration::from_secs(86_400);
    vec![
        Quota::per_second(200).burst(20),
        Quota::per_second(3).burst(7),
        Quota::per_second(1_000_003).burst(77_777),
        Quota::per_second(1_000_003).burst(9),
        Quota::new(3, std::time::Duration::from_nanos(7_000)).burst(1 << 40),
        Quota::new(99_991, day).burst(500),
        Quota::new(1, 10_000 * day).burst(3),
        Quota::per_second(10).burst(50).initial(40),
        Quota::per_minute(60).stepped(),
        Quota::per_second(1 << 20).burst(1 << 47),
    ]
}

/// Claims of unknown callers, between requests of nodes, changes of the quota, and steps of the clock.
#[test]
fn single_claims_are_answered_as_by_the_store_in_memory() {
    let Some(server) = Server::start() else { return };
    let (mut connection, script) = (server.client(), timed());
    // How often the record was short before the request and after it, only before it, and only after it.
    let (mut stays, mut ends, mut begins, mut refused) = (0, 0, 0, 0);
    for seed in 0..90 {
        let mut random = fastrand::Rng::with_seed(seed);
        let quotas = quotas();
        let mut known = vec![terms(quotas[seed as usize % quotas.len()])];
        let (store, key) = (MemoryStore::new(), format!("tollgate:{{single {seed}}}"));
        let (mut now, mut numbers) = (BEGIN + random.u64(..1 << 40), [0_u64; 3]);
        for step in 0..150_u128 {
            let most = known[0].burst();
            now = match random.u32(..40) {
                0 => now - random.u64(..3_000_000),
                1 => now + (random.u64(..40_000_000_000) >> random.u32(..16)),
                2..15 => now,
                15..25 => now + random.u64(..3_000_000),
                // A small bucket is full at one of these instants.
                25..30 => now + random.u64(..12),
                _ => now + random.u64(..30_000),
            };
            if random.u32(..60) == 0 {
                let changed = terms(quotas[random.usize(..quotas.len())]);
                known.push(changed.with_version(known.len() as u32));
            }
            let terms = known[known.len() - 1 - random.usize(..known.len().min(2))];
            let ask = if random.u32(..30) == 0 {
                let node = random.usize(..numbers.len());
                numbers[node] += 1;
                let mut ask = LeaseRequest::new(node as u128, numbers[node], terms);
                (ask.want, ask.ahead) = (random.u64(..3), random.u64(..3));
                ask.leave = random.u32(..3) == 0;
                ask
            } else {
                let want = if random.u32(..6) == 0 { random.u64(..=most + 1) } else { random.u64(..4) };
                single(1_000 + step, terms, want)
            };
            expire(&mut connection, &key, now);
            let was_short = is_short(&mut connection, &key);
            let (real, model) = (eval(&mut connection, &script, &key, &ask, now), store.answer(&ask, now));
            match (&real, &model) {
                (Ok(real), Ok(model)) => assert_eq!(real, model, "seed {seed}, step {step}, at {now}: {ask:?}"),
                (Err(_), Err(StoreError::QuotaConflict { .. } | StoreError::Refused(_))) => continue,
                _ => panic!("seed {seed}, step {step}, at {now}: {ask:?} gets {real:?} and {model:?}"),
            }
            refused += u32::from(real.is_ok_and(|grant| grant.now < ask.want && ask.at_once));
            match (was_short, is_short(&mut connection, &key)) {
                (true, true) => stays += 1,
                (true, false) => ends += 1,
                (false, true) => begins += 1,
                (false, false) => {}
            }
        }
    }
    assert!(stays > 1_000 && ends > 100 && begins > 100, "{stays} stays, {ends} ends, {begins} begins");
    assert!(refused > 200, "{refused} refusals");
}

#[test]
fn a_record_that_other_software_has_overwritten_is_named() {
    let Some(server) = Server::start() else { return };
    let (mut connection, script, key) = (server.client(), timed(), "tollgate:{overwritten}");
    let terms = terms(Quota::per_second(10).burst(20));
    // The last two have the length of a record.
    let sums = ["d41d8cd98f00b204e9800998ecf8427e", "900150983cd24fb0d6963f7d28e17f72"];
    for text in ["", "15 1700000000000000 0 0", sums[0], sums[1]] {
        redis::cmd("HSET").arg(key).arg("s").arg(text).arg("q").arg(terms.to_string()).exec(&mut connection).unwrap();
        let error = eval(&mut connection, &script, key, &single(1, terms, 1), BEGIN).unwrap_err();
        assert!(error.contains("field s of tollgate:{overwritten} was overwritten"), "{text}: {error}");
    }
}
