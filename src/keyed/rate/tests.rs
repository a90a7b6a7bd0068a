use super::*;
use std::time::Duration;

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

#[test]
fn packed_levels_are_readable_to_the_end_of_their_window() {
    for quota in quotas() {
        let rate = Rate::new(quota, None);
        let Some(window) = rate.window else { continue };
        for at in [0, 1, (u64::MAX - window) / 2, u64::MAX - window] {
            for units in [rate.full - 1, 0, -MAX_PACKED + 1] {
                let level = Level { units, at };
                let packed = rate.packed(level).expect("it fits");
                let read = rate.of_packed(packed, at + window);
                assert_eq!(rate.clip(read as i128), rate.advance(level, at + window), "{quota}");
            }
        }
        assert_eq!(rate.packed(Level { units: -MAX_PACKED, at: 0 }), None, "{quota}");
    }
    assert!(Rate::new(Quota::per_day(1_000_003), None).window.is_none(), "its burst spans too many units");
    assert!(Rate::new(Quota::new((1 << 40) + 1, Duration::from_secs(1)).burst(1), None).window.is_none());
}
