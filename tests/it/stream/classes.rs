//! Streams and sinks that are paced by a class of a limiter.

use super::*;

use futures::{SinkExt, StreamExt, stream};
use scripted::Drain;
use tollgate::stream::{PaceSinkExt, PaceStreamExt, PacedSinkError};

/// A token each millisecond from an empty bucket, and two classes of it.
fn two_classes(weights: [u64; 2]) -> [Class; 2] {
    let quota = Quota::new(1, MILLI).burst(1).initial(0);
    let limiter = Limiter::builder().quota(quota).classes().build().unwrap();
    [("a", weights[0]), ("b", weights[1])].map(|(name, weight)| limiter.class(name, Share::weight(weight)).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_stream_in_a_lone_class_passes_at_the_instants_of_the_limiter() {
    let [class, _idle] = two_classes([1, 9]);
    let start = Instant::now();
    let mut paced = stream::iter([3, 0, 5]).pace_by(&class, |cost| *cost).with_grants();
    for (cost, at) in [(3, 3), (0, 3), (5, 8)] {
        let (item, grant) = paced.next().await.unwrap().unwrap();
        assert_eq!((item, grant.cost(), Instant::now() - start), (cost, cost, at * MILLI));
    }
    assert!(paced.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_sink_keeps_the_item_that_its_class_refuses() {
    let [class, other] = two_classes([1, 1]);
    let start = Instant::now();
    let mut paced = Drain::new([]).pace_sends(&class);
    for n in 1..=10_u32 {
        paced.send(n).await.unwrap();
        assert_eq!(Instant::now(), start + n * MILLI);
    }
    class.remove();
    assert_eq!(paced.send(11).await.unwrap_err(), PacedSinkError::Refused(ConsumeError::Closed));
    assert_eq!(other.wait(1).await, Ok(()), "the limiter and its other classes go on");
    let (drain, held) = paced.into_parts();
    assert_eq!((drain.taken.len(), held), (10, Some(11)));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_leaves_the_queue_of_its_class() {
    let [class, other] = two_classes([1, 1]);
    let mut paced = stream::iter(0..9).pace(&class);
    assert!(futures::poll!(paced.next()).is_pending());
    assert_eq!(class.snapshot().waiting_tasks, 1);
    drop(paced);
    assert_eq!((class.snapshot().waiting_tasks, class.limiter().snapshot().waiting_tasks), (0, 0));
    let start = Instant::now();
    other.wait(1).await.unwrap();
    assert_eq!(Instant::now() - start, MILLI);
}
