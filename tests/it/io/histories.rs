//! Random histories of readers and writers that share a limiter, compared with the oracle: each poll has the result of
//! the claims, settlements and cancellations that it stands for.

use crate::fixture::*;
use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tollgate::io::{PaceIoExt, PacedIo};

use super::scripted::{Drain, Source, Step};
use crate::oracle::ops::config;
use crate::oracle::{Id, Int};
use crate::pair::Pair;

const CHUNK: usize = 7;
/// A second, in nanoseconds.
const IDLE: Int = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// With a buffer of this length.
    Read(usize, usize),
    Write(usize, usize),
    /// The wrapper is dropped, and a new one continues.
    DropReader(usize),
    Flush(usize),
    Shutdown(usize),
    Pass(u64),
    Close,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => (0..3_usize, 0..12_usize).prop_map(|(index, len)| Op::Read(index, len)),
        20 => (0..3_usize, 0..12_usize).prop_map(|(index, len)| Op::Write(index, len)),
        3 => (0..3_usize).prop_map(Op::DropReader),
        3 => (0..3_usize).prop_map(Op::Flush),
        3 => (0..3_usize).prop_map(Op::Shutdown),
        20 => (1..500_u64).prop_map(Op::Pass),
        1 => (IDLE as u64..=IDLE as u64 + 1).prop_map(Op::Pass),
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
    /// The claim that waits, and the bytes of the latest claim.
    claim: Option<Id>,
    cost: usize,
    /// The tokens of the last claim, and how many of them are used.
    chunk: Option<(usize, usize)>,
    /// When bytes were last paid for.
    paid_at: Option<Int>,
    /// Reading: buffered bytes.
    aside: usize,
}

impl Direction {
    fn left(&self) -> Option<usize> {
        self.chunk.map(|(cost, used)| cost - used)
    }

    fn spend(&mut self, bytes: usize) {
        self.chunk = self.chunk.map(|(cost, used)| (cost, used + bytes)).filter(|(cost, used)| used < cost);
    }
}

struct Model {
    pair: Pair,
    readers: [Direction; 3],
    writers: [Direction; 3],
}

impl Model {
    /// Pays for up to `wanted` bytes from the chunk, or claims one: for the bytes at hand after a second without payment,
    /// else a whole one.
    fn pay(&mut self, direction: &mut Direction, wanted: usize) -> Observed {
        let is_idle = direction.paid_at.is_none_or(|at| self.pair.now - at > IDLE);
        if is_idle {
            self.refund(direction);
        }
        if direction.chunk.is_none() {
            if direction.claim.is_none() {
                direction.cost = if is_idle { wanted.min(CHUNK) } else { CHUNK };
            }
            match self.pair.poll(&mut direction.claim, direction.cost as Int) {
                Poll::Ready(Ok(())) => direction.chunk = Some((direction.cost, 0)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Some(error))),
                Poll::Pending => return Poll::Pending,
            }
        }
        direction.paid_at = Some(self.pair.now);
        Poll::Ready(Ok(direction.left().unwrap_or(0).min(wanted)))
    }

    fn refund(&mut self, direction: &mut Direction) {
        if let Some((cost, used)) = direction.chunk.take() {
            self.pair.oracle.settle(self.pair.now, self.pair.next, cost as Int, used as Int);
        }
    }

    fn leave(&mut self, direction: &mut Direction) {
        self.pair.leave(direction.claim.take());
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
                Some(Step::Bytes(there)) => {
                    reader.aside = there.min(len).min(reader.left().unwrap_or(CHUNK));
                    if there > reader.aside {
                        reader.script.push_front(Step::Bytes(there - reader.aside));
                    }
                }
                other => {
                    self.refund(reader);
                    return match other {
                        Some(Step::Pending) => Poll::Pending,
                        Some(_) => Poll::Ready(Err(None)),
                        None => Poll::Ready(Ok(0)),
                    };
                }
            }
        }
        let answer = self.pay(reader, reader.aside);
        let Poll::Ready(Ok(paid)) = answer else { return answer };
        let part = paid.min(len);
        reader.spend(part);
        reader.aside -= part;
        Poll::Ready(Ok(part))
    }

    fn write(&mut self, index: usize, len: usize) -> Observed {
        let mut writer = std::mem::take(&mut self.writers[index]);
        let observed = self.write_by(&mut writer, len);
        self.writers[index] = writer;
        observed
    }

    fn write_by(&mut self, writer: &mut Direction, len: usize) -> Observed {
        if len == 0 {
            return Poll::Ready(Ok(0));
        }
        let answer = self.pay(writer, len);
        let Poll::Ready(Ok(part)) = answer else { return answer };
        match writer.script.pop_front().unwrap_or(Step::Bytes(part)) {
            Step::Bytes(space) => {
                writer.spend(part.min(space));
                Poll::Ready(Ok(part.min(space)))
            }
            Step::Pending => {
                self.refund(writer);
                Poll::Pending
            }
            Step::Fails => {
                self.refund(writer);
                Poll::Ready(Err(None))
            }
        }
    }
}

/// The limiter under test.
struct World {
    limiter: Limiter,
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
        max_waiting in prop_oneof![Just(u64::MAX), 0..3_u64],
        reads in prop::array::uniform3(script()),
        writes in prop::array::uniform3(script()),
        ops in prop::collection::vec(op(), 1..150),
    ) {
        let pair = Pair::new((period, burst, max_waiting));
        let limiter = pair.limiter.clone();
        let side = |script: &VecDeque<Step>| Direction { script: script.clone(), ..Direction::default() };
        let (readers, writers) = (reads.each_ref().map(side), writes.each_ref().map(side));
        let mut model = Model { pair, readers, writers };
        let mut world = World {
            readers: reads.map(|script| Source { script, next: 0 }.pace_reads(&limiter).chunk(CHUNK)),
            writers: writes.map(|script| Drain { script, ..Drain::default() }.pace_writes(&limiter).chunk(CHUNK)),
            limiter,
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
                    model.leave(&mut reader);
                    model.refund(&mut reader);
                    model.readers[index].script = reader.script;
                }
                Op::Flush(index) => prop_assert!(spawn(world.writers[index].flush()).poll().is_ready()),
                Op::Shutdown(index) => {
                    let mut writer = std::mem::take(&mut model.writers[index]);
                    model.leave(&mut writer);
                    prop_assert!(spawn(world.writers[index].shutdown()).poll().is_ready());
                    model.refund(&mut writer);
                    model.writers[index] = writer;
                }
                Op::Pass(nanos) => model.pair.pass(nanos),
                Op::Close => model.pair.close(),
            }
            model.pair.compare(op)?;
        }
    }
}
