//! The tests of `tollgate-store-tests`, with a real server.

use super::server::Server;
use std::sync::Arc;
use tollgate::distributed::{ClassClaims, LeaseGrant, LeaseRequest, QuotaTerms, Store, StoreError};
use tollgate_postgres::{MIGRATION, Pool, pool};
use tollgate_store_tests::{check, check_at};

/// The function with the time as an argument.
fn timed() -> String {
    let begin = MIGRATION.find("CREATE OR REPLACE FUNCTION tollgate_ask_1(").unwrap();
    let end = begin + MIGRATION[begin..].find("END $$;").unwrap();
    let mut text = MIGRATION[begin..end].to_owned() + "END $$;";
    for (by_its_clock, by_ours) in [
        ("(extract(epoch FROM clock_timestamp()) * 1000000)::bigint", "micros"),
        ("FUNCTION tollgate_ask_1(", "FUNCTION tollgate_ask_at(micros bigint, "),
    ] {
        assert_eq!(text.matches(by_its_clock).count(), 1, "the function reads the time in a way that is not replaced");
        text = text.replace(by_its_clock, by_ours);
    }
    text
}

fn terms(numbers: &[i64]) -> QuotaTerms {
    QuotaTerms::from_numbers(&numbers.iter().map(|number| *number as u64).collect::<Vec<_>>()).unwrap()
}

/// Answers a request as of this instant.
async fn ask_at(pool: &Pool, name: &str, ask: LeaseRequest, micros: u64) -> Result<LeaseGrant, StoreError> {
    let connection = pool.get().await.unwrap();
    let call = "SELECT tollgate_ask_at($1, $2, $3, $4, $5, $6, $7)";
    let call = connection.prepare_cached(call).await.unwrap();
    let (key, node) = (format!("timed {name}"), ask.node.to_be_bytes());
    let quota: Vec<i64> = ask.terms.numbers().iter().map(|number| *number as i64).collect();
    let LeaseRequest { number, ttl, want, first, age, useful, rtt, back, .. } = ask;
    let LeaseRequest { unused, last, rest, ahead, banked, minimum, held, leave, at_once, .. } = ask;
    let of_classes = ask.classes.iter().flat_map(ClassClaims::numbers).map(|number| number as i64);
    let numbers = [number, ttl, want, first, age, useful, rtt, back, unused, last, rest, ahead, banked, minimum, held];
    let numbers: Vec<i64> = numbers.iter().map(|number| (*number).min(1 << 53) as i64).chain(of_classes).collect();
    let row = connection
        .query_one(&call, &[&(micros as i64), &key.as_bytes(), &&node[..], &leave, &at_once, &quota, &numbers])
        .await
        .unwrap_or_else(|error| panic!("{ask:?} at {micros}: {error:?}"));
    let answer: Vec<i64> = row.try_get(0).unwrap_or_else(|error| panic!("{ask:?} at {micros}: {error:?}"));
    match answer[..] {
        [-3, ref stored @ ..] => Err(StoreError::QuotaConflict { stored: Box::new(terms(stored)), asked: ask.terms }),
        [-4, clock] => Err(StoreError::OtherPeriod { clock: clock as u64 }),
        [-2 | -1, _] => Err(StoreError::Refused(format!("{answer:?}"))),
        _ => {
            let numbers: Vec<u64> = answer.iter().map(|number| u64::try_from(*number).unwrap()).collect();
            Ok(LeaseGrant::from_numbers(&numbers, ask.classes.len()).unwrap())
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_conforms() {
    let Some(server) = Server::start().await else { return };
    // However slow the machine is.
    server.say("ALTER FUNCTION tollgate_ask_1 SET lock_timeout = 0").await;
    check(async |name: &str, _| Ok(Arc::new(server.store(name).await) as Arc<dyn Store>), 0..8).await.unwrap();
}

#[tokio::test]
async fn the_function_answers_as_the_shared_bucket_does() {
    let Some(server) = Server::start().await else { return };
    server.say(&timed()).await;
    let pool = pool(&server.address()).unwrap();
    check_at(async |name: &str, ask, micros| ask_at(&pool, name, ask, micros).await, 0..20).await.unwrap();
}
