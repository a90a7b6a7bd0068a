//! Paced sinks.

use super::*;

use futures::{SinkExt, StreamExt, stream};
use scripted::Drain;
use tollgate::stream::{PaceSinkExt, PacedSinkError};

#[tokio::test(start_paused = true)]
async fn a_whole_stream_is_sent_at_its_cost() {
    let limiter = per_milli(2);
    let start = Instant::now();
    let mut paced = Drain::new([]).pace_sends_by(&limiter, |cost: &u64| *cost);
    let mut items = stream::iter([2, 0, 7, 1]).map(Ok);
    paced.send_all(&mut items).await.unwrap();
    paced.close().await.unwrap();
    assert_eq!((paced.get_ref().taken.clone(), Instant::now() - start), (vec![2, 0, 7, 1], 8 * MILLI));
}

#[test]
fn paid_items_are_flushed_while_the_next_waits() {
    let (limiter, clock) = by_hand(5);
    limiter.replenish(1);
    let mut paced = Drain::new([]).pace_sends(&limiter);
    assert_ready_ok!(spawn(paced.feed(1)).poll());
    assert_ready_ok!(spawn(paced.feed(2)).poll());
    assert_eq!((paced.get_ref().taken.clone(), paced.get_ref().flushes), (vec![1], 0));
    assert_pending!(spawn(paced.feed(3)).poll());
    assert_eq!((paced.get_ref().taken.clone(), paced.get_ref().flushes), (vec![1], 1));
    tick_after(&clock, &limiter, MILLI);
    assert_ready_ok!(spawn(paced.feed(3)).poll());
    assert_eq!(paced.get_ref().taken, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_item_stays_and_can_be_taken_out_or_tried_again() {
    let limiter = Limiter::builder().quota(Quota::new(1, MILLI).burst(1)).max_waiting(0).build().unwrap();
    let mut paced = Drain::new([]).pace_sends(&limiter);
    paced.send('a').await.unwrap();
    let full = PacedSinkError::Refused(ConsumeError::QueueFull { waiting: 0 });
    assert_eq!(paced.send('b').await.unwrap_err(), full);
    assert_eq!(paced.flush().await.unwrap_err(), full);
    tokio::time::advance(MILLI).await;
    paced.flush().await.unwrap();
    assert_eq!(paced.get_ref().taken, ['a', 'b']);

    limiter.close();
    let closed = PacedSinkError::Refused(ConsumeError::Closed);
    assert_eq!(paced.send('c').await.unwrap_err(), closed);
    assert_eq!(paced.close().await.unwrap_err(), closed);
    assert!(std::error::Error::source(&closed_of_io()).unwrap().is::<ConsumeError>());
    let (inner, item) = paced.into_parts();
    assert_eq!((inner.taken, item), (vec!['a', 'b'], Some('c')));
}

fn closed_of_io() -> PacedSinkError<std::io::Error> {
    PacedSinkError::Refused(ConsumeError::Closed)
}

#[test]
#[should_panic(expected = "before `poll_ready` said")]
fn sending_to_a_sink_that_holds_an_item_panics() {
    let (limiter, _clock) = by_hand(1);
    let mut paced = Drain::new([]).pace_sends(&limiter);
    paced.start_send_unpin(1).unwrap();
    paced.start_send_unpin(2).unwrap();
}
