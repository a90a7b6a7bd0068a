use super::*;
use std::time::Duration;

#[test]
fn packed_levels_catch_up_to_what_levels_do() {
    let odd = Duration::from_nanos(999_999_937);
    let quotas = [
        Quota::per_second(10),
        Quota::per_hour(1).burst(100),
        Quota::new(7, odd).burst(4_000),
        Quota::new(5, Duration::from_secs(3)).burst(12).stepped(),
    ];
    let rates = quotas.map(|quota| Arc::new(Rates::new(quota.into(), None)));
    let (mut seed, mut repacked) = (1_u64, 0);
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for _ in 0..2_000 {
        let mut choose = || Arc::clone(&rates[random(4) as usize]);
        let (old, new, last) = (choose(), choose(), choose());
        let (begin, owed) = (random(1 << 40), random(old.burst()) as i64 + 1);
        let first = begin + random(1 << 31) * random(3_000);
        let changes = [QuotaChange { rates: new, at: first }, QuotaChange { rates: last, at: first + random(1 << 31) }];
        let packed = old.pack(&old.of_parts(begin, |_| (old.burst() as i64 - owed, 0))).expect("it fits");
        let levels = advance_through(&old, old.unpack(packed, begin), &changes);
        match (levels, repack_through(&old, packed, readable_until(&old, begin), &changes)) {
            (None, Some(Change::Forgotten)) => {}
            (Some(levels), Some(Change::Becomes(Slot::Packed(packed)))) => {
                repacked += 1;
                assert_eq!(changes[1].rates.pack(&levels), Some(packed), "{changes:?}");
            }
            (levels, change) => panic!("{levels:?}, but not by the packed level: {}", change.is_some()),
        }
    }
    assert!(repacked > 200, "{repacked}");
}
