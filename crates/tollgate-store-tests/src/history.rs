//! A random history: requests to the store, and the answers of `SharedBucket` to the same.

use super::Failure;
use super::clock::{Clock, DAY};
use super::requests::{Requests, answered, asked};
use std::sync::Arc;
use tokio::time::{Duration, Instant, sleep_until};
use tollgate::distributed::{LeaseGrant, LeaseRequest, SharedBucket, Store, StoreError};

const BEGIN: i64 = 1_700_000_000_000_000;

/// What the store was asked, when, and what it answered.
struct Log {
    clock: Clock,
    began: i64,
    lines: Vec<String>,
}

impl Log {
    fn failure(self, seed: u64, difference: String) -> Failure {
        Failure { part: self.clock.part(), seed, history: self.lines, difference }
    }

    /// Compares an answer with that of the model.
    fn compare(&mut self, now: i64, asked: &str, real: &str, model: &str) -> Result<(), String> {
        self.lines.push(format!("{:.6} s: {asked} -> {real}", (now - self.began) as f64 / 1e6));
        if real == model { Ok(()) } else { Err(format!("the last answer must be: {model}")) }
    }

    fn compare_grants(
        &mut self,
        now: i64,
        ask: &LeaseRequest,
        real: &Result<LeaseGrant, StoreError>,
        mut model: Result<LeaseGrant, StoreError>,
    ) -> Result<(), String> {
        if let (Clock::Own { slot }, Ok(real), Ok(model)) = (self.clock, real, &mut model) {
            // The model knows the store's clock but for the slack, and does not know its epochs.
            let (slack, period) = (self.clock.slack() as u64, model.terms.unwrap_or(ask.terms).period());
            let phase_slack = slack * period.div_ceil(slot as u64);
            model.part = real.part.max(1);
            model.clock = real.clock;
            if real.wait.abs_diff(model.wait) <= slack.max(phase_slack) {
                model.wait = real.wait;
            }
            if real.age.abs_diff(model.age) <= slack {
                model.age = real.age;
            }
            if real.promised == 0 || real.phase < period && real.phase.abs_diff(model.phase) <= phase_slack {
                model.phase = real.phase;
            }
        }
        self.compare(now, &asked(ask), &answered(real), &answered(&model))
    }
}

/// The number of the last promised token.
fn last(bucket: Option<&SharedBucket>) -> u64 {
    let record = bucket.map(SharedBucket::to_bytes).unwrap_or_default();
    let record = String::from_utf8_lossy(&record);
    record.lines().nth(2).and_then(|bucket| bucket.split(' ').nth(12)?.parse().ok()).unwrap_or(0)
}

/// Runs a history by instants that the test chooses.
pub(crate) async fn chosen(
    ask_at: &impl AsyncFn(&str, LeaseRequest, u64) -> Result<LeaseGrant, StoreError>,
    name: &str,
    seed: u64,
) -> Result<(), Failure> {
    let mut log = Log { clock: Clock::Chosen, began: BEGIN, lines: Vec::new() };
    let mut requests = Requests::new(seed, log.clock);
    let mut bucket = None::<SharedBucket>;
    log.began += requests.random.i64(0..1 << 40);
    let mut now = log.began;
    for _ in 0..log.clock.requests() {
        now = log.clock.next(&mut requests.random, now, None);
        let mut ask = requests.next(last(bucket.as_ref()));
        ask.terms = Clock::choose_period(ask.terms, now, &mut requests.random);
        let real = ask_at(name, ask.clone(), now as u64).await;
        let mut kept = bucket.filter(|bucket| !bucket.is_forgotten(now)).unwrap_or(SharedBucket::new(ask.terms, now));
        if let Err(difference) = log.compare_grants(now, &ask, &real, kept.answer(&ask, now)) {
            return Err(log.failure(seed, difference));
        }
        bucket = Some(kept);
    }
    Ok(())
}

/// Runs a history by the store's own clock. Returns false if it ended before its end: an answer was lost or late.
pub(crate) async fn own(
    open: &impl AsyncFn(&str, i64) -> Result<Arc<dyn Store>, String>,
    name: &str,
    seed: u64,
    slot: i64,
) -> Result<bool, Failure> {
    let mut log = Log { clock: Clock::Own { slot }, began: BEGIN, lines: Vec::new() };
    let outcome = through_two_clients(open, name, seed, &mut log).await;
    outcome.map_err(|difference| log.failure(seed, difference))
}

/// Neither client has the right time.
async fn through_two_clients(
    open: &impl AsyncFn(&str, i64) -> Result<Arc<dyn Store>, String>,
    name: &str,
    seed: u64,
    log: &mut Log,
) -> Result<bool, String> {
    let clients = [open(name, DAY).await?, open(name, -2 * DAY).await?];
    let mut requests = Requests::new(seed, log.clock);
    let is_lost = |error: &StoreError| matches!(error, StoreError::Unreachable(_) | StoreError::NotSent(_));
    let [keeper, first] = requests.first();
    let mut bucket = SharedBucket::new(first.terms, BEGIN);
    // The keeper's node is not forgotten, nor is the bucket: a store need not do that at once. The bucket stays full, so it
    // does not matter how long it takes to connect.
    for client in &clients {
        if client.ask(keeper.clone()).await.as_ref().is_err_and(is_lost) {
            return Ok(false);
        }
        let _ = bucket.answer(&keeper, BEGIN);
    }
    let mut began = None::<(Instant, Instant)>;
    let mut now = BEGIN;
    for number in 0..log.clock.requests() {
        let client = &clients[number as usize % 2];
        let ask = if number == 0 { first.clone() } else { requests.next(last(Some(&bucket))) };
        if let Some((_, received)) = began {
            now = log.clock.next(&mut requests.random, now, Some(&bucket));
            sleep_until(received + Duration::from_micros((now - BEGIN) as u64)).await;
        }
        let sent = Instant::now();
        let real = client.ask(ask.clone()).await;
        let (first_sent, _) = *began.get_or_insert_with(|| (sent, Instant::now()));
        if real.as_ref().is_err_and(is_lost)
            || first_sent.elapsed() > Duration::from_micros((now - BEGIN + log.clock.slack()) as u64)
        {
            return Ok(false);
        }
        log.compare_grants(now, &ask, &real, bucket.answer(&ask, now))?;
    }
    Ok(true)
}
