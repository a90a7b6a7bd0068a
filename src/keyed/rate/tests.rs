use super::*;
use crate::core::schedule::Schedule;
use std::time::Duration;

/// A pseudorandom number below `sides`.
fn dice(seed: &mut u64, sides: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % sides
}

fn quotas() -> Vec<Quota> {
    let odd = Duration::from_nanos(999_999_937);
    vec![
        Quota::per_second(10),
        Quota::per_second(1_000_003).burst(7),
        Quota::new(3, Duration::from_nanos(2)).burst(5),
        Quota::new(7, Duration::from_nanos(3)).burst(4),
        Quota::new(1, Duration::from_nanos(10)).burst(3),
        Quota::new(999_999_893, odd).burst(1 << 40),
        Quota::per_day(1_000_003),
        Quota::new(5, Duration::from_nanos(30)).burst(12).stepped(),
        Quota::per_day(1).burst(1),
    ]
}

/// Random takes and waits: level and schedule agree, to the token and to the nanosecond.
#[test]
fn a_level_is_a_schedules_to_the_unit() {
    for (index, quota) in quotas().into_iter().enumerate() {
        let rate = Rate::new(quota, None);
        for seed in 0..200 {
            let mut seed = seed * 1_000 + index as u64;
            let mut schedule = Schedule::new(quota, 0, 0);
            let (mut claimed, mut now) = (0_u64, 0_u64);
            let mut level = Level { units: rate.full, at: 0 };
            for _ in 0..60 {
                let step = quota.period_nanos() / quota.amount().min(quota.period_nanos());
                now += [0, 1, 2, step, step + 1, step * 3, quota.period_nanos()][dice(&mut seed, 7) as usize];
                let limit = claimed.wrapping_add(quota.capacity());
                schedule.mint(now, limit);
                level = Level { units: rate.advance(level, now), at: now };
                let tokens = schedule.head.wrapping_sub(claimed) as i64;
                assert_eq!(rate.tokens(level.units), tokens, "{quota} at {now}");
                let n = dice(&mut seed, 2 * quota.capacity()) + 1;
                if tokens >= n as i64 {
                    claimed += n;
                    level.units -= rate.units(n);
                } else {
                    let at = schedule.reached(claimed.wrapping_add(n));
                    assert_eq!(rate.reached(level, n), at.map(|at| at.max(now)), "{quota} at {now}");
                }
                if let Some(packed) = rate.packed(level) {
                    assert_eq!(rate.of_packed(packed, now) as i128, level.units);
                }
            }
        }
    }
}

#[test]
fn packed_levels_are_readable_to_the_end_of_their_window() {
    for quota in quotas() {
        let rate = Rate::new(quota, None);
        let Some(window) = rate.window else { continue };
        for at in [0, 1, (u64::MAX - window) / 2, u64::MAX - window] {
            for units in [rate.full - 1, 0, -MAX_PACKED + 1] {
                let level = Level { units, at };
                let Some(packed) = rate.packed(level) else { continue };
                let read = rate.of_packed(packed, at + window);
                assert_eq!(rate.clip(read as i128), rate.advance(level, at + window), "{quota}");
            }
        }
    }
    assert!(Rate::new(Quota::per_day(1_000_003), None).window.is_none(), "its burst spans too many units");
    assert!(Rate::new(Quota::new((1 << 40) + 1, Duration::from_secs(1)).burst(1), None).window.is_none());
}

#[test]
fn a_changed_quota_keeps_tokens_and_fractions() {
    let (ten, four) =
        (Rate::new(Quota::per_second(10).burst(10), None), Rate::new(Quota::per_second(4).burst(5), None));
    // 3.5 tokens.
    let units = ten.units(7) / 2;
    let changed = four.adopt(&ten, units);
    assert_eq!((four.tokens(changed), four.fraction(changed)), (3, four.units(1) as u64 / 2));
    assert_eq!(four.adopt(&ten, ten.full), four.full, "cut at the new burst");
    assert_eq!(four.tokens(four.adopt(&ten, -ten.units(2))), -2, "a debt stays a debt");
}
