//! The targets of `benches/adaptive` on its simulated server, for a shorter time.

#[path = "../../../benches/adaptive/ours.rs"]
mod ours;
#[path = "../../../benches/adaptive/world.rs"]
mod world;

use ours::Ours;
use tollgate::ManualClock;
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
