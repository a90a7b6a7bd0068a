//! The state of a keyed limiter.

use super::{SECOND, begin, through};
use crate::fixture::*;
use std::time::SystemTime;
use tollgate::state::KeyedState;

const KEYS: u64 = 6;

/// A keyed limiter, its clock, and the wall clock beside it.
struct Fixture {
    keyed: KeyedLimiter<u64>,
    clock: ManualClock,
    wall_clock: SystemTime,
}

impl Fixture {
    fn new(builder: KeyedBuilder<u64>, wall_clock: SystemTime) -> Self {
        let clock = ManualClock::new();
        Self { keyed: builder.clock(clock.clone()).build().unwrap(), clock, wall_clock }
    }

    fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
        self.wall_clock += by;
        self.keyed.tick();
    }

    fn save(&self) -> KeyedState<u64> {
        through(&self.keyed.state_at(self.wall_clock))
    }
}

fn quotas() -> Vec<Quotas> {
    let third = Quota::new(3, Duration::from_nanos(1_000_000_007)).burst(5);
    let stepped = Quota::new(4, Duration::from_millis(700)).burst(6).stepped();
    vec![
        Quota::per_second(10).into(),
        third.into(),
        stepped.into(),
        [Quota::per_second(10), Quota::per_minute(100).burst(30)].into(),
        [stepped, Quota::new(7, SECOND).burst(9).stepped()].into(),
        Quotas::from(third).quota(stepped).quota_named("minute", Quota::per_minute(100)),
        // No packed levels: its burst has too many units.
        Quota::per_day(1_000_003).into(),
    ]
}

/// Does the same to several limiters, and compares the results.
fn step(random: &mut fastrand::Rng, common: &Quotas, fixtures: &mut [&mut Fixture]) {
    let (kind, key, n) = (random.u8(..12), random.u64(..KEYS), random.u64(0..9));
    let by = Duration::from_nanos([0, 1, 99_999_999, 333_333_333, 1_000_000_000][random.usize(..5)]);
    let own = if n % 2 == 0 { Quotas::from(Quota::per_second(n + 1)) } else { common.clone() };
    let mut results = Vec::new();
    for fixture in fixtures.iter_mut() {
        let keyed = &fixture.keyed;
        match kind {
            0..=2 => fixture.advance(by),
            3 if n == 0 => keyed.pause_all_for(by / 3),
            3 if n == 1 => keyed.resume_all(),
            3 if n == 2 => keyed.resume(&key),
            3 => keyed.pause_for(&key, by / 2),
            4 if n < 3 => keyed.set_quota_for(&key, own.clone()).unwrap(),
            4 => keyed.reset_quota_for(&key),
            5 => {
                if let Ok(mut grant) = keyed.try_acquire(&key, n) {
                    grant.settle(&key, 2 * n / 3 + n % 2 * 4);
                }
            }
            _ => results.push(keyed.try_acquire(&key, n).map(|grant| grant.remaining())),
        }
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{results:?}");
    for key in 0..=KEYS {
        let seen = fixtures.iter().map(|fixture| {
            let keyed = &fixture.keyed;
            let levels = keyed.quota_snapshots(&key).into_iter().map(|quota| (quota.name, quota.level, quota.more_in));
            let levels: Vec<_> = levels.collect();
            (keyed.available(&key), keyed.deficiency(&key), keyed.estimate(&key, 3), keyed.quotas(&key), levels)
        });
        let seen: Vec<_> = seen.collect();
        assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "key {key}: {seen:#?}");
    }
}

fn run(builder: impl Fn(&Quotas) -> KeyedBuilder<u64>) {
    for (index, quotas) in quotas().iter().enumerate() {
        for seed in 0..30 {
            let mut random = fastrand::Rng::with_seed(1_000 * seed + index as u64);
            let mut running = Fixture::new(builder(quotas), begin());
            for _ in 0..4 {
                (0..random.u8(..25)).for_each(|_| step(&mut random, quotas, &mut [&mut running]));
                let state = running.save();
                running.advance(Duration::from_nanos(random.u64(0..3_000_000_000) * u64::from(random.bool())));
                let shards = random.usize(1..5);
                let restored = builder(quotas).shards(shards).restore(state, running.wall_clock);
                let mut restored = Fixture::new(restored, running.wall_clock);
                (0..random.u8(..25)).for_each(|_| step(&mut random, quotas, &mut [&mut running, &mut restored]));
                running = restored;
            }
        }
    }
}

#[test]
fn a_restored_keyed_limiter_is_the_one_that_kept_running() {
    run(|quotas| KeyedLimiter::builder().quotas(quotas.clone()));
}

#[test]
fn so_it_is_with_an_in_flight_cap() {
    run(|quotas| KeyedLimiter::builder().quotas(quotas.clone()).max_in_flight(1_000));
}

#[test]
fn so_it_is_with_quotas_by_key() {
    run(|quotas| {
        let quotas = quotas.clone();
        let by_key = move |key: &u64| if *key < 4 { quotas.clone() } else { Quota::per_second(5).into() };
        KeyedLimiter::builder().quota_by(by_key)
    });
}

#[test]
fn a_clock_that_stepped_back_gives_nothing_and_steps_come_no_earlier() {
    let quotas: Quotas = [Quota::new(4, SECOND).burst(6).stepped(), Quota::per_second(10)].into();
    let mut running = Fixture::new(KeyedLimiter::builder().quotas(quotas.clone()), begin());
    running.advance(SECOND * 7 / 10);
    let _ = running.keyed.try_acquire(&1, 6).unwrap();
    running.advance(SECOND / 10);
    let far = Duration::from_secs(400 * 86_400);
    for wall_clock in [running.wall_clock - far, running.wall_clock - SECOND / 2, running.wall_clock + far] {
        let restored = KeyedLimiter::builder().quotas(quotas.clone()).restore(running.save(), wall_clock);
        let mut restored = Fixture::new(restored, wall_clock);
        let mut levels = Vec::new();
        for _ in 0..4 {
            levels.push(restored.keyed.available(&1));
            restored.advance(SECOND / 10);
        }
        assert_eq!(levels, [0, 0, 4, 4], "the step is 0.2 s away, as when it was saved");
    }
}

#[test]
fn waiters_are_not_saved() {
    let mut fixture = Fixture::new(KeyedLimiter::builder().quota(Quota::per_second(10)), begin());
    let keyed = fixture.keyed.clone();
    let mut grant = keyed.try_acquire(&1, 8).unwrap();
    let waiting = pending(keyed.consume(&1, 40));
    fixture.advance(SECOND / 5);
    let restored = |fixture: &Fixture| {
        let restored = KeyedLimiter::builder().quota(Quota::per_second(10)).clock(ManualClock::new());
        let restored = restored.restore(fixture.save(), fixture.wall_clock).build().unwrap();
        assert_eq!(restored.snapshot().waiting_tasks, 0);
        (restored.available(&1), restored.deficiency(&1))
    };
    assert_eq!(restored(&fixture), (4, 0));
    grant.settle(&1, 15);
    assert_eq!(restored(&fixture), (0, 3));
    drop(waiting);
    assert_eq!((keyed.available(&1), keyed.deficiency(&1)), (0, 3));
}

#[test]
fn more_keys_than_the_bound_are_restored_and_new_ones_refused() {
    let build = |most| KeyedLimiter::builder().quota(Quota::per_second(1).burst(2)).max_keys(most);
    let fixture = Fixture::new(build(9), begin());
    (0..9).for_each(|key| drop(fixture.keyed.try_acquire(&key, 2).unwrap()));
    // Whatever the order of the keys is, the map is full before the last one of these.
    (4..9).for_each(|key| fixture.keyed.set_quota_for(&key, Quota::per_second(1).burst(3)).unwrap());
    (4..9).for_each(|key| fixture.keyed.replenish(&key, 3));
    let mut restored = Fixture::new(build(4).restore(fixture.save(), fixture.wall_clock), begin());
    assert!((0..9).all(|key| restored.keyed.available(&key) == if key < 4 { 0 } else { 3 }));
    assert!(restored.keyed.try_acquire(&10, 1).is_err());
    (4..9).for_each(|key| restored.keyed.reset_quota_for(&key));
    restored.advance(2 * SECOND);
    assert!(restored.keyed.try_acquire(&10, 1).is_ok());
}

#[test]
fn what_time_refills_while_shards_are_saved_is_refilled_once() {
    let quotas: Quotas = [Quota::per_second(10).burst(1_000), Quota::new(40, SECOND).burst(900).stepped()].into();
    let build = || KeyedLimiter::builder().quotas(quotas.clone());
    // The clock advances by `step` with each reading.
    let (nanos, step, tick) =
        (Arc::new(AtomicU64::new(1_000 * 1_000_000_000)), Arc::new(AtomicU64::new(0)), 10_000_000);
    let (shown, by) = (Arc::clone(&nanos), Arc::clone(&step));
    let clock = ClockFn::manual(move || Duration::from_nanos(shown.fetch_add(by.load(Relaxed), Relaxed)));
    let keyed = build().clock(clock).build().unwrap();
    (0..2_000_u64).for_each(|key| drop(keyed.try_acquire(&key, 700).unwrap()));
    let begun = nanos.load(Relaxed);
    step.store(tick, Relaxed);
    let state = through(&keyed.state_at(begin()));
    step.store(0, Relaxed);
    let took = nanos.load(Relaxed) - begun;
    assert!(state.len() == 2_000 && took > 200 * tick, "each shard is saved at an instant of its own");
    for offline in [0, 1_700_000_000] {
        let restored = build().clock(ManualClock::new());
        let restored = restored.restore(state.clone(), begin() + Duration::from_nanos(offline)).build().unwrap();
        // The last reading of the time was a tick before the end.
        nanos.store(begun + took - tick + offline, Relaxed);
        let levels = |keyed: &KeyedLimiter<u64>, key| {
            let quotas = keyed.quota_snapshots(&key).into_iter();
            quotas.map(|quota| (quota.level, quota.more_in)).collect::<Vec<_>>()
        };
        assert!((0..2_000).all(|key| levels(&keyed, key) == levels(&restored, key)), "after {offline} ns");
    }
}

#[test]
fn keys_in_dry_run_are_saved_within_their_bursts() {
    let quota = || Quotas::from(Quota::per_second(10));
    let builder = || KeyedLimiter::builder().quota_by(move |_: &u64| quota());
    let saved = Fixture::new(builder().dry_run(), begin());
    for key in 0..KEYS {
        assert!(saved.keyed.try_acquire(&key, 3 + 20 * (key % 2)).is_ok());
    }
    let state = saved.save();
    let restored = Fixture::new(builder().restore(state, saved.wall_clock), saved.wall_clock);
    assert!((0..KEYS).all(|key| restored.keyed.available(&key) <= 10));
}

/// Key 1 has a waiter, key 2 does not, and both are paused by themselves. Key 3 has a waiter and is not.
#[test]
fn the_pauses_of_a_key_and_of_all_keys_are_saved_apart() {
    let builder = || KeyedLimiter::builder().quota(Quota::per_second(10));
    let saved = Fixture::new(builder(), begin());
    let seconds = Duration::from_secs;
    [1, 2].iter().for_each(|key| saved.keyed.pause_for(key, seconds(3)));
    saved.keyed.pause_all_for(seconds(9));
    let _waiting = [1, 3].map(|key| pending(saved.keyed.clone().consume_owned(key, 1)));
    let restored = Fixture::new(builder().restore(saved.save(), saved.wall_clock), saved.wall_clock);
    let estimates = || [1, 2, 3].map(|key| restored.keyed.estimate(&key, 1).unwrap());
    assert_eq!(estimates(), [seconds(9); 3]);
    restored.keyed.resume_all();
    assert_eq!(estimates(), [seconds(3), seconds(3), seconds(0)]);
}
