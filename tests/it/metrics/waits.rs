//! The waiting times, exact to the nanosecond, and no series for grants without waiting.

use crate::fixture::*;

use metrics::{set_default_local_recorder, with_local_recorder};
use tollgate::metrics::Meter;

use super::TestRecorder;
use crate::observed_events::{MILLI, built, by_hand, grants_at_once};

#[test]
fn grants_without_waiting_record_nothing() {
    let (recorder, (limiter, _clock)) = (TestRecorder::new(), by_hand(1_000));
    let _meter = Meter::new("api", &limiter).unwrap();
    with_local_recorder(&recorder.inner, || {
        grants_at_once(&limiter);
        assert!(limiter.try_acquire(401).is_err(), "refusals record nothing either");
    });
    assert!(recorder.read().0.is_empty());
}

#[test]
fn a_wait_is_recorded_when_it_ends_by_how_it_ended() {
    let (recorder, (limiter, clock)) = (TestRecorder::new(), by_hand(1));
    let _meter = Meter::new("api", &limiter).unwrap();
    with_local_recorder(&recorder.inner, || {
        let _ = limiter.try_acquire(1).unwrap();
        let mut granted = pending(limiter.consume(3));
        let left = pending(limiter.clone().consume_owned(1));
        let granted_unseen = pending(limiter.consume(1));
        let mut late = pending(limiter.consume(1).within(7 * MILLI));
        let mut closed = pending(limiter.consume(100));
        clock.advance(2 * MILLI);
        drop(left);
        assert_eq!(recorder.read().waits("left"), [2_000_000]);
        tick_after(&clock, &limiter, MILLI);
        assert!(recorder.read().waits("allow").is_empty(), "the waiting task records its wait");
        assert_ready_ok!(granted.poll()).settle(3);
        limiter.pause_for(30 * MILLI);
        clock.advance(4 * MILLI);
        assert_ready_err!(late.poll());
        let values = recorder.read();
        assert_eq!((values.waits("allow"), values.waits("deny")), (vec![3_000_000], vec![7_000_000]));
        tick_after(&clock, &limiter, 26 * MILLI + MILLI);
        assert!(granted_unseen.is_woken());
        drop(granted_unseen);
        clock.advance(MILLI);
        limiter.close();
        assert_ready_err!(closed.poll());
    });
    let values = recorder.read();
    assert_eq!((values.waits("left"), values.waits("deny")), (vec![34_000_000], vec![35_000_000]));
}

#[test]
fn a_joint_claim_is_a_wait_in_each_of_its_queues() {
    let recorder = TestRecorder::new();
    let ((first, clock), (second, other_clock), (free, _)) = (by_hand(1), by_hand(1), by_hand(1));
    let named = [("first", &first), ("api", &second), ("free", &free)];
    let _meters = named.map(|(name, limiter)| Meter::new(name, limiter).unwrap());
    with_local_recorder(&recorder.inner, || {
        let mut both = pending(join([(&first, 2), (&second, 3), (&free, 0)]));
        let left = pending(join([(&first, 1), (&second, 1)]));
        for _ in 0..2 {
            clock.advance(MILLI);
            tick_after(&other_clock, &first, MILLI);
            second.tick();
        }
        drop(left);
        let _ = assert_ready_ok!(both.poll());
    });
    let values = recorder.read();
    assert_eq!((values.waits("allow"), values.waits("left")), (vec![2_000_000], vec![2_000_000]));
    assert_eq!(values.0.len(), 4, "two of each, and none for the free member: {values:#?}");
}

/// A blocked thread waits in the same queue.
#[test]
fn a_thread_that_blocks_is_a_wait() {
    let recorder = TestRecorder::new();
    let limiter = Limiter::new(Quota::new(1, MILLI).burst(1)).unwrap();
    let _meter = Meter::new("api", &limiter).unwrap();
    with_local_recorder(&recorder.inner, || (0..3).for_each(|_| drop(limiter.blocking_consume(2).unwrap())));
    let waits = recorder.read().waits("allow");
    assert!(waits.len() >= 2 && waits.iter().all(|wait| *wait > 0), "{waits:?}");
}

#[test]
fn a_meter_built_during_a_wait_counts_from_the_next_on() {
    let (recorder, (limiter, clock)) =
        (TestRecorder::new(), built(Limiter::builder().quota(Quota::new(1, MILLI).initial(0))));
    with_local_recorder(&recorder.inner, || {
        let mut before = pending(limiter.consume(1));
        let _meter = Meter::new("api", &limiter).unwrap();
        let mut after = pending(limiter.consume(1));
        tick_after(&clock, &limiter, 2 * MILLI);
        let _ = (assert_ready_ok!(before.poll()), assert_ready_ok!(after.poll()));
    });
    assert_eq!(recorder.read().waits("allow"), [2_000_000]);
}

#[tokio::test(start_paused = true)]
async fn paced_items_and_bytes_are_waits() {
    use futures::StreamExt;
    use tokio::io::AsyncWriteExt;
    use tollgate::{io::PaceIoExt, stream::PaceStreamExt};

    let recorder = TestRecorder::new();
    let _here = set_default_local_recorder(&recorder.inner);
    let limiter = Limiter::new(Quota::per_second(100).burst(1)).unwrap();
    let _meter = Meter::new("api", &limiter).unwrap();
    let items: Vec<_> = futures::stream::iter(0..3).pace(&limiter).collect().await;
    assert_eq!(items.len(), 3);
    tokio::io::sink().pace_writes(&limiter).write_all(&[7; 2]).await.unwrap();
    assert_eq!(recorder.read().waits("allow"), [10_000_000; 4]);
}
