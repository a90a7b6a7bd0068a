//! Random requests, and the answers of the shared bucket to the same.

use super::client::{slow, terms, try_ask, want};
use super::{Outcome, Random, Subject, Trial};
use crate::distributed::{LeaseGrant, LeaseRequest, QuotaTerms, SharedBucket, StoreError};
use crate::quota::Quota;
use std::time::Duration;
use tokio::time::Instant;

/// How many histories, and how many requests of each.
const HISTORIES: u64 = 9;
const REQUESTS: u32 = 120;

/// How often a history is tried in which an answer is lost.
const ATTEMPTS: u32 = 4;

const BEGIN: i64 = 1_700_000_000_000_000;

/// The requests of five nodes, some repeated, overtaken or senseless. In each third history most requests are claims
/// `at_once` of callers that the store forgets with the request.
struct Requests {
    random: Random,
    /// Of how many requests one is of a node.
    one_of_node_in: u64,
    callers: u128,
    numbers: [u64; 5],
    last: [Option<LeaseRequest>; 5],
    version: u32,
}

impl Requests {
    fn new(seed: u64) -> Self {
        let one_of_node_in = if seed.is_multiple_of(3) { 8 } else { 1 };
        Self { random: Random(seed), one_of_node_in, callers: 0, numbers: [0; 5], last: [None; 5], version: 0 }
    }

    /// The next request, for the first of these quotas. Now and then another one of them comes with a higher version.
    fn next(&mut self, quotas: &mut [QuotaTerms]) -> LeaseRequest {
        let random = &mut self.random;
        if !random.one_in(self.one_of_node_in) {
            self.callers += 1;
            let want = random.below(quotas[0].burst().min(4) + 2);
            let ask = LeaseRequest::new(100 + self.callers, 1, quotas[0]);
            return LeaseRequest { want, leave: true, at_once: true, ..ask };
        }
        let node = random.below(5) as usize;
        if let Some(last) = self.last[node].filter(|_| random.one_in(6)) {
            return last;
        }
        self.numbers[node] += 1;
        let number = if random.one_in(15) { self.numbers[node] / 2 } else { self.numbers[node] };
        if random.one_in(25) {
            self.version += 1;
            let chosen = random.below(quotas.len() as u64) as usize;
            quotas.swap(0, chosen);
            quotas[0] = quotas[0].with_version(self.version);
        }
        let terms = match random.below(30) {
            // The same version, and mostly another quota.
            0 => quotas[quotas.len() - 1].with_version(self.version),
            1..4 => quotas[0].with_version(self.version / 2),
            _ => quotas[0],
        };
        let most = if random.one_in(2) { 2 * terms.burst() } else { 5 }.min(1 << 45);
        let mut some = |odds: u64| if random.one_in(odds) { random.below(most + 1) } else { 0 };
        let mut ask = want(1 + node as u128, number, terms, some(2));
        (ask.ahead, ask.banked, ask.allowance) = (some(2), some(4), some(2));
        (ask.minimum, ask.held, ask.back) = (some(6), some(3), some(4));
        (ask.leave, ask.at_once) = (random.one_in(12), random.one_in(6));
        self.last[node] = Some(ask);
        ask
    }
}

/// Like an answer, where errors are compared by kind.
fn comparable(answer: Result<LeaseGrant, StoreError>) -> Result<LeaseGrant, String> {
    answer.map_err(|error| match error {
        StoreError::Refused(_) => "the request is refused".to_owned(),
        error => error.to_string(),
    })
}

pub(super) async fn history(trial: &Trial<'_, impl Subject>) -> Outcome {
    for seed in 0..HISTORIES {
        let mut is_compared = false;
        for attempt in 0..ATTEMPTS {
            is_compared = one_history(trial, seed, &format!("history {seed} {attempt}")).await?;
            if is_compared {
                break;
            }
        }
        if !is_compared {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns false if an answer was lost: its request was carried out once or not, and the repeat is told so.
async fn one_history(trial: &Trial<'_, impl Subject>, seed: u64, name: &str) -> Outcome {
    let clients = [trial.client(name).await?, trial.client(name).await?];
    let mut requests = Requests::new(seed);
    let mut quotas = [10, 1, 7, 1_000].map(slow);
    let mut bucket = SharedBucket::new(quotas[0], BEGIN);
    let mut began = None::<Instant>;
    for turn in 0..REQUESTS {
        let ask = requests.next(&mut quotas);
        let answered = try_ask(&*clients[turn as usize % 2], ask).await;
        let began = *began.get_or_insert_with(Instant::now);
        if answered.as_ref().is_ok_and(|answer| answer.is_repeated) {
            return Ok(false);
        }
        let model = bucket.answer(&ask, BEGIN + began.elapsed().as_micros() as i64);
        let timeless = |grant| LeaseGrant { age: 0, phase: 0, busy: 0, ..grant };
        let real = comparable(answered.map(|answer| timeless(answer.grant)));
        let model = comparable(model.map(timeless));
        ensure!(real == model, "history {seed}, request {turn}, {ask:?}, gets {real:?}; it must be {model:?}");
    }
    Ok(true)
}

pub(super) async fn timed_history(trial: &Trial<'_, impl Subject>) -> Outcome {
    let day = Duration::from_secs(86_400);
    let quotas = [
        Quota::per_second(10),
        Quota::per_second(10_000).burst(1),
        Quota::per_second(1_000_003).burst(77_777),
        Quota::new(3, Duration::from_nanos(7)).burst(1 << 40),
        Quota::new(99_991, day).burst(500).initial(100),
        Quota::new(1, 10_000 * day).burst(3),
        Quota::per_minute(60).stepped(),
        Quota::new(5, Duration::from_millis(3)).burst(12).stepped(),
        Quota::new(1 << 40, Duration::from_millis(10)).burst(1 << 50),
    ]
    .map(terms);
    for seed in 0..HISTORIES {
        let name = trial.name(&format!("timed history {seed}"));
        let mut requests = Requests::new(1_000 + seed);
        let mut quotas = quotas;
        let first = seed as usize % quotas.len();
        quotas.rotate_left(first);
        let mut record = None::<Vec<u8>>;
        let mut now = BEGIN + requests.random.below(1 << 40) as i64;
        for _ in 0..REQUESTS {
            let random = &mut requests.random;
            now += match random.below(30) {
                0 => -(random.below(3_000_000) as i64),
                1 => random.below(20_000_000_000) as i64,
                2..6 => 0,
                6..14 => random.below(3_000_000) as i64,
                _ => random.below(3_000) as i64,
            };
            let mut ask = requests.next(&mut quotas);
            ask.ttl = match requests.random.below(40) {
                0 => u64::MAX >> 1,
                1 | 2 => 1 + requests.random.below(5_000_000),
                _ => 2_000_000,
            };
            if !compared(trial, &name, &mut record, &ask, now).await? {
                return Ok(false);
            }
        }
    }
    // Nodes are looked for from the instant on at which the first one came, whatever claims there were before.
    let name = trial.name("first node");
    let (mut record, terms) = (None, terms(Quota::per_second(1).burst(10)));
    let ask = |node, ttl| LeaseRequest { want: 1, ttl, ..LeaseRequest::new(node, 1, terms) };
    let claim = LeaseRequest { leave: true, at_once: true, ..ask(1, 2_000_000) };
    for (after, ask) in [(0, claim), (40_000, ask(2, 200_000)), (520_000, ask(3, 2_000_000))] {
        if !compared(trial, &name, &mut record, &ask, BEGIN + after).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compares the answer at the instant `now` with that of a bucket with this record. Returns false if the store cannot be
/// asked as of an instant.
async fn compared(
    trial: &Trial<'_, impl Subject>,
    name: &str,
    record: &mut Option<Vec<u8>>,
    ask: &LeaseRequest,
    now: i64,
) -> Outcome {
    let Some(real) = trial.subject.ask_at(name, *ask, now as u64).await else { return Ok(false) };
    let mut bucket = SharedBucket::open(record.as_deref(), ask, now).map_err(|error| error.to_string())?;
    let (real, model) = (comparable(real), comparable(bucket.answer(ask, now)));
    *record = Some(bucket.to_bytes());
    ensure!(real == model, "{name}: {ask:?} at {now} gets {real:?}; it must be {model:?}");
    Ok(true)
}
