//! The meter of a limiter counts the calls of a layer.

use super::{MILLI, by_hand};
use crate::recorder::TestRecorder;
use metrics::with_local_recorder;
use std::time::Duration;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task::spawn};
use tollgate::metrics::Meter;
use tollgate_tower::LimitLayer;
use tower::{Layer, Service};

#[test]
fn the_calls_of_layers_are_counted() {
    let (recorder, (limiter, clock)) = (TestRecorder::new(), by_hand(2));
    let meter = Meter::new("api", &limiter).unwrap();
    let inner = tower::service_fn(async |_: ()| Ok::<_, std::io::Error>(()));
    let mut refusing = LimitLayer::new(&limiter).release_at_head().refuse().layer(inner);
    let mut waiting = LimitLayer::new(&limiter).release_at_head().within(Duration::from_secs(1)).layer(inner);
    assert_ready_ok!(spawn(refusing.call(())).poll());
    assert_ready_ok!(spawn(refusing.call(())).poll());
    assert_ready_err!(spawn(refusing.call(())).poll());
    with_local_recorder(&recorder.inner, || {
        let mut call = spawn(waiting.call(()));
        assert_pending!(call.poll());
        clock.advance(MILLI);
        limiter.tick();
        assert_ready_ok!(call.poll());
        meter.publish();
    });
    let values = recorder.read();
    assert_eq!(values.counter("acquire_total{key=api,result=allow}"), 3);
    assert_eq!((values.refusals(), values.waits("allow")), ("quota 1".to_owned(), vec![1_000_000]));
}
