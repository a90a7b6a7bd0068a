//! The oracle's model without arithmetic on time: it simulates every nanosecond, and checks in each which claims are
//! granted.
//!
//! It is far too slow for real histories, and even simpler than the oracle. `oracle_itself.rs` compares the two on small
//! numbers, which verifies the closed forms in `bucket.rs` and `Oracle::advance`.

use super::{Bucket, Id, Int, Oracle, Refill};

/// Longer waits than this count as endless. The small numbers of the self-tests stay far below.
const ENDLESS: Int = 50_000;

pub(super) fn advance(model: &mut Oracle, now: Int) {
    serve(model);
    while model.last < now {
        let front = model.front();
        model.last += 1;
        for bucket in &mut model.buckets {
            let bound = bucket.bound(front);
            live_one_nanosecond(bucket, model.last, bound);
        }
        serve(model);
    }
}

fn live_one_nanosecond(bucket: &mut Bucket, now: Int, bound: Int) {
    match bucket.rule.refill {
        Refill::Continuous { .. } if bucket.level >= bound => bucket.rest = 0,
        Refill::Continuous { amount, period } => {
            bucket.rest += amount;
            while bucket.rest >= period && bucket.level < bound {
                bucket.rest -= period;
                bucket.level += 1;
            }
            if bucket.rest >= period {
                bucket.rest = 0;
            }
        }
        Refill::Stepped { amount, period } | Refill::Calendar { amount, period }
            if (now - bucket.origin) % period == 0 =>
        {
            for _ in 0..amount {
                if bucket.level < bound {
                    bucket.level += 1;
                }
            }
        }
        Refill::Sliding { .. } => bucket.slide(now),
        Refill::Stepped { .. } | Refill::Calendar { .. } | Refill::Manual => {}
    }
}

fn serve(model: &mut Oracle) {
    loop {
        model.pay_debts_at_the_front();
        let front = model.front();
        for bucket in &mut model.buckets {
            forget_what_full_buckets_cannot_hold(bucket, front);
        }
        let Some(cost) = front else { return };
        let here = model.last >= model.gate && model.buckets.iter().all(|bucket| bucket.lets_pass(cost));
        if !here || model.ceiling_lacks(cost) {
            return;
        }
        model.grant_front();
    }
}

/// A bucket that was filled by hand holds no more of the next token than its last nanosecond can have brought.
fn forget_what_full_buckets_cannot_hold(bucket: &mut Bucket, front: Option<Int>) {
    if let Refill::Continuous { amount, .. } = bucket.rule.refill
        && bucket.level >= bucket.bound(front)
        && bucket.rest >= amount
    {
        bucket.rest = 0;
    }
}

/// Continues until the new claim at the end of the queue is granted.
pub(super) fn grant_instant(mut played: Oracle, newcomer: Id) -> Option<Int> {
    let end = played.last + ENDLESS;
    serve(&mut played);
    while played.log.last().is_none_or(|granted| granted.id != newcomer) {
        if played.last == end {
            return None;
        }
        let next = played.last + 1;
        advance(&mut played, next);
    }
    Some(played.last)
}
