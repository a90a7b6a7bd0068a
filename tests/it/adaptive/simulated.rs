//! The targets of `benches/adaptive` on its simulated server, for a shorter time.

#[path = "../../../benches/adaptive/bound.rs"]
mod bound;
#[path = "../../../benches/adaptive/ours.rs"]
mod ours;
#[path = "../../../benches/adaptive/world.rs"]
mod world;

use crate::fixture::*;
use ours::Ours;
use world::{Figures, Scene, run};

fn simulated(limit: f64, processes: usize, tasks: usize, cancels: Option<u64>) -> Figures {
    let clock = ManualClock::new();
    let mut clients: Vec<_> = (0..processes as u64)
        .map(|number| Ours::new(&clock, number, tasks, cancels.map(|seed| seed + number)))
        .collect();
    run(Scene { limit, phase: 30, phases: 4, tasks }, &clock, &mut clients)
}

#[track_caller]
fn meets(figures: &Figures) {
    let Figures { used, refused, jain, found, left, trace } = figures;
    assert_eq!(trace.len(), 4 * 30 * 10);
    let rises = found.is_some_and(|seconds| seconds <= 10.0);
    let falls = left.is_some_and(|seconds| seconds <= 1.0);
    assert!(
        *used >= 0.90 && *refused <= 0.022 && *jain >= 0.90 && rises && falls,
        "{used} {refused} {jain} {found:?} {left:?}"
    );
}

#[test]
#[cfg_attr(miri, ignore = "too many requests")]
fn a_limit_that_halves_and_doubles_is_followed() {
    meets(&simulated(10.0, 1, 1, None));
    meets(&simulated(60.0, 1, 1, None));
}

#[test]
#[cfg_attr(miri, ignore = "too many requests")]
fn tasks_of_a_process_share_it_equally() {
    meets(&simulated(100.0, 1, 16, None));
}

/// A server that tolerates two requests at once refuses a rate that is too high late. The guess of the limit is wrong more
/// often then, and each wrong guess teaches how far.
#[test]
#[cfg_attr(miri, ignore = "too many requests")]
fn a_limit_of_some_tens_per_second_is_used_as_well() {
    for limit in [25.0, 40.0, 50.0] {
        let Figures { used, refused, .. } = simulated(limit, 1, 16, None);
        assert!(used >= 0.9 && refused <= 0.02, "{limit}/s: {used} {refused}");
    }
}

/// Sixteen processes that start together: half of their requests are refused whenever they arrive in the same millisecond,
/// also at the slowest rate.
#[test]
#[cfg_attr(miri, ignore = "too many requests")]
fn processes_that_start_in_step_get_out_of_step() {
    let Figures { used, refused, jain, .. } = simulated(160.0, 16, 1, None);
    assert!(used >= 0.8 && refused <= 0.06 && jain >= 0.85, "{used} {refused} {jain}");
}

#[test]
#[cfg_attr(miri, ignore = "too many requests")]
fn half_of_the_waiters_cancelled_changes_nothing() {
    let (with, without) = (simulated(50.0, 1, 1, Some(7)), simulated(50.0, 1, 1, None));
    assert!((with.used - without.used).abs() <= 0.01, "{} {}", with.used, without.used);
    assert!((with.refused - without.refused).abs() <= 0.01);
}

/// All ways in which up to five clients divide a rate: what the fewest clients whose refusal is enough have learned is
/// never less than the bound says.
#[test]
fn the_bound_of_the_benchmark_holds_for_every_division_of_a_rate() {
    for clients in 1..=5 {
        for left in [0.5, 0.525] {
            let mut fewest = clients;
            for_each_division(clients, 40, &mut Vec::new(), &mut |rates| {
                let squares: u64 = rates.iter().map(|rate| rate * rate).sum();
                let sum: u64 = rates.iter().sum();
                if (sum * sum) as f64 >= 0.9 * (clients as u64 * squares) as f64 {
                    // The largest rates are first. All together are 0.9 of the limit.
                    let unlearned = |refused: &usize| rates[*refused..].iter().sum::<u64>() as f64 / sum as f64 * 0.9;
                    fewest = (0..=clients).find(|refused| unlearned(refused) <= left).unwrap().min(fewest);
                }
            });
            assert_eq!(fewest, bound::informed(clients, left), "{clients} clients, {left}");
        }
    }
    let bounds = [1, 16].map(|clients| (bound::lowest_limit(clients) * 10.0).round() / 10.0);
    assert_eq!(bounds, [3.3, 16.3], "the limits that docs/decisions.md names");
}

/// Calls `each` with all rates in descending order, of at most `most` each.
fn for_each_division(clients: usize, most: u64, rates: &mut Vec<u64>, each: &mut impl FnMut(&[u64])) {
    if rates.len() == clients {
        return each(rates);
    }
    for rate in 1..=rates.last().copied().unwrap_or(most) {
        rates.push(rate);
        for_each_division(clients, most, rates, each);
        rates.pop();
    }
}
