//! The state of a limiter.

use super::{SECOND, begin, through};
use crate::fixture::*;
use std::time::SystemTime;
use tollgate::state::LimiterState;

/// A limiter, its clock, and the wall clock beside it.
struct Fixture {
    limiter: Limiter,
    clock: ManualClock,
    wall_clock: SystemTime,
}

impl Fixture {
    fn new(builder: Builder, wall_clock: SystemTime) -> Self {
        let clock = ManualClock::new();
        Self { limiter: builder.clock(clock.clone()).stride(0).build().unwrap(), clock, wall_clock }
    }

    fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
        self.wall_clock += by;
        self.limiter.tick();
    }

    fn save(&self) -> LimiterState {
        let state = self.limiter.state_at(self.wall_clock).unwrap();
        let read = through(&state);
        assert_eq!(read, state);
        read
    }
}

fn quotas() -> Vec<Vec<Quota>> {
    let third = Quota::new(3, Duration::from_nanos(1_000_000_007)).burst(5);
    vec![
        vec![Quota::per_second(10)],
        vec![third],
        vec![Quota::new(7, SECOND).burst(9).stepped()],
        vec![Quota::manual(20)],
        vec![Quota::per_second(10), Quota::per_minute(100).burst(30)],
        vec![third, Quota::new(4, Duration::from_millis(700)).burst(6).stepped(), Quota::manual(50)],
    ]
}

fn builder(quotas: &[Quota]) -> Builder {
    quotas.iter().fold(Limiter::builder(), |builder, quota| builder.quota(*quota))
}

/// Does the same to several limiters, and compares the results.
fn step(random: &mut fastrand::Rng, fixtures: &mut [&mut Fixture]) {
    let (kind, n) = (random.u8(..8), random.u64(0..12));
    let by = Duration::from_nanos([0, 1, 99_999_999, 333_333_333, 1_000_000_000][random.usize(..5)]);
    let mut results = Vec::new();
    for fixture in fixtures.iter_mut() {
        let limiter = &fixture.limiter;
        match kind {
            0..=2 => fixture.advance(by),
            3 => limiter.pause_for(by / 2),
            4 => limiter.replenish(n / 3),
            5 => {
                if let Ok(mut grant) = limiter.try_acquire(n) {
                    grant.settle(2 * n / 3 + n % 2 * 4);
                }
            }
            _ => results.push(limiter.try_acquire(n).map(|grant: Grant<'_>| grant.remaining())),
        }
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{results:?}");
    let seen = fixtures.iter().map(|fixture| {
        let limiter = &fixture.limiter;
        let levels: Vec<_> = limiter.snapshot().quotas.iter().map(|quota| (quota.level, quota.more_in)).collect();
        (limiter.available(), limiter.deficiency(), limiter.estimate(1), limiter.estimate(7), levels)
    });
    let seen: Vec<_> = seen.collect();
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:#?}");
}

#[test]
fn a_restored_limiter_is_the_limiter_that_kept_running() {
    for (index, quotas) in quotas().iter().enumerate() {
        for seed in 0..150 {
            let mut random = fastrand::Rng::with_seed(1_000 * seed + index as u64);
            let mut running = Fixture::new(builder(quotas), begin());
            for _ in 0..4 {
                (0..random.u8(..20)).for_each(|_| step(&mut random, &mut [&mut running]));
                let state = running.save();
                running.advance(Duration::from_nanos(random.u64(0..3_000_000_000) * u64::from(random.bool())));
                let mut restored = Fixture::new(builder(quotas).restore(state, running.wall_clock), running.wall_clock);
                (0..random.u8(..20)).for_each(|_| step(&mut random, &mut [&mut running, &mut restored]));
                running = restored;
            }
        }
    }
}

#[test]
fn waiters_are_not_saved_and_what_was_saved_up_for_them_is_gone() {
    let quotas = [Quota::per_second(10).burst(10)];
    let mut fixture = Fixture::new(builder(&quotas), begin());
    let restored = |fixture: &Fixture| {
        let restored = builder(&quotas).restore(fixture.save(), fixture.wall_clock).clock(ManualClock::new());
        let restored = restored.build().unwrap();
        (restored.available(), restored.deficiency(), restored.snapshot().waiting_tasks)
    };
    let limiter = fixture.limiter.clone();
    let mut grant = limiter.try_acquire(10).unwrap();
    let (large, small) = (pending(limiter.consume(40)), pending(limiter.consume(3)));
    assert_eq!(restored(&fixture), (0, 0, 0));
    fixture.advance(2 * SECOND + SECOND / 2);
    // 25 tokens are saved up for the large claim, and the burst is 10.
    assert_eq!(restored(&fixture), (10, 0, 0));
    grant.settle(14); // a debt of 4, behind the waiters
    assert_eq!(restored(&fixture), (6, 0, 0));
    drop((large, small));
    assert_eq!(fixture.limiter.available(), 6);
    grant.settle(25);
    assert_eq!(restored(&fixture), (0, 5, 0));
}

#[test]
fn a_fraction_that_was_saved_up_for_a_waiter_at_the_burst_is_gone() {
    let quotas = [Quota::new(1, 10 * SECOND).burst(5)];
    let mut fixture = Fixture::new(builder(&quotas), begin());
    let limiter = fixture.limiter.clone();
    let _large = pending(limiter.consume(8));
    fixture.advance(5 * SECOND);
    let restored = builder(&quotas).restore(fixture.save(), fixture.wall_clock).clock(ManualClock::new()).build();
    assert_eq!(restored.unwrap().available(), 5);
}

#[test]
fn tokens_in_flight_are_not_saved_and_their_rate_is() {
    let build = || Limiter::builder().quota(Quota::per_hour(10)).max_in_flight(3);
    let limiter = build().build().unwrap();
    let _held = limiter.try_acquire(3).unwrap();
    assert_eq!(limiter.available(), 0);
    let restored = build().restore(limiter.state().unwrap(), SystemTime::now()).build().unwrap();
    assert_eq!((restored.snapshot().in_flight, restored.available()), (Some(0), 3));
    let _grants = (restored.try_acquire(3).unwrap(), restored.set_max_in_flight(9).unwrap());
    assert_eq!(restored.available(), 4);
}

#[test]
fn a_limiter_with_classes_saves_its_quotas() {
    let build = || Limiter::builder().quota(Quota::per_hour(10)).classes().clock(ManualClock::new());
    let limiter = build().build().unwrap();
    let class: Class = limiter.class("batch", Share::weight(1)).unwrap();
    let waiting = pending(class.consume(15));
    let _ = limiter.state().unwrap();
    drop(waiting);
    let _ = limiter.try_acquire(4).unwrap();
    let restored = build().restore(limiter.state().unwrap(), SystemTime::now()).build().unwrap();
    assert_eq!(restored.available(), 6);
}

#[test]
fn other_quotas_keep_the_tokens_if_the_state_converts() {
    let mut fixture = Fixture::new(builder(&[Quota::per_second(10), Quota::per_minute(50)]), begin());
    let _ = fixture.limiter.try_acquire(8).unwrap();
    fixture.advance(SECOND / 20);
    let others = [
        vec![Quota::per_second(4).burst(3)],
        vec![Quota::per_second(4).burst(1), Quota::per_minute(9)],
        vec![Quota::per_second(10), Quota::per_minute(50), Quota::per_day(7)],
        vec![Quota::new(7, SECOND).stepped(), Quota::manual(90)],
    ];
    for (quotas, levels) in others.iter().zip([vec![2], vec![1, 9], vec![2, 42, 7], vec![2, 42]]) {
        let restored = builder(quotas).restore(fixture.save().convert(), fixture.wall_clock);
        let restored = restored.clock(ManualClock::new()).build().unwrap();
        let seen: Vec<_> = restored.snapshot().quotas.iter().map(|quota| quota.level).collect();
        assert_eq!(seen, levels);
    }
}

/// What it owes is known to the simulation only, so a quota in dry run is saved as full.
#[test]
fn a_quota_in_dry_run_is_saved_as_full() {
    let quotas = [Quota::per_second(10), Quota::new(7, SECOND).burst(9).stepped()];
    let mut saved = Fixture::new(builder(&quotas).dry_run(), begin());
    saved.advance(SECOND / 2);
    assert!(saved.limiter.try_acquire(50).is_ok());
    let state = saved.save();
    let mut restored = Fixture::new(builder(&quotas).restore(state, saved.wall_clock), saved.wall_clock);
    assert_eq!(restored.limiter.available(), 9);
    assert!(restored.limiter.try_acquire(9).is_ok());
    restored.advance(SECOND);
    assert_eq!(restored.limiter.available(), 7, "its steps go on");
}

#[test]
fn a_quota_that_was_changed_in_dry_run_is_the_saved_one() {
    let (old, new) = (Quota::per_second(10), Quota::per_second(20).burst(5));
    let saved = Fixture::new(builder(&[old]).dry_run(), begin());
    saved.limiter.set_quota(0, new).unwrap();
    let restored = builder(&[new]).restore(saved.save(), saved.wall_clock).build();
    assert_eq!(restored.unwrap().available(), 5);
}

/// The instants of its grants are not saved: they count as made when the level was.
#[test]
fn a_sliding_quota_has_its_tokens_back_a_period_after_they_were_saved() {
    let quotas = [Quota::per_second(10).sliding()];
    let saved = Fixture::new(builder(&quotas), begin());
    assert!(saved.limiter.try_acquire(4).is_ok());
    let now = saved.wall_clock + SECOND / 4;
    let mut restored = Fixture::new(builder(&quotas).restore(saved.save(), now), now);
    assert!(restored.limiter.try_acquire(1).is_ok());
    let levels = [0, 749_999_999, 1, 249_999_999, 1].map(|nanos| {
        restored.advance(Duration::from_nanos(nanos));
        restored.limiter.available()
    });
    assert_eq!(levels, [5, 5, 9, 9, 10]);
}

/// This panicked, and in release builds the tokens never came back.
#[test]
fn a_restored_sliding_quota_can_change_its_period() {
    let long = Quota::new(10, 2 * SECOND).sliding();
    let saved = Fixture::new(builder(&[Quota::per_second(10).sliding()]), begin());
    assert!(saved.limiter.try_acquire(4).is_ok());
    let (state, now) = (saved.save(), saved.wall_clock + SECOND / 4);
    let mut changed = Fixture::new(builder(&[Quota::per_second(10).sliding()]).restore(state.clone(), now), now);
    changed.limiter.set_quota(0, long).unwrap();
    let mut converted = Fixture::new(builder(&[long]).restore(state.convert(), now), now);
    let mut level = |nanos| {
        [&mut changed, &mut converted].map(|it| {
            it.advance(Duration::from_nanos(nanos));
            it.limiter.available()
        })
    };
    assert_eq!([level(0), level(1_749_999_999), level(1)], [[6; 2], [6; 2], [10; 2]]);
}
