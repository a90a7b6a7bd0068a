use super::*;
use std::collections::BTreeMap;

/// Returns how many tokens came back.
fn advance(window: &mut Window, now: u64) -> u64 {
    let before = window.used;
    window.advance(now);
    before - window.used
}

#[test]
fn a_window_takes_less_than_700_bytes() {
    let window = Window::new(60, 60_000_000_000, 0);
    assert_eq!(window.slots.capacity(), MOST);
    let bytes = size_of::<Window>() + MOST * size_of::<Slot>();
    assert!(bytes <= 700, "{bytes} bytes");
}

/// Against a list of the instants at which tokens come back, in windows that are often full of slots.
#[test]
fn a_window_of_any_history_is_the_list_of_its_grants() {
    let mut fullest = 0;
    let grant = |grants: &mut BTreeMap<u64, u64>, back_at: u64, tokens| {
        let back_at = grants.last_key_value().map_or(back_at, |(last, _)| back_at.max(*last));
        let joins = grants.len() == MOST && !grants.contains_key(&back_at);
        let joined = if joins { grants.pop_last().map_or(0, |(_, tokens)| tokens) } else { 0 };
        *grants.entry(back_at).or_default() += tokens + joined;
    };
    for seed in 0..500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let period = random.u64(32..=320);
        let width = period.div_ceil(32);
        let (mut window, mut now) = (Window::new(60, period, 0), 0);
        let mut grants = BTreeMap::<u64, u64>::new();
        for _ in 0..500 {
            let rarely = random.u8(..40);
            match rarely {
                0 => {
                    window.begin(now);
                    grants = grants.into_iter().map(|(back_at, tokens)| (back_at - now, tokens)).collect();
                    now = 0;
                }
                1..4 => {
                    // The oldest tokens, or the latest.
                    let mut left = random.u64(..9);
                    if rarely == 1 {
                        window.retract(left)
                    } else {
                        _ = window.free(left)
                    }
                    while let Some(mut slot) = if rarely == 1 { grants.last_entry() } else { grants.first_entry() } {
                        let part = left.min(*slot.get());
                        *slot.get_mut() -= part;
                        left -= part;
                        if *slot.get() > 0 {
                            break;
                        }
                        slot.remove();
                    }
                }
                _ => {
                    let tokens = random.u64(1..4);
                    window.grant(tokens);
                    // Multiples of the width since a later origin can lie between those of an earlier one.
                    grant(&mut grants, now.next_multiple_of(width) + period, tokens);
                }
            }
            fullest = fullest.max(window.slots.len());
            let step = if random.u8(..50) == 0 { random.u64(..=2 * period) } else { random.u64(..=width) };
            now += step;
            let later = grants.split_off(&(now + 1));
            let back: u64 = std::mem::replace(&mut grants, later).values().sum();
            assert_eq!(advance(&mut window, now), back, "seed {seed}");
            let slots: Vec<_> = window.slots.iter().map(|slot| (slot.back_at, slot.tokens)).collect();
            let used = grants.values().sum();
            assert_eq!((slots, window.used), (grants.clone().into_iter().collect(), used), "seed {seed}");
            // Unseen tokens are as if they were granted now.
            let (unseen, mut seen) = (random.u64(..3), grants.clone());
            if unseen > 0 {
                grant(&mut seen, now.next_multiple_of(width) + period, unseen);
            }
            for need in [window.used.max(1), random.u64(1..=(window.used + unseen).max(1))] {
                let mut left = need;
                let last = seen.iter().find(|(_, tokens)| {
                    left = left.saturating_sub(**tokens);
                    left == 0
                });
                let back_at = last.map_or(0, |(back_at, _)| *back_at);
                assert_eq!(window.back(need, unseen), Some(back_at), "seed {seed}");
            }
        }
    }
    assert_eq!(fullest, MOST);
}

/// A slot that was joined with the next one at each change was joined with all later ones, one after the other.
#[test]
fn tokens_come_back_a_period_after_their_grants_though_others_are_granted_and_the_period_changes_at_random() {
    let mut latest = 0;
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (base, step) = (1_000_000, random.u64(2_000..40_000));
        let (mut window, mut now, mut grants) = (Window::new(1_000, base, 0), 0, VecDeque::new());
        while now < 3 * base {
            let period = if now < base { base - base / 100 + random.u64(..base / 50) } else { base };
            window = window.resized(1_000, period);
            if now < base {
                window.grant(1);
                grants.push_back(now);
            }
            now += step;
            for _ in 0..advance(&mut window, now) {
                latest = latest.max(now - grants.pop_front().unwrap() - step);
            }
        }
        assert_eq!((window.used, grants.len()), (0, 0), "seed {seed}");
    }
    assert!((1_000_000..1_100_000).contains(&latest), "{latest}");
}

/// The subtraction overflowed.
#[test]
fn a_window_that_was_restored_takes_another_period_too() {
    let mut window = Window::with_used(10, 1_000, 0, 4);
    window.advance(300);
    window.begin(300);
    window.grant(2);
    let back = |period| [1, 4, 5].map(|need| window.resized(10, period).back(need, 0));
    assert_eq!(back(1_500), [1_200, 1_200, 1_500].map(Some));
    assert_eq!(back(200), [0, 0, 200].map(Some));
}

#[test]
fn tokens_that_come_back_after_the_end_of_time_stay_in_order_when_the_period_changes() {
    let mut window = Window::new(60, 1 << 60, 0);
    window.advance(1);
    window.grant(1);
    window = window.resized(60, u64::MAX - (1 << 55) - 5);
    window.advance(2);
    window.grant(1);
    window = window.resized(60, 1_000);
    let back_at = window.back(2, 0).unwrap();
    assert_eq!(advance(&mut window, back_at), 2);
}
