//! Random histories of readers and writers that share a limiter, compared with the oracle: each poll has the result of
//! the claims, settlements and cancellations that it stands for.

use std::collections::VecDeque;
use std::io;
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_test::task::spawn;
use tollgate::io::{PaceIoExt, PacedIo};
use tollgate::{ConsumeError, Limiter, ManualClock, Quota};

use super::scripted::{Drain, Source, Step};
use crate::oracle::ops::{config, continuous};
use crate::oracle::{Answer, Id, Int, Oracle};

const CHUNK: usize = 7;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// With a buffer of this length.
    Read(usize, usize),
    Write(usize, usize),
    /// The wrapper is dropped, and a new one continues.
    DropReader(usize),
    Shutdown(usize),
    Pass(u64),
    Close,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => (0..3_usize, 0..12_usize).prop_map(|(index, len)| Op::Read(index, len)),
        20 => (0..3_usize, 0..12_usize).prop_map(|(index, len)| Op::Write(index, len)),
        3 => (0..3_usize).prop_map(Op::DropReader),
        3 => (0..3_usize).prop_map(Op::Shutdown),
        20 => (1..500_u64).prop_map(Op::Pass),
        1 => Just(Op::Close),
    ]
}

fn script() -> impl Strategy<Value = VecDeque<Step>> {
    let step = prop_oneof![4 => (1..20_usize).prop_map(Step::Bytes), 2 => Just(Step::Pending), 1 => Just(Step::Fails)];
    prop::collection::vec(step, 0..20).prop_map(VecDeque::from)
}

/// The number of bytes, or an error: of the limiter, or of the inner reader or writer.
type Observed = Poll<Result<usize, Option<ConsumeError>>>;

fn observe(answer: Poll<io::Result<usize>>) -> Observed {
    answer.map(|it| it.map_err(|error| error.downcast::<ConsumeError>().ok()))
}

#[derive(Clone, Debug, Default)]
struct Direction {
    script: VecDeque<Step>,
    /// The claim that waits, and its number of bytes.
    claim: Option<(Id, usize)>,
    /// Reading: buffered bytes, and how many of them are paid for.
    aside: usize,
    paid: usize,
}

struct Model {
    oracle: Oracle,
    now: Int,
    next: Id,
    closed: Vec<Id>,
    readers: [Direction; 3],
    writers: [Direction; 3],
}

impl Model {
    fn claim(&mut self, claim: &mut Option<(Id, usize)>, wanted: usize) -> Poll<Result<usize, Option<ConsumeError>>> {
        let answer = match *claim {
            None => {
                let (id, cost) = (self.next, wanted.min(CHUNK));
                self.next += 1;
                match self.oracle.consume(self.now, id, cost as Int) {
                    Answer::Granted => Ok(cost),
                    Answer::Waits => {
                        *claim = Some((id, cost));
                        return Poll::Pending;
                    }
                    Answer::Closed => Err(Some(ConsumeError::Closed)),
                    Answer::QueueFull { waiting } => Err(Some(ConsumeError::QueueFull { waiting })),
                    other => panic!("{other:?}"),
                }
            }
            Some((id, _)) if self.closed.contains(&id) => Err(Some(ConsumeError::Closed)),
            Some((id, cost)) if self.oracle.log().iter().any(|granted| granted.id == id) => Ok(cost),
            Some(_) => return Poll::Pending,
        };
        *claim = None;
        Poll::Ready(answer)
    }

    fn leave(&mut self, claim: &mut Option<(Id, usize)>) {
        if let Some((id, _)) = claim.take().filter(|(id, _)| !self.closed.contains(id)) {
            self.oracle.cancel(self.now, id);
        }
    }

    fn read(&mut self, index: usize, len: usize) -> Observed {
        let mut reader = std::mem::take(&mut self.readers[index]);
        let observed = self.read_by(&mut reader, len);
        self.readers[index] = reader;
        observed
    }

    fn read_by(&mut self, reader: &mut Direction, len: usize) -> Observed {
        if len == 0 {
            return Poll::Ready(Ok(0));
        }
        if reader.aside == 0 {
            match reader.script.pop_front() {
                None => return Poll::Ready(Ok(0)),
                Some(Step::Pending) => return Poll::Pending,
                Some(Step::Fails) => return Poll::Ready(Err(None)),
                Some(Step::Bytes(there)) => {
                    reader.aside = there.min(len).min(CHUNK);
                    if there > reader.aside {
                        reader.script.push_front(Step::Bytes(there - reader.aside));
                    }
                }
            }
        }
        if reader.paid == 0 {
            match self.claim(&mut reader.claim, reader.aside) {
                Poll::Ready(Ok(paid)) => reader.paid = paid,
                other => return other,
            }
        }
        let part = reader.paid.min(len);
        reader.paid -= part;
        reader.aside -= part;
        Poll::Ready(Ok(part))
    }

    fn write(&mut self, index: usize, len: usize) -> Observed {
        if len == 0 {
            return Poll::Ready(Ok(0));
        }
        let mut claim = self.writers[index].claim;
        let answer = self.claim(&mut claim, len);
        self.writers[index].claim = claim;
        let Poll::Ready(Ok(cost)) = answer else { return answer };
        let part = cost.min(len);
        let (taken, observed) = match self.writers[index].script.pop_front().unwrap_or(Step::Bytes(part)) {
            Step::Bytes(space) => (part.min(space), Poll::Ready(Ok(part.min(space)))),
            Step::Pending => (0, Poll::Pending),
            Step::Fails => (0, Poll::Ready(Err(None))),
        };
        self.oracle.settle(self.now, cost as Int, taken as Int);
        observed
    }
}

/// The limiter under test.
struct World {
    limiter: Limiter,
    clock: ManualClock,
    readers: [PacedIo<Source>; 3],
    writers: [PacedIo<Drain>; 3],
    /// The bytes that each reader returned and each writer reported count on from 0.
    got: [u8; 3],
    sent: [u8; 3],
}

impl World {
    fn read(&mut self, index: usize, len: usize) -> Result<Observed, TestCaseError> {
        let mut buffer = vec![0xAA; len];
        let observed = observe(spawn(self.readers[index].read(&mut buffer)).poll());
        if let Poll::Ready(Ok(read)) = observed {
            for byte in &buffer[..read] {
                prop_assert_eq!(*byte, self.got[index], "the bytes are in order");
                self.got[index] = self.got[index].wrapping_add(1);
            }
        }
        Ok(observed)
    }

    fn write(&mut self, index: usize, len: usize) -> Result<Observed, TestCaseError> {
        let bytes = (0..len as u8).map(|n| self.sent[index].wrapping_add(n)).collect::<Vec<_>>();
        let observed = observe(spawn(self.writers[index].write(&bytes)).poll());
        if let Poll::Ready(Ok(written)) = observed {
            self.sent[index] = self.sent[index].wrapping_add(written as u8);
        }
        let taken = self.writers[index].get_ref().taken.len();
        prop_assert_eq!(taken as u8, self.sent[index], "the reported bytes are those that were written");
        Ok(observed)
    }

    fn drop_reader(&mut self, index: usize) {
        let fresh = Source::default().pace_reads(&self.limiter);
        let (source, aside) = std::mem::replace(&mut self.readers[index], fresh).into_parts();
        self.readers[index] = source.pace_reads(&self.limiter).chunk(CHUNK);
        // The caller keeps the buffered bytes.
        self.got[index] = self.got[index].wrapping_add(aside.len() as u8);
    }
}

proptest! {
    #![proptest_config(config(1_000))]

    #[test]
    fn bytes_are_paid_for_as_the_oracle_says(
        (period, burst) in (1..300_u64, 1..40_u64),
        max_waiting in prop_oneof![Just(usize::MAX), 0..3_usize],
        reads in prop::array::uniform3(script()),
        writes in prop::array::uniform3(script()),
        ops in prop::collection::vec(op(), 1..150),
    ) {
        let clock = ManualClock::new();
        let quota = Quota::new(3, Duration::from_nanos(period)).burst(burst).initial(burst / 2);
        let limiter = Limiter::builder().quota(quota).max_waiting(max_waiting).clock(clock.clone()).build().unwrap();
        let rule = continuous(3, period.into(), burst.into(), (burst / 2).into());
        let side = |script: &VecDeque<Step>| Direction { script: script.clone(), ..Direction::default() };
        let mut model = Model {
            oracle: Oracle::new(&[rule], None, max_waiting),
            now: 0,
            next: 0,
            closed: vec![],
            readers: reads.each_ref().map(side),
            writers: writes.each_ref().map(side),
        };
        let mut world = World {
            readers: reads.map(|script| Source { script, next: 0 }.pace_reads(&limiter).chunk(CHUNK)),
            writers: writes.map(|script| Drain { script, ..Drain::default() }.pace_writes(&limiter).chunk(CHUNK)),
            limiter,
            clock,
            got: [0; 3],
            sent: [0; 3],
        };
        for op in ops {
            match op {
                Op::Read(index, len) => prop_assert_eq!(world.read(index, len)?, model.read(index, len), "{:?}", op),
                Op::Write(index, len) => prop_assert_eq!(world.write(index, len)?, model.write(index, len), "{:?}", op),
                Op::DropReader(index) => {
                    world.drop_reader(index);
                    let mut reader = std::mem::take(&mut model.readers[index]);
                    model.leave(&mut reader.claim);
                    model.readers[index].script = reader.script;
                }
                Op::Shutdown(index) => {
                    prop_assert!(spawn(world.writers[index].shutdown()).poll().is_ready());
                    let mut claim = model.writers[index].claim.take();
                    model.leave(&mut claim);
                }
                Op::Pass(nanos) => {
                    world.clock.advance(Duration::from_nanos(nanos));
                    model.now += Int::from(nanos);
                }
                Op::Close => {
                    world.limiter.close();
                    let closed = model.oracle.close(model.now);
                    model.closed.extend(closed);
                }
            }
            world.limiter.tick();
            model.oracle.advance(model.now);
            let (seen, oracle) = (world.limiter.snapshot(), &model.oracle);
            prop_assert_eq!(Int::from(world.limiter.available()), oracle.available(), "after {:?}", op);
            prop_assert_eq!(seen.waiting_tasks, oracle.waiting(), "after {:?}", op);
            prop_assert_eq!((Int::from(seen.granted), Int::from(seen.refunded)), oracle.turnover(), "after {:?}", op);
        }
    }
}
