//! Grants that grow, and reservations of several resources that are dropped in the middle of their work.

use crate::fixture::*;

#[test]
fn a_grant_that_grows_charges_at_once_and_never_waits() {
    let fixture = Fixture::new(one_per_milli(10));
    fixture.pass(Duration::from_millis(10));
    let mut grant = fixture.take(4);
    grant.grow(20);
    assert_eq!((grant.cost(), fixture.limiter.available(), fixture.limiter.deficiency()), (24, 0, 14));
    grant.grow(0);
    grant.settle(3);
    assert_eq!((grant.cost(), fixture.limiter.deficiency()), (3, 0));
    grant.grow(u64::MAX);
    assert!(grant.cost() <= 3 + (1 << 48), "a debt is limited");
}

#[test]
fn growing_within_the_quota_waits_in_the_queue() {
    let fixture = Fixture::new(one_per_milli(10));
    fixture.pass(Duration::from_millis(10));
    let mut grant = fixture.take(10);
    let mut ahead = fixture.enter(5);
    let mut growing = pending(grant.grow_within(3));
    fixture.pass(Duration::from_millis(5));
    assert!(ahead.is_woken() && !growing.is_woken(), "first come, first served");
    drop(assert_ready_ok!(ahead.poll()));
    fixture.pass(Duration::from_millis(3));
    assert_ready_ok!(growing.poll());
    drop(growing);
    assert_eq!(grant.cost(), 13);
}

#[test]
fn growth_that_is_cancelled_or_refused_changes_nothing() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(20)).max_in_flight(16));
    fixture.pass(Duration::from_millis(20));
    let mut grant = fixture.take(10);
    let other = fixture.take(4);
    let growing = pending(grant.grow_within(3));
    drop(growing);
    assert_eq!(grant.cost(), 10);
    let refusal = assert_ready_err!(spawn(grant.grow_within(17)).poll());
    assert_eq!(refusal, too_large(17, 6, Bound::InFlight));
    assert_eq!(grant.cost(), 10);
    assert_ready_ok!(spawn(grant.grow_within(2)).poll());
    assert_eq!(fixture.limiter.snapshot().in_flight, Some(16));
    drop((grant, other));
    assert_eq!(fixture.limiter.snapshot().in_flight, Some(0));
}

/// Otherwise the claim for the growth would wait at the front of the queue for tokens that its own grant holds.
#[test]
fn growth_beyond_the_cap_beside_what_the_grant_holds_is_too_large() {
    let fixture = Fixture::built(Limiter::builder().quota(one_per_milli(100)).max_in_flight(12));
    fixture.pass(Duration::from_millis(100));
    let mut grant = fixture.take(10);
    let too_large = |cost: u64, most: u64| too_large(cost, most, Bound::InFlight);
    assert_eq!(assert_ready_err!(spawn(grant.grow_within(3)).poll()), too_large(3, 2));
    drop(fixture.take(2));
    assert_eq!(fixture.limiter.snapshot().refused, 1);
    grant.grow(5);
    assert_eq!(assert_ready_err!(spawn(grant.grow_within(1)).poll()), too_large(1, 0));
    assert_ready_ok!(spawn(grant.grow_within(0)).poll());
    grant.settle(10);
    assert_ready_ok!(spawn(grant.grow_within(2)).poll());
    assert_eq!((grant.cost(), fixture.limiter.snapshot().in_flight), (12, Some(12)));
    // A raised cap counts at once. A lowered cap holds the waiting growth back, like any other claim.
    fixture.limiter.set_max_in_flight(20).unwrap();
    let other = fixture.take(3);
    let mut growing = pending(grant.grow_within(8));
    fixture.limiter.set_max_in_flight(14).unwrap();
    drop(other);
    assert_pending!(growing.poll());
    fixture.limiter.set_max_in_flight(20).unwrap();
    assert!(growing.is_woken());
    assert_ready_ok!(growing.poll());
    drop(growing);
    fixture.limiter.close();
    assert_eq!(assert_ready_err!(spawn(grant.grow_within(3)).poll()), ConsumeError::Closed);
}

/// Requests, input tokens, output tokens, tokens in flight.
fn provider(clock: &ManualClock) -> [Limiter; 4] {
    let limiter = |quota: Quota| Limiter::builder().quota(quota).clock(clock.clone());
    [
        limiter(Quota::manual(1 << 40)).build().unwrap(),
        limiter(Quota::manual(1 << 40)).build().unwrap(),
        limiter(Quota::manual(1 << 40)).build().unwrap(),
        limiter(Quota::manual(1 << 40)).max_in_flight(100_000).build().unwrap(),
    ]
}

#[test]
fn ten_thousand_streams_of_which_half_are_aborted_leave_no_reservation() {
    let clock = ManualClock::new();
    let limiters = provider(&clock);
    let [requests, input, output, in_flight] = &limiters;
    let mut random = fastrand::Rng::with_seed(7);
    let mut streams = std::collections::VecDeque::new();
    let (mut inputs, mut outputs, mut spent) = (0, 0, 0);
    for number in 0..10_000u64 {
        let estimate = 500;
        let claim = reserve([(requests, 1), (input, 100 + number % 900), (output, estimate), (in_flight, 600)]);
        let mut stream = claim.now_or_never().expect("all tokens are available").unwrap();
        inputs += 100 + number % 900;
        spent += 600;
        let mut counted = 0;
        for _ in 0..random.usize(1..12) {
            let chunk = random.u64(1..100);
            stream.count(2, chunk);
            counted += chunk;
        }
        if random.bool() {
            // Aborted: the tokens counted so far stay charged.
            outputs += counted;
            if random.bool() {
                let thrown = catch_unwind(AssertUnwindSafe(|| {
                    let _stream = stream;
                    panic!("in the middle of the stream");
                }));
                assert!(thrown.is_err());
                continue;
            }
        } else {
            // The final bill replaces the count.
            let billed = counted + random.u64(0..5);
            stream.settle(2, billed);
            outputs += billed;
        }
        streams.push_back(stream);
        if streams.len() > 100 {
            streams.pop_front();
        }
    }
    assert_eq!(in_flight.snapshot().in_flight, Some(600 * streams.len() as u64));
    drop(streams);
    let left = limiters.each_ref().map(|limiter| {
        let seen = limiter.snapshot();
        (seen.granted - seen.refunded, seen.in_flight.unwrap_or(0), seen.waiting_tasks, limiter.deficiency())
    });
    assert_eq!(left, [(10_000, 0, 0, 0), (inputs, 0, 0, 0), (outputs, 0, 0, 0), (spent, 0, 0, 0)]);
}

#[test]
fn a_reservation_that_is_cancelled_or_refused_takes_nothing() {
    let clock = ManualClock::new();
    let [requests, input, ..] = provider(&clock);
    let by_hand = Limiter::builder().quota(Quota::manual(10).initial(0)).clock(clock).build().unwrap();
    let waiting = pending(reserve([(&requests, 1), (&by_hand, 5)]));
    drop(waiting);
    by_hand.replenish(10);
    assert_eq!((requests.snapshot().granted, by_hand.available()), (0, 10));
    by_hand.close();
    let refused = spawn(reserve([(&requests, 1), (&input, 5), (&by_hand, 1)])).poll().map(|it| it.unwrap_err());
    let closed = JoinError::Refused { limiter: 2, error: ConsumeError::Closed };
    assert_eq!(refused, std::task::Poll::Ready(closed));
    assert_eq!((requests.snapshot().granted, input.snapshot().granted), (0, 0));
}

#[test]
fn a_reservation_waits_no_longer_than_it_may() {
    let fixture = Fixture::new(one_per_milli(10));
    let other = Limiter::builder().quota(Quota::manual(10)).clock(fixture.clock.clone()).build().unwrap();
    let claims = [(&fixture.limiter, 5), (&other, 1)];
    let mut refused = spawn(reserve(claims).within(Duration::from_millis(4)));
    let too_late = assert_ready_err!(refused.poll());
    assert!(matches!(too_late, JoinError::Refused { limiter: 0, error: ConsumeError::TooLate { .. } }), "{too_late}");
    let mut granted = pending(reserve(claims).within(Duration::from_millis(5)));
    fixture.pass(Duration::from_millis(5));
    assert_eq!(assert_ready_ok!(granted.poll()).cost(0), 5);
    assert_eq!(other.available(), 9);
}

#[test]
fn what_was_never_counted_stays_charged() {
    let clock = ManualClock::new();
    let [requests, input, output, _] = provider(&clock);
    let mut stream = reserve([(&requests, 1), (&input, 70), (&output, 50)]).now_or_never().unwrap().unwrap();
    stream.count(2, 0);
    assert_eq!([0, 1, 2].map(|resource| stream.cost(resource)), [1, 70, 50]);
    drop(stream);
    let charged = [&requests, &input, &output].map(|limiter| limiter.snapshot().granted - limiter.snapshot().refunded);
    assert_eq!(charged, [1, 70, 0]);
}

#[test]
fn what_is_counted_after_a_settle_comes_on_top() {
    let clock = ManualClock::new();
    let [requests, _, output, _] = provider(&clock);
    let mut stream = reserve([(&requests, 1), (&output, 50)]).now_or_never().unwrap().unwrap();
    stream.count(1, 40);
    stream.settle(1, 30);
    stream.count(1, 5);
    assert_eq!(stream.cost(1), 35);
    drop(stream);
    assert_eq!(output.snapshot().granted - output.snapshot().refunded, 35);
}

#[test]
fn what_grows_after_a_settle_stays_charged() {
    let clock = ManualClock::new();
    let [requests, _, output, _] = provider(&clock);
    let mut stream = reserve([(&requests, 1), (&output, 50)]).now_or_never().unwrap().unwrap();
    stream.settle(1, 30);
    stream.grow_within(1, 10).now_or_never().unwrap().unwrap();
    drop(stream);
    assert_eq!(output.snapshot().granted - output.snapshot().refunded, 40);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_grows_within_its_quota() {
    let tokens = Limiter::new(Quota::per_second(100).burst(10)).unwrap();
    let mut stream = reserve([(&tokens, 10)]).await.unwrap();
    let began = tokio::time::Instant::now();
    stream.grow_within(0, 20).await.unwrap();
    assert_eq!((stream.cost(0), began.elapsed()), (30, Duration::from_millis(200)));
}
