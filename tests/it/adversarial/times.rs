//! Clocks that stop, jump, step back, disagree with themselves, or reach the end of time.

use super::*;

const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
/// 2^64 ns: none, if they are counted in 64 bits and the rest is cut off. (`Duration::MAX` would be `u64::MAX`.)
const PAST_THE_END: Duration = Duration::new(18_446_744_073, 709_551_616);

#[test]
fn a_token_in_a_century_comes_to_the_nanosecond() {
    for quota in [Quota::new(1, CENTURY).initial(0), Quota::new(1, CENTURY).initial(0).stepped()] {
        everywhere(|builder, clock| {
            let limiter = builder.quota(quota).build().unwrap();
            assert_eq!(denied(limiter.try_acquire(1)).retry_after, Some(CENTURY));
            clock.advance(CENTURY - NANO);
            assert_eq!(denied(limiter.try_acquire(1)).retry_after, Some(NANO));
            clock.advance(NANO);
            drop(limiter.try_acquire(1).unwrap());
            let mut queue = Queue::new(&limiter);
            queue.enter(3);
            assert_eq!(limiter.estimate(1), Some(CENTURY * 4));
            clock.advance(CENTURY * 3 - NANO);
            assert_eq!(queue.serve(), 0);
            clock.advance(NANO);
            assert_eq!(queue.serve(), 3);
            limiter.snapshot()
        });
    }
}

/// The clock goes from 0 to the very last nanosecond: `ManualClock` starts at a year and never gets that far.
#[test]
fn a_period_of_all_time_brings_its_token_in_the_last_nanosecond() {
    let all = Quota::new(1, Duration::from_nanos(u64::MAX)).initial(0);
    for quota in [all, all.stepped()] {
        let (nanos, clock) = shown(ClockFn::manual);
        let limiter = Limiter::builder().quota(quota).clock(clock).build().unwrap();
        let mut queue = Queue::new(&limiter);
        queue.enter(1);
        nanos.store(u64::MAX - 1, SeqCst);
        assert_eq!(queue.serve(), 0);
        nanos.store(u64::MAX, SeqCst);
        assert_eq!(queue.serve(), 1);
    }
}

/// A claim due after the end of time is not due at the end of time: where a sum of nanoseconds saturates, no claim may
/// pass.
#[test]
fn a_claim_due_after_the_end_of_time_is_not_granted_at_its_end() {
    let all = Quota::new(1, Duration::from_nanos(u64::MAX)).initial(0);
    let quotas: [&[Quota]; 4] =
        [&[all], &[all.stepped()], &[all, Quota::per_second(100)], &[Quota::new(1, CENTURY).initial(0)]];
    for quotas in quotas {
        let (nanos, clock) = shown(ClockFn::manual);
        let builder = quotas.iter().fold(Limiter::builder(), |builder, quota| builder.quota(*quota));
        let limiter = builder.clock(clock).build().unwrap();
        let mut queue = Queue::new(&limiter);
        queue.enter(7);
        nanos.store(u64::MAX, SeqCst);
        assert_eq!(queue.serve(), 0, "granted 7 tokens of which {} were minted: {quotas:?}", level(&limiter) + 7);
        limiter.set_quota(0, Quota::per_second(10)).unwrap();
        limiter.replenish(u64::MAX);
        assert_eq!(queue.serve(), 7, "a manual replenish still brings tokens");
    }
}

/// A ceiling or a floor of a class that falls due after the end of time: no call may look for that instant again and again.
#[test]
fn a_class_due_after_the_end_of_time_is_not_looked_at_for_ever_at_its_end() {
    let slow = Quota::new(1, Duration::from_nanos(u64::MAX)).burst(2).initial(0);
    for share in [Share::weight(1).ceiling(slow), Share::weight(1).floor(slow)] {
        to_its_end(move || {
            let (nanos, clock) = shown(ClockFn::manual);
            let quota = Quota::per_second(10).burst(2).initial(0);
            let limiter = Limiter::builder().quota(quota).classes().clock(clock).build().unwrap();
            let class = limiter.class("slow", share).unwrap();
            let _claims = [2; 3].map(|cost| pending(class.consume(cost)));
            nanos.store(1_000_000_000, SeqCst);
            limiter.tick();
            nanos.store(u64::MAX, SeqCst);
            limiter.tick();
            let mut more = [2; 3].map(|cost| spawn(class.consume(cost)));
            let waiting = more.iter_mut().map(|claim| claim.poll()).filter(Poll::is_pending).count();
            assert!(waiting >= 2, "one at most finds a full bucket");
            limiter.tick();
        });
    }
}

#[test]
fn at_the_end_of_time_available_tokens_are_granted_and_the_rest_needs_a_replenish() {
    everywhere(|builder, clock| {
        let limiter = builder.quota(Quota::per_second(3).burst(5).initial(0)).build().unwrap();
        clock.advance(PAST_THE_END);
        clock.advance(PAST_THE_END);
        drop(limiter.try_acquire(5).unwrap());
        let mut queue = Queue::new(&limiter);
        [2, GIANT, 4].into_iter().for_each(|cost| queue.enter(cost));
        clock.advance(Duration::MAX);
        assert_eq!(queue.serve(), 0);
        limiter.replenish(2);
        assert_eq!(queue.serve(), 2);
        queue.cancel(0);
        limiter.replenish(u64::MAX);
        assert_eq!(queue.serve(), 4);
        limiter.snapshot()
    });
}

#[test]
fn a_pause_to_the_end_of_time_delays_all_claims_until_the_limiter_is_closed() {
    everywhere(|builder, clock| {
        let limiter = builder.quota(Quota::per_second(3).burst(5)).build().unwrap();
        let mut queue = Queue::new(&limiter);
        limiter.pause_for(PAST_THE_END);
        limiter.pause_for(NANO);
        limiter.pause_until(tokio::time::Instant::now());
        let denied = denied(limiter.try_acquire(1));
        assert_eq!((denied.by, denied.remaining), (Bound::Pause, 0));
        [1, GIANT, 5].into_iter().for_each(|cost| queue.enter(cost));
        clock.advance(Duration::MAX);
        limiter.replenish(u64::MAX);
        assert_eq!((queue.serve(), limiter.available()), (0, 0));
        limiter.close();
        for mut waiting in queue.waiting {
            assert_eq!(waiting.poll().map(Result::unwrap_err), Poll::Ready(ConsumeError::Closed));
        }
        limiter.snapshot()
    });
}
