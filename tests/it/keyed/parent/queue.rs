//! Claims of keys in the queue of their parent.

use super::pair;
use crate::fixture::*;

#[test]
fn a_key_finds_tokens_of_the_parent_behind_a_queue_served_in_batches() {
    let clock = ManualClock::new();
    let quota = Quota::per_second(1_000).initial(0);
    let global = Limiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
    let builder = KeyedLimiter::builder().quota(Quota::per_second(10)).max_in_flight(10).clock(clock.clone());
    let keyed = builder.parent(&global).build().unwrap();
    clock.advance(Duration::from_millis(1));
    let _grant = keyed.try_acquire(&1, 1).unwrap();
    let mut waiters: Vec<_> = (0..100).map(|_| pending(global.consume(1))).collect();
    clock.advance(Duration::from_millis(101));
    assert_eq!(keyed.try_acquire(&1, 1).map(|grant| grant.remaining()), Ok(8));
    assert!(waiters.iter_mut().all(|waiting| waiting.poll().is_ready()));
}

/// A claim in its queue is due, so the parent is asked a second time.
#[test]
fn a_key_takes_from_a_parent_that_has_to_be_served_first_once() {
    let clock = ManualClock::new();
    let global = Limiter::builder().quota(Quota::per_second(10)).clock(clock.clone()).build().unwrap();
    let builder = KeyedLimiter::builder().quota(Quota::per_second(10)).clock(clock.clone());
    let keyed: KeyedLimiter<u32> = builder.parent(&global).build().unwrap();
    drop(global.try_acquire(10).unwrap());
    let _waiting = pending(global.consume(1));
    clock.advance(SECOND);
    drop(keyed.try_acquire(&1, 3).unwrap());
    assert_eq!(global.available(), 6);
}

/// A call that is refused finds the key's front claim ready, and asks the parent for its tokens.
#[test]
fn a_refused_call_of_a_key_serves_the_claim_before_it() {
    for waits in [false, true] {
        let clock = ManualClock::new();
        let global = Limiter::builder().quota(Quota::per_second(10)).clock(clock.clone()).build().unwrap();
        let builder = KeyedLimiter::builder().quota(Quota::per_second(1).burst(1)).clock(clock.clone());
        let key = builder.parent(&global).build().unwrap().limiter(&1).unwrap();
        drop(key.try_acquire(1).unwrap());
        let front = pending(key.consume(1));
        clock.advance(SECOND);
        let refused = match waits {
            false => key.try_acquire(1).is_err(),
            true => key.consume(1).within(NANO).now_or_never().unwrap().is_err(),
        };
        assert!(refused && front.is_woken());
    }
}

#[test]
fn a_caller_that_finds_claims_of_keys_due_wakes_a_batch_at_most() {
    for keys in [1, 50, 100] {
        let (runtime, (nanos, wall)) = (alone(), shown(ClockFn::moving));
        let _inside = runtime.enter();
        let quota = Quota::per_second(1).initial(0);
        let global = Limiter::builder().quota(quota).clock(wall.clone()).build().unwrap();
        let keyed = KeyedLimiter::builder().clock(wall).parent(&global).build().unwrap();
        let waiters: Vec<_> = (0..100).map(|claim| pending(keyed.clone().consume_owned(claim % keys, 1))).collect();
        nanos.store(200 * SECOND.as_nanos() as u64, Relaxed);
        global.tick();
        let woken: Vec<_> = waiters.iter().map(|claim| claim.is_woken()).collect();
        assert_eq!(woken, (0..100).map(|claim| claim < 32).collect::<Vec<_>>(), "{keys} keys");
    }
}

#[test]
fn claims_that_are_due_ask_the_parent_before_a_late_call_acts_on_their_key() {
    for settles in [false, true] {
        let (clock, _global, keyed) = pair(Quota::per_second(100), Quota::per_second(1));
        let mut grant = keyed.try_acquire(&1, 1).unwrap();
        let mut waiting = [(); 3].map(|()| pending(keyed.consume(&1, 1)));
        let last = pending(keyed.consume(&1, 1));
        clock.advance(3 * SECOND);
        if settles {
            grant.settle(&1, 0);
        } else {
            drop(last);
        }
        waiting.iter_mut().for_each(|claim| drop(assert_ready_ok!(claim.poll())));
    }
}
