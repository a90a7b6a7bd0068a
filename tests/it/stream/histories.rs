//! Random histories of streams and sinks that share a limiter, compared with the oracle: every poll of an adaptor has
//! the result that a `consume` of its item's cost would have.

use std::collections::VecDeque;
use std::task::Poll;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use proptest::prelude::*;
use tokio_test::task::spawn;
use tollgate::stream::{PaceSinkExt, PaceStreamExt, PacedSink, PacedSinkError, PacedStream};
use tollgate::{ConsumeError, Limiter, ManualClock, Quota};

use super::scripted::{Drain, Source};
use crate::oracle::ops::{config, continuous};
use crate::oracle::{Answer, Id, Int, Oracle};

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

/// The oracle's side: the state of each adaptor, and the expected results of its next polls.
struct Model {
    oracle: Oracle,
    now: Int,
    next: Id,
    held: [Held; 4],
    closed: Vec<Id>,
}

impl Model {
    /// The result of a poll of adaptor number `index`, which holds an item that can go on.
    fn claim(&mut self, index: usize) -> Poll<Result<Item, (Item, ConsumeError)>> {
        let (item, claim) = self.held[index].expect("the adaptor holds an item");
        let answer = match claim {
            None => {
                let id = self.next;
                self.next += 1;
                match self.oracle.consume(self.now, id, item.1.into()) {
                    Answer::Granted => Ok(item),
                    Answer::Waits => {
                        self.held[index] = Some((item, Some(id)));
                        return Poll::Pending;
                    }
                    Answer::Closed => Err((item, ConsumeError::Closed)),
                    Answer::QueueFull { waiting } => Err((item, ConsumeError::QueueFull { waiting })),
                    other => panic!("{other:?}"),
                }
            }
            Some(id) if self.closed.contains(&id) => Err((item, ConsumeError::Closed)),
            Some(id) if self.oracle.log().iter().any(|granted| granted.id == id) => Ok(item),
            Some(_) => return Poll::Pending,
        };
        self.held[index] = None;
        Poll::Ready(answer)
    }

    fn drop(&mut self, index: usize) -> Option<Item> {
        let (item, claim) = self.held[index].take()?;
        if let Some(id) = claim.filter(|id| !self.closed.contains(id)) {
            self.oracle.cancel(self.now, id);
        }
        Some(item)
    }
}

/// A limiter and its model.
struct World {
    limiter: Limiter,
    clock: ManualClock,
    model: Model,
}

impl World {
    fn new((period, burst, max_waiting): (u64, u64, usize)) -> Self {
        let clock = ManualClock::new();
        let quota = Quota::new(3, Duration::from_nanos(period)).burst(burst).initial(burst / 2);
        let builder = Limiter::builder().quota(quota).max_waiting(max_waiting).clock(clock.clone());
        let rule = continuous(3, period.into(), burst.into(), (burst / 2).into());
        let oracle = Oracle::new(&[rule], None, max_waiting);
        let model = Model { oracle, now: 0, next: 0, held: [None; 4], closed: vec![] };
        Self { limiter: builder.build().unwrap(), clock, model }
    }

    fn pass(&mut self, nanos: u64) {
        self.clock.advance(Duration::from_nanos(nanos));
        self.limiter.tick();
        self.model.now += Int::from(nanos);
        self.model.oracle.advance(self.model.now);
    }

    fn close(&mut self) {
        self.limiter.close();
        self.model.closed.extend(self.model.oracle.close(self.model.now));
    }

    fn compare(&mut self, op: Op) -> Result<(), TestCaseError> {
        self.limiter.tick();
        self.model.oracle.advance(self.model.now);
        let (seen, oracle) = (self.limiter.snapshot(), &self.model.oracle);
        prop_assert_eq!(Int::from(self.limiter.available()), oracle.available(), "after {:?}", op);
        prop_assert_eq!(Int::from(self.limiter.deficiency()), oracle.deficiency(), "after {:?}", op);
        prop_assert_eq!(seen.waiting_tasks, oracle.waiting(), "after {:?}", op);
        prop_assert_eq!((Int::from(seen.granted), Int::from(seen.refunded)), oracle.turnover(), "after {:?}", op);
        Ok(())
    }
}

/// The costs of each adaptor's items; `None` is a poll that finds no item.
fn scripts() -> impl Strategy<Value = [Vec<Option<u64>>; 4]> {
    let item = prop_oneof![3 => (0..12_u64).prop_map(Some), 1 => Just(None)];
    prop::array::uniform4(prop::collection::vec(item, 0..12))
}

fn limits() -> impl Strategy<Value = (u64, u64, usize)> {
    (1..300_u64, 1..20_u64, prop_oneof![Just(usize::MAX), 0..3_usize])
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
        let pace = |source: Source<Item>, world: &World| source.pace_by(&world.limiter, cost);
        let mut paced: [PacedStream<_, Cost>; 4] = scripts.clone().map(|script| pace(Source { script }, &world));
        for op in ops {
            match op {
                Op::Pass(nanos) => world.pass(nanos),
                Op::Close => world.close(),
                Op::Poll(index) => {
                    let expected = match world.model.held[index] {
                        Some(_) => world.model.claim(index).map(Some),
                        None => match scripts[index].pop_front() {
                            None => Poll::Ready(None),
                            Some(None) => Poll::Pending,
                            Some(Some(item)) => {
                                world.model.held[index] = Some((item, None));
                                world.model.claim(index).map(Some)
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
                    prop_assert_eq!(held, world.model.drop(index));
                    prop_assert_eq!(&source.script, &scripts[index]);
                    paced[index] = pace(Source::new(held.map(Some).into_iter().chain(source.script)), &world);
                    if let Some(item) = held {
                        scripts[index].push_front(Some(item));
                    }
                }
            }
            world.compare(op)?;
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
        let pace = |drain: Drain<Item>, world: &World| drain.pace_sends_by(&world.limiter, cost);
        let mut paced: [PacedSink<_, Item, Cost>; 4] = ready.clone().map(|ready| pace(Drain::new(ready), &world));
        for op in ops {
            match op {
                Op::Pass(nanos) => world.pass(nanos),
                Op::Close => world.close(),
                // Polls for readiness, and sends the next item if the sink is ready.
                Op::Poll(index) => {
                    let before = world.model.held[index];
                    let expected = if before.is_none() {
                        Poll::Ready(Ok(()))
                    } else if !ready[index].pop_front().unwrap_or(true) {
                        Poll::Pending
                    } else {
                        world.model.claim(index).map(|answer| match answer {
                            Ok(item) => {
                                taken[index].push(item);
                                Ok(())
                            }
                            Err((item, error)) => {
                                // The item stays and is tried again.
                                world.model.held[index] = Some((item, None));
                                Err(PacedSinkError::Refused(error))
                            }
                        })
                    };
                    let answer = spawn(futures::future::poll_fn(|cx| paced[index].poll_ready_unpin(cx))).poll();
                    prop_assert_eq!(answer, expected, "{:?}", op);
                    if answer == Poll::Ready(Ok(())) && let Some(item) = scripts[index].pop_front() {
                        paced[index].start_send_unpin(item).unwrap();
                        world.model.held[index] = Some((item, None));
                    }
                }
                Op::Drop(index) => {
                    let fresh = pace(Drain::default(), &world);
                    let (drain, held) = std::mem::replace(&mut paced[index], fresh).into_parts();
                    prop_assert_eq!(held, world.model.drop(index));
                    prop_assert_eq!(&drain.taken, &taken[index]);
                    paced[index] = pace(drain, &world);
                    if let Some(item) = held {
                        scripts[index].push_front(item);
                    }
                }
            }
            world.compare(op)?;
        }
    }
}
