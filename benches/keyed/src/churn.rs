//! Ten million distinct keys through a bound of a hundred thousand, and among them a thousand abusers that return all
//! the time.

use crate::heap::alive;
use hdrhistogram::Histogram;
use std::time::Instant;
use tollgate::{KeyedLimiter, Quota, TryAcquireError};

const KEYS: u64 = 10_000_000;
const BOUND: u64 = 100_000;
const ABUSERS: u64 = 1_000;
const RATE: u64 = 10;
const BURST: u64 = 3;

pub fn report() {
    let before = alive();
    let builder = KeyedLimiter::builder().quota(Quota::per_second(RATE).burst(BURST)).max_keys(BOUND);
    let limiter: KeyedLimiter<u64> = builder.build().expect("valid");
    let mut latency = Histogram::<u64>::new(3).expect("sensible");
    let mut granted = vec![(0_u64, None); ABUSERS as usize];
    let (mut refused, mut full, mut served) = (0_u64, 0_u64, 0_u64);
    let (mut least, mut most, mut most_keys) = (i64::MAX, 0, 0);
    let start = Instant::now();
    for call in 0..KEYS + KEYS / 10 {
        // Every eleventh call is an abuser's.
        let is_abuser = call % 11 == 10;
        let key = if is_abuser { call / 11 % ABUSERS } else { ABUSERS + call };
        let began = Instant::now();
        let result = limiter.try_acquire(&key, 1).map(drop);
        latency.saturating_record(began.elapsed().as_nanos() as u64);
        match result {
            Ok(()) if is_abuser => {
                let (count, first) = &mut granted[key as usize];
                *count += 1;
                first.get_or_insert(began);
            }
            Ok(()) => served += 1,
            Err(TryAcquireError::TooManyKeys { .. }) => full += 1,
            Err(_) => refused += 1,
        }
        if call % 100_000 == 0 && call > KEYS / 10 {
            (least, most) = (least.min(alive() - before), most.max(alive() - before));
            most_keys = most_keys.max(limiter.snapshot().keys);
        }
    }
    let took = start.elapsed();
    let over = granted.iter().filter(|(count, first)| {
        let allowed = first.map_or(0.0, |first: Instant| first.elapsed().as_secs_f64() * RATE as f64) + BURST as f64;
        *count as f64 > allowed
    });
    println!("\n{KEYS} distinct keys and {ABUSERS} abusers through max_keys({BOUND}), one thread\n");
    println!("over-granted abusers: {}", over.count());
    println!("new keys served {served}, refused by the full map {full}; refused by their own bucket {refused}");
    println!("most keys at once: {most_keys}");
    println!(
        "heap after the first tenth: {least}..{most} bytes, {:.1} per key of the bound",
        most as f64 / BOUND as f64
    );
    let at = |quantile| latency.value_at_quantile(quantile) as f64 / 1e3;
    println!(
        "a call: p50 {:.2} us, p99 {:.2} us, p99.9 {:.2} us, p99.99 {:.2} us, max {:.0} us, in all {took:.1?}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(0.9999),
        latency.max() as f64 / 1e3
    );
}
