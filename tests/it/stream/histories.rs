//! Random histories of streams and sinks that share a limiter, compared with the oracle: every poll of an adaptor has
//! the result that a `consume` of its item's cost would have.

use crate::fixture::*;

use futures::{SinkExt, StreamExt};
use tollgate::stream::{PaceSinkExt, PaceStreamExt, PacedSink, PacedSinkError, PacedStream};

use super::scripted::{Drain, Source};
use crate::oracle::Id;
use crate::oracle::ops::config;
use crate::pair::Pair;

type Item = (usize, u64);
type Cost = fn(&Item) -> u64;

#[derive(Clone, Copy, Debug)]
enum Op {
    Poll(usize),
    /// The adaptor is dropped, and another one continues with its item.
    Drop(usize),
    Pass(u64),
    Close,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        30 => (0..4_usize).prop_map(Op::Poll),
        4 => (0..4_usize).prop_map(Op::Drop),
        15 => (1..400_u64).prop_map(Op::Pass),
        1 => Just(Op::Close),
    ]
}

/// The item that waits in an adaptor, and its claim, if one was made.
type Held = Option<(Item, Option<Id>)>;

/// A limiter and the oracle, and what the adaptors hold.
struct World {
    pair: Pair,
    held: [Held; 4],
}

impl World {
    fn new(limits: (u64, u64, u64)) -> Self {
        Self { pair: Pair::new(limits), held: [None; 4] }
    }

    /// The result of a poll of adaptor number `index`, which holds an item that can go on.
    fn claim(&mut self, index: usize) -> Poll<Result<Item, (Item, ConsumeError)>> {
        let (item, claim) = self.held[index].as_mut().expect("the adaptor holds an item");
        let (item, answer) = (*item, self.pair.poll(claim, item.1.into()));
        if answer.is_ready() {
            self.held[index] = None;
        }
        answer.map(|answer| answer.map(|()| item).map_err(|error| (item, error)))
    }

    fn drop(&mut self, index: usize) -> Option<Item> {
        let (item, claim) = self.held[index].take()?;
        self.pair.leave(claim);
        Some(item)
    }
}

/// The costs of each adaptor's items; `None` is a poll that finds no item.
fn scripts() -> impl Strategy<Value = [Vec<Option<u64>>; 4]> {
    let item = prop_oneof![3 => (0..12_u64).prop_map(Some), 1 => Just(None)];
    prop::array::uniform4(prop::collection::vec(item, 0..12))
}

fn limits() -> impl Strategy<Value = (u64, u64, u64)> {
    (1..300_u64, 1..20_u64, prop_oneof![Just(u64::MAX), 0..3_u64])
}

fn numbered(script: &[Option<u64>]) -> VecDeque<Option<Item>> {
    script.iter().enumerate().map(|(place, cost)| cost.map(|cost| (place, cost))).collect()
}

proptest! {
    #![proptest_config(config(1_000))]

    #[test]
    fn streams_are_answered_as_consume_is(
        limits in limits(), scripts in scripts(), ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut world = World::new(limits);
        let mut scripts = scripts.map(|script| numbered(&script));
        let cost: Cost = |item| item.1;
        let pace = |source: Source<Item>, world: &World| source.pace_by(&world.pair.limiter, cost);
        let mut paced: [PacedStream<_, Cost>; 4] = scripts.clone().map(|script| pace(Source { script }, &world));
        for op in ops {
            match op {
                Op::Pass(nanos) => world.pair.pass(nanos),
                Op::Close => world.pair.close(),
                Op::Poll(index) => {
                    let expected = match world.held[index] {
                        Some(_) => world.claim(index).map(Some),
                        None => match scripts[index].pop_front() {
                            None => Poll::Ready(None),
                            Some(None) => Poll::Pending,
                            Some(Some(item)) => {
                                world.held[index] = Some((item, None));
                                world.claim(index).map(Some)
                            }
                        },
                    };
                    let answer = spawn(paced[index].next()).poll();
                    let answer = answer.map(|it| it.map(|it| it.map_err(|refused| (refused.item, refused.error))));
                    prop_assert_eq!(answer, expected, "{:?}", op);
                }
                Op::Drop(index) => {
                    let fresh = pace(Source::default(), &world);
                    let (source, held) = std::mem::replace(&mut paced[index], fresh).into_parts();
                    prop_assert_eq!(held, world.drop(index));
                    prop_assert_eq!(&source.script, &scripts[index]);
                    paced[index] = pace(Source::new(held.map(Some).into_iter().chain(source.script)), &world);
                    if let Some(item) = held {
                        scripts[index].push_front(Some(item));
                    }
                }
            }
            world.pair.compare(op)?;
        }
    }

    #[test]
    fn sinks_are_answered_as_consume_is(
        limits in limits(),
        scripts in scripts(),
        ready in prop::array::uniform4(prop::collection::vec(any::<bool>(), 0..30)),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut world = World::new(limits);
        let mut scripts = scripts.map(|script| numbered(&script).into_iter().flatten().collect::<VecDeque<_>>());
        let mut ready = ready.map(VecDeque::from);
        let mut taken: [Vec<Item>; 4] = Default::default();
        let cost: Cost = |item| item.1;
        let pace = |drain: Drain<Item>, world: &World| drain.pace_sends_by(&world.pair.limiter, cost);
        let mut paced: [PacedSink<_, Item, Cost>; 4] = ready.clone().map(|ready| pace(Drain::new(ready), &world));
        for op in ops {
            match op {
                Op::Pass(nanos) => world.pair.pass(nanos),
                Op::Close => world.pair.close(),
                // Polls for readiness, and sends the next item if the sink is ready.
                Op::Poll(index) => {
                    let before = world.held[index];
                    let expected = if before.is_none() {
                        Poll::Ready(Ok(()))
                    } else if !ready[index].pop_front().unwrap_or(true) {
                        Poll::Pending
                    } else {
                        world.claim(index).map(|answer| match answer {
                            Ok(item) => {
                                taken[index].push(item);
                                Ok(())
                            }
                            Err((item, error)) => {
                                // The item stays and is tried again.
                                world.held[index] = Some((item, None));
                                Err(PacedSinkError::Refused(error))
                            }
                        })
                    };
                    let answer = spawn(futures::future::poll_fn(|cx| paced[index].poll_ready_unpin(cx))).poll();
                    prop_assert_eq!(answer, expected, "{:?}", op);
                    if answer == Poll::Ready(Ok(())) && let Some(item) = scripts[index].pop_front() {
                        paced[index].start_send_unpin(item).unwrap();
                        world.held[index] = Some((item, None));
                    }
                }
                Op::Drop(index) => {
                    let fresh = pace(Drain::default(), &world);
                    let (drain, held) = std::mem::replace(&mut paced[index], fresh).into_parts();
                    prop_assert_eq!(held, world.drop(index));
                    prop_assert_eq!(&drain.taken, &taken[index]);
                    paced[index] = pace(drain, &world);
                    if let Some(item) = held {
                        scripts[index].push_front(item);
                    }
                }
            }
            world.pair.compare(op)?;
        }
    }
}
