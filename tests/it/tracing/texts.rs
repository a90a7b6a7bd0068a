//! The exact texts that a subscriber receives.

use crate::fixture::*;

use super::RecordingSubscriber;
use crate::observed_events::{MILLI, built, by_hand, grants_at_once};

#[test]
fn grants_without_waiting_are_not_reported() {
    let (limiter, _clock) = by_hand(1_000);
    let subscriber = RecordingSubscriber::default();
    subscriber.listen(|| grants_at_once(&limiter));
    assert!(subscriber.read().is_empty());
}

#[test]
fn a_wait_is_a_span_from_the_queue_to_the_grant() {
    let (limiter, clock) = by_hand(1);
    let subscriber = RecordingSubscriber::default();
    subscriber.listen(|| {
        let outer = tracing::info_span!(target: "tracing", "request").entered();
        let (mut first, mut second) = (spawn(limiter.consume(3)), spawn(limiter.clone().consume_owned(5)));
        assert_eq!(subscriber.read(), ["INFO span 1 in 0: request"]);
        assert_pending!(first.poll());
        assert_eq!(subscriber.read(), ["INFO span 2 in 1: rate_limit.wait .cost=3 .estimate=0.002 .queue.ahead=0"]);
        drop(outer);
        assert_pending!(second.poll());
        assert_pending!(first.poll());
        assert_eq!(
            subscriber.read(),
            ["span 1 closed", "INFO span 3 in 0: rate_limit.wait .cost=5 .estimate=0.007 .queue.ahead=1"]
        );
        tick_after(&clock, &limiter, 2 * MILLI);
        assert!(subscriber.read().is_empty(), "the waiting task reports its outcome");
        let _ = assert_ready_ok!(first.poll());
        assert_eq!(subscriber.read(), ["span 2: .result=allow", "span 2 closed"]);
        drop(second);
        assert_eq!(subscriber.read(), ["span 3: .result=left", "span 3 closed"]);
    });
    assert!(subscriber.read().is_empty());
}

#[test]
fn a_refusal_after_a_wait_is_reported_within_its_span() {
    let (limiter, clock) = by_hand(1);
    let subscriber = RecordingSubscriber::default();
    subscriber.listen(|| {
        let mut late = pending(limiter.consume(3).within(4 * MILLI));
        let mut closed = pending(limiter.consume(1));
        subscriber.read();
        limiter.pause_for(10 * MILLI);
        clock.advance(4 * MILLI);
        assert_ready_err!(late.poll());
        let refused = "DEBUG event in 1: error.type=timed_out .cost=3 message=refused: not granted after a \
                       wait of 4ms: delayed by a pause; try later or allow more";
        let status = "span 1: otel.status_description=not granted after a wait of 4ms: delayed by a pause; try \
                      later or allow more";
        let ended = ["span 1: .result=deny", "span 1: error.type=timed_out", "span 1: otel.status_code=ERROR", status];
        assert_eq!(subscriber.read(), [&ended[..], &[refused, "span 1 closed"]].concat());
        limiter.close();
        assert_ready_err!(closed.poll());
        let refused = "DEBUG event in 2: error.type=closed .cost=1 message=refused: the limiter is closed: no more \
                       tokens will be granted";
        let recorded = subscriber.read();
        assert_eq!(recorded[..2], ["span 2: .result=deny", "span 2: error.type=closed"]);
        assert_eq!(recorded[4..], [refused, "span 2 closed"]);
    });
}

#[test]
fn a_refusal_is_an_event_with_its_bound_and_its_wait() {
    let (limiter, clock) = built(Limiter::builder().quota(Quota::new(1, MILLI).burst(2)).max_waiting(0));
    let subscriber = RecordingSubscriber::default();
    subscriber.listen(|| {
        let _ = limiter.try_acquire(2).unwrap();
        clock.advance(MILLI / 4);
        assert!(limiter.try_acquire(1).is_err());
        let first = subscriber.read();
        assert!(limiter.try_acquire(1).is_err());
        assert_eq!(subscriber.read(), first, "the same where the last denial is repeated");
        let denied = "DEBUG event in 0: error.type=quota .cost=1 .retry_after=0.00075 message=refused: \
                      denied by quota 0, 0 tokens remain: retry after 750µs";
        assert_eq!(first, [denied]);
        assert!(limiter.try_acquire(3).is_err());
        let recorded = subscriber.read();
        assert!(
            recorded[0].starts_with("DEBUG event in 0: error.type=too_large .cost=3 message=refused: a cost of 3"),
            "{recorded:?}"
        );
        assert!(!recorded[0].contains("retry_after"), "{recorded:?}");
        assert_ready_err!(spawn(limiter.consume(1)).poll());
        assert!(subscriber.read()[0].starts_with("DEBUG event in 0: error.type=queue_full .cost=1"));
        assert!(try_join([(&limiter, 1)]).is_err());
        assert!(subscriber.read()[0].starts_with("DEBUG event in 0: error.type=quota .cost=1"));
        assert_ready_err!(spawn(join([(&limiter, 1)])).poll());
        assert!(subscriber.read()[0].starts_with("DEBUG event in 0: error.type=queue_full .cost=1"));
    });
    assert!(subscriber.read().is_empty());
}

#[test]
fn the_event_of_a_refusal_names_the_quota() {
    let builder = Limiter::builder().quota_named("minute", Quota::per_minute(60).burst(2)).max_waiting(1);
    let (limiter, clock) = built(builder);
    let _grant = limiter.try_acquire(2).unwrap();
    let subscriber = RecordingSubscriber::default();
    let recorded = || subscriber.read().into_iter().filter(|line| line.starts_with("DEBUG event")).collect::<Vec<_>>();
    subscriber.listen(|| {
        assert!(limiter.try_acquire(1).is_err());
        assert!(limiter.try_acquire(3).is_err());
        assert_ready_err!(spawn(limiter.consume(1).within(MILLI)).poll());
        let mut waiting = pending(limiter.consume(1).within(1_000 * MILLI));
        limiter.set_quota("minute", Quota::per_minute(1)).unwrap();
        clock.advance(1_000 * MILLI);
        assert_ready_err!(waiting.poll());
        let kinds = ["quota", "too_large", "too_late", "timed_out"];
        for (line, kind) in recorded().iter().zip(kinds) {
            assert!(line.contains(&format!(" error.type={kind} ")) && line.contains(" .quota.name=minute "), "{line}");
        }
        let _waiting = pending(limiter.consume(1));
        assert_ready_err!(spawn(limiter.consume(1)).poll());
        let line = recorded();
        assert!(line.len() == 1 && !line[0].contains("quota.name"), "the queue is full: {line:?}");
    });
}

#[test]
fn the_event_of_a_refusal_by_a_ceiling_names_the_class_that_has_it() {
    let (limiter, _clock) = built(Limiter::builder().quota(Quota::per_second(100)).classes());
    let bulk = limiter.class("bulk", Share::weight(1).ceiling(Quota::per_hour(2))).unwrap();
    let nightly = bulk.class("nightly", Share::weight(1)).unwrap();
    let _grant = nightly.try_acquire(2).unwrap();
    let subscriber = RecordingSubscriber::default();
    subscriber.listen(|| assert!(nightly.try_acquire(1).is_err()));
    let recorded = subscriber.read();
    assert!(
        recorded[0].contains(" .class.name=bulk/nightly ") && recorded[0].contains(" .quota.name=bulk "),
        "{recorded:?}"
    );
}

#[test]
fn a_refusal_as_too_late_reports_by_how_much() {
    let (limiter, _clock) = by_hand(1);
    let subscriber = RecordingSubscriber::default();
    subscriber.listen(|| assert_ready_err!(spawn(limiter.consume(11).within(4 * MILLI)).poll()));
    let recorded = subscriber.read();
    assert!(
        recorded[0].starts_with("DEBUG event in 0: error.type=too_late .cost=11")
            && recorded[0].contains(" .retry_after=0.006 "),
        "{recorded:?}"
    );
    assert_eq!(recorded.len(), 1);
}

/// An estimate that needs a step per waiter is not reported.
#[test]
fn behind_several_quotas_the_first_waiter_has_an_estimate() {
    let (limiter, _clock) =
        built(Limiter::builder().quota(Quota::new(1, MILLI).initial(0)).quota(Quota::per_second(10).initial(0)));
    let subscriber = RecordingSubscriber::default();
    subscriber.listen(|| {
        let (_first, _second) = (pending(limiter.consume(1)), pending(limiter.consume(1)));
        let expected = [
            "INFO span 1 in 0: rate_limit.wait .cost=1 .estimate=0.1 .queue.ahead=0",
            "INFO span 2 in 0: rate_limit.wait .cost=1 .queue.ahead=1",
        ];
        assert_eq!(subscriber.read(), expected);
    });
}

#[test]
fn a_joint_claim_is_a_span_in_each_of_its_queues() {
    let ((first, clock), (second, _)) = (by_hand(1), by_hand(1));
    let subscriber = RecordingSubscriber::default();
    subscriber.listen(|| {
        let _before = pending(first.consume(2));
        let mut joint = pending(join([(&first, 2), (&second, 1)]));
        let entered = [
            "INFO span 2 in 0: rate_limit.wait .cost=2 .queue.ahead=1",
            "INFO span 3 in 0: rate_limit.wait .cost=1 .queue.ahead=0",
        ];
        assert_eq!(subscriber.read()[1..], entered);
        // Limiters with clocks of their own look at joint claims when they are served.
        for advance in [MILLI, 2 * MILLI] {
            tick_after(&clock, &first, advance);
        }
        let _ = assert_ready_ok!(joint.poll());
        let granted = ["span 2: .result=allow", "span 2 closed", "span 3: .result=allow", "span 3 closed"];
        assert_eq!(subscriber.read(), granted);
        let mut refused = pending(join([(&first, 5), (&second, 5)]));
        subscriber.read();
        second.close();
        assert_ready_err!(refused.poll());
        let recorded = subscriber.read();
        assert_eq!((recorded[1].as_str(), recorded[5].as_str()), ("span 5: error.type=closed", "span 5 closed"));
        assert_eq!(recorded[6..], ["span 4: .result=left", "span 4 closed"]);
    });
}

#[test]
fn the_waits_and_refusals_of_keys_are_reported_without_their_names() {
    let clock = tollgate::ManualClock::new();
    let quota = Quota::new(1, MILLI).burst(1);
    let users = tollgate::KeyedLimiter::builder().quota(quota).clock(clock.clone()).build().unwrap();
    let subscriber = RecordingSubscriber::default();
    subscriber.listen(|| {
        let _ = users.try_acquire(&"ann", 1).unwrap();
        assert!(subscriber.read().is_empty());
        assert!(users.try_acquire(&"ann", 1).is_err());
        assert!(subscriber.read()[0].starts_with("DEBUG event in 0: error.type=quota .cost=1"));
        let (mut granted, left) =
            (pending(users.consume(&"ann", 2)), pending(users.consume(&"ann", 1).within(9 * MILLI)));
        let entered = [
            "INFO span 1 in 0: rate_limit.wait .cost=2 .estimate=0.002 .queue.ahead=0",
            "INFO span 2 in 0: rate_limit.wait .cost=1 .estimate=0.003 .queue.ahead=1",
        ];
        assert_eq!(subscriber.read(), entered);
        assert!(users.try_acquire(&"ann", 1).is_err());
        assert_eq!(subscriber.read().len(), 1);
        tick_after(&clock, &users, 2 * MILLI);
        let _ = assert_ready_ok!(granted.poll());
        drop(left);
        let ended = ["span 1: .result=allow", "span 1 closed", "span 2: .result=left", "span 2 closed"];
        assert_eq!(subscriber.read(), ended);
    });
}

/// A span is as long as its wait, also on a runtime.
#[tokio::test(start_paused = true)]
async fn in_paused_time_spans_close_at_the_instants_of_the_grants() {
    let (subscriber, _here) = RecordingSubscriber::here();
    let limiter = Limiter::new(Quota::per_second(100).burst(1)).unwrap();
    let _ = limiter.consume(1).await.unwrap();
    let start = tokio::time::Instant::now();
    for turn in 1..=5 {
        let _ = limiter.consume(1).await.unwrap();
        assert_eq!(start.elapsed(), 10 * turn * MILLI);
        let expected = [
            format!("INFO span {turn} in 0: rate_limit.wait .cost=1 .estimate=0.01 .queue.ahead=0"),
            format!("span {turn}: .result=allow"),
            format!("span {turn} closed"),
        ];
        assert_eq!(subscriber.read(), expected);
    }
}

#[test]
fn waits_and_refusals_name_their_class() {
    let (limiter, clock) = built(Limiter::builder().quota(Quota::new(1, MILLI).initial(0)).classes());
    let batch = limiter.class("batch", Share::weight(1)).unwrap();
    let tenant = batch.class("tenant", Share::weight(1)).unwrap();
    let subscriber = RecordingSubscriber::default();
    subscriber.listen(|| {
        let mut waiting = pending(tenant.consume(1));
        assert_eq!(
            subscriber.read(),
            ["INFO span 1 in 0: rate_limit.wait .class.name=batch/tenant .cost=1 .queue.ahead=0"]
        );
        assert!(batch.try_acquire(1).is_err());
        let lines = subscriber.read();
        assert!(lines[0].starts_with("DEBUG event in 0: error.type=queue .class.name=batch .cost=1 "), "{lines:?}");
        tick_after(&clock, &limiter, MILLI);
        let _ = assert_ready_ok!(waiting.poll());
        assert_eq!(subscriber.read(), ["span 1: .result=allow", "span 1 closed"]);
        let mut closed = pending(tenant.consume(1));
        subscriber.read();
        batch.remove();
        assert_ready_err!(closed.poll());
        let lines = subscriber.read();
        assert!(
            lines[4].starts_with("DEBUG event in 2: error.type=closed .class.name=batch/tenant .cost=1 "),
            "{lines:?}"
        );
        assert_ready_err!(spawn(tenant.consume(1)).poll());
        let lines = subscriber.read();
        assert!(
            lines[0].starts_with("DEBUG event in 0: error.type=closed .class.name=batch/tenant .cost=1 "),
            "{lines:?}"
        );
    });
}
