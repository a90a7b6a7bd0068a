//! Large numbers: long chains of joint claims, and threads that race.

use super::{MS, empty, on_a_clock, spent, tick};
use crate::fixture::*;

const CLAIMS: usize = if cfg!(miri) { 40 } else { 10_000 };
/// How long the test waits before it reports a hang. It bounds nothing else.
const LONG: Duration = Duration::from_secs(if cfg!(miri) { 3_600 } else { 180 });

/// This many; a hundredth of it under Miri.
const fn many(count: usize) -> usize {
    if cfg!(miri) { count.div_ceil(100) } else { count }
}

#[test]
fn ten_thousand_joint_claims_due_at_once_are_served_by_one_tick() {
    let (clock, [a, b]) = on_a_clock([empty(CLAIMS as u64), Quota::manual(CLAIMS as u64).initial(0).into()]);
    let waiters: Vec<_> = (0..CLAIMS).map(|_| pending(join([(&a, 1), (&b, 1)]))).collect();
    clock.advance(CLAIMS as u32 * MS);
    tick(&[&a, &b]);
    assert_eq!(spent(&a), 0);
    on_a_small_stack(|| b.replenish(CLAIMS as u64));
    assert!(waiters.iter().all(|claim| claim.is_woken()));
    assert_eq!((spent(&a), spent(&b)), (CLAIMS as u64, CLAIMS as u64));
}

#[test]
fn ten_thousand_claims_in_a_circle_of_queues_are_served_by_one_tick_of_each() {
    let (_clock, limiters) = on_a_clock([(); 3].map(|()| Quota::manual(CLAIMS as u64).initial(0).into()));
    let pair = |place: usize| [(&limiters[place % 3], 1), (&limiters[(place + 1) % 3], 1)];
    let waiters: Vec<_> = (0..CLAIMS).map(|place| pending(join(pair(place)))).collect();
    on_a_small_stack(|| limiters.iter().for_each(|limiter| limiter.replenish(CLAIMS as u64)));
    assert!(waiters.iter().all(|claim| claim.is_woken()));
}

#[test]
fn closing_removes_ten_thousand_claims_from_the_other_queue_too() {
    let (_clock, [a, b]) = on_a_clock([empty(1), empty(1)]);
    let waiters: Vec<_> = (0..CLAIMS).map(|_| pending(join([(&a, 1), (&b, 1)]))).collect();
    on_a_small_stack(|| a.close());
    assert!(waiters.iter().all(|claim| claim.is_woken()));
    assert_eq!((a.snapshot().waiting_tasks, b.snapshot().waiting_tasks), (0, 0));
}

fn on_a_small_stack(act: impl FnOnce() + Send) {
    thread::scope(|scope| {
        thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, act).unwrap().join().unwrap();
    });
}

/// Many threads use two limiters, each thread on a runtime of its own: joint claims in both orders, plain claims
/// between them, and one claim in five is dropped while it waits.
fn rush(limiters: &[Limiter; 2], number: u64, turns: usize, granted: impl Fn(usize) + Copy) {
    let [a, b] = limiters;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let coming_and_going = async {
        for turn in 0..turns as u64 {
            let claims = if (turn + number).is_multiple_of(2) { [(a, 1), (b, 1)] } else { [(b, 1), (a, 1)] };
            match turn % 5 {
                0 => {
                    if futures::poll!(std::pin::pin!(join(claims))).is_ready() {
                        granted(0);
                        granted(1);
                    }
                }
                1 => {
                    let _grant = limiters[number as usize % 2].consume(1).await.unwrap();
                    granted(number as usize % 2);
                }
                _ => {
                    let _grants = join(claims).await.unwrap();
                    granted(0);
                    granted(1);
                    tokio::task::yield_now().await;
                }
            }
        }
    };
    runtime.block_on(async { timeout(LONG, coming_and_going).await.expect("a claim waits for ever") });
}

#[test]
fn threads_never_see_more_granted_than_was_minted_nor_more_in_flight_than_the_cap() {
    const RATE: u64 = 1_000_000;
    const BURST: u64 = 3;
    let clock = ManualClock::new();
    let build = || {
        let quota = Quota::per_second(RATE).burst(BURST);
        Limiter::builder().quota(quota).max_in_flight(3).clock(clock.clone()).build().unwrap()
    };
    let (limiters, began) = ([build(), build()], clock.now());
    let (tokens, done) = ([AtomicU64::new(0), AtomicU64::new(0)], AtomicBool::new(false));
    let granted = |queue: usize| {
        let tokens = tokens[queue].fetch_add(1, Ordering::SeqCst) + 1;
        let micros = (clock.now() - began).as_micros() as u64;
        assert!(tokens <= BURST + micros, "{tokens} tokens by {micros} us");
        assert!(limiters[queue].snapshot().in_flight <= Some(3));
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                clock.advance(Duration::from_micros(1));
                limiters.iter().for_each(Limiter::tick);
                thread::yield_now();
            }
        });
        let threads = [0, 1, 2].map(|number| {
            let (limiters, granted) = (&limiters, &granted);
            scope.spawn(move || rush(limiters, number, many(1_000), granted))
        });
        let outcomes = threads.map(|thread| thread.join());
        done.store(true, Ordering::SeqCst);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
    for (limiter, tokens) in limiters.iter().zip(&tokens) {
        let seen = limiter.snapshot();
        assert_eq!((seen.waiting_tasks, seen.in_flight), (0, Some(0)));
        assert_eq!(seen.granted - seen.refunded, tokens.load(Ordering::SeqCst));
    }
}

#[test]
fn a_close_under_load_ends_all_claims() {
    let build = || Limiter::new(Quota::per_second(1_000_000).burst(1)).unwrap();
    let limiters = Arc::new([build(), build()]);
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let limiters = limiters.clone();
            thread::spawn(move || {
                let [a, b] = &*limiters;
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let claims = || if number % 2 == 0 { [(a, 1), (b, 1)] } else { [(b, 1), (a, 1)] };
                let until_closed = async { while join(claims()).await.is_ok() {} };
                runtime.block_on(async { timeout(LONG, until_closed).await.expect("a claim waits for ever") });
            })
        })
        .collect();
    while spent(&limiters[0]) < many(100) as u64 {
        thread::yield_now();
    }
    limiters[1].close();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(limiters.each_ref().map(|limiter| limiter.snapshot().waiting_tasks), [0, 0]);
    assert!(limiters[0].try_acquire(1).is_ok() || limiters[0].estimate(1).is_some(), "the open limiter still works");
}
