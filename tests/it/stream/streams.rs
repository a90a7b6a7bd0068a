//! Paced streams.

use super::*;

use futures::stream::FusedStream;
use futures::{Sink, SinkExt, Stream, StreamExt, stream};
use scripted::{Drain, Source};
use tollgate::stream::PaceStreamExt;

#[tokio::test(start_paused = true)]
async fn items_pass_at_their_cost_also_above_the_burst() {
    let limiter = per_milli(2);
    let start = Instant::now();
    let mut asked = 0;
    let mut paced = stream::iter([2_u64, 0, 7, 1]).pace_by(&limiter, |cost| {
        asked += 1;
        *cost
    });
    let mut instants = vec![];
    while let Some(item) = paced.next().await {
        instants.push((item.unwrap(), (Instant::now() - start).as_millis()));
    }
    drop(paced);
    assert_eq!(instants, [(2, 0), (0, 0), (7, 7), (1, 8)]);
    assert_eq!(asked, 4, "the cost is computed once per item");
    limiter.close();
    let refused = stream::iter([7]).pace(&limiter).next().await.unwrap().unwrap_err();
    assert!(refused.item == 7 && refused.to_string().contains("closed"));
    assert!(std::error::Error::source(&refused).unwrap().is::<ConsumeError>());
}

#[test]
fn size_hint_and_termination_count_the_item_that_waits() {
    let (limiter, clock) = by_hand(5);
    let mut paced = spawn(Source::new([Some('a'), Some('b')]).pace(&limiter));
    for left in [2, 1] {
        assert_eq!((paced.size_hint(), paced.is_terminated()), ((left, Some(left)), false));
        assert_pending!(paced.poll_next());
        assert_eq!((paced.size_hint(), paced.is_terminated()), ((left, Some(left)), false));
        tick_after(&clock, &limiter, MILLI);
        assert!(paced.is_woken());
        assert!(assert_ready!(paced.poll_next()).unwrap().is_ok());
    }
    assert_eq!((paced.size_hint(), paced.is_terminated()), ((0, Some(0)), true));
    let mut grants = spawn(Source::new([Some('a')]).pace(&limiter).with_grants());
    assert_pending!(grants.poll_next());
    assert_eq!((grants.size_hint(), grants.is_terminated()), ((1, Some(1)), false));
}

#[tokio::test(start_paused = true)]
async fn with_grants_holds_items_in_flight_until_their_grants_are_dropped() {
    let limiter = Limiter::builder().quota(Quota::per_second(1_000)).max_in_flight(2).build().unwrap();
    let mut jobs = spawn(stream::iter(0..3).pace(&limiter).with_grants());
    let (_, first) = assert_ready!(jobs.poll_next()).unwrap().unwrap();
    let (_, _second) = assert_ready!(jobs.poll_next()).unwrap().unwrap();
    assert_pending!(jobs.poll_next());
    assert_eq!(limiter.snapshot().in_flight, Some(2));
    drop(first);
    assert!(jobs.is_woken());
    let (third, _grant) = assert_ready!(jobs.poll_next()).unwrap().unwrap();
    assert_eq!(third, 2);
    // Without grants, the tokens are released as the items pass.
    let more = stream::iter(0..100)
        .pace(&Limiter::builder().quota(Quota::per_second(1_000)).max_in_flight(1).build().unwrap());
    assert_eq!(more.filter(|item| std::future::ready(item.is_ok())).count().await, 100);
}

#[test]
fn it_moves_while_it_waits() {
    let (limiter, clock) = by_hand(5);
    let mut paced = Box::new(Source::new([Some(7)]).pace(&limiter));
    assert_pending!(spawn(paced.next()).poll());
    let mut moved = *paced;
    tick_after(&clock, &limiter, MILLI);
    assert_eq!(assert_ready!(spawn(moved.next()).poll()).unwrap().unwrap(), 7);
}

/// A connection: a stream and a sink in one.
struct Duplex(Source<u32>, Drain<u32>);

impl Stream for Duplex {
    type Item = u32;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<u32>> {
        Pin::new(&mut self.0).poll_next(cx)
    }
}

impl Sink<u32> for Duplex {
    type Error = &'static str;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Pin::new(&mut self.1).poll_ready(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, item: u32) -> Result<(), Self::Error> {
        Pin::new(&mut self.1).start_send(item)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Sink::poll_flush(Pin::new(&mut self.1), cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Sink::poll_close(Pin::new(&mut self.1), cx)
    }
}

#[tokio::test(start_paused = true)]
async fn one_direction_is_paced_the_other_goes_through() {
    use tollgate::stream::PaceSinkExt;
    let limiter = per_milli(1);
    let start = Instant::now();
    let connection = || Duplex(Source::new((0..4).map(Some)), Drain::new([]));
    let mut paced = connection().pace(&AnyLimiter::from(limiter.clone()));
    paced.send(1).await.unwrap();
    paced.send(2).await.unwrap();
    assert_eq!(limiter.snapshot().granted, 0);
    assert_eq!(paced.by_ref().filter_map(async |item| item.ok()).collect::<Vec<_>>().await, [0, 1, 2, 3]);
    assert_eq!((paced.get_ref().1.taken.clone(), Instant::now() - start), (vec![1, 2], 3 * MILLI));

    let mut paced = connection().pace_sends(&limiter);
    assert_eq!(paced.by_ref().collect::<Vec<_>>().await, [0, 1, 2, 3]);
    assert_eq!(Instant::now() - start, 3 * MILLI);
    paced.send(1).await.unwrap();
    paced.send(2).await.unwrap();
    assert_eq!((paced.get_ref().1.taken.clone(), Instant::now() - start), (vec![1, 2], 5 * MILLI));
}
