//! The order in which tasks begin.

use std::iter;
use tokio::sync::oneshot::{self, Receiver, Sender};

/// The order in which tasks begin that were spawned, and lie in memory, one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Start {
    InOrder,
    Shuffled,
}

impl Start {
    pub const BOTH: [Self; 2] = [Self::InOrder, Self::Shuffled];

    /// The numbers of the tasks. The same in each run.
    pub fn order(self, tasks: usize) -> Vec<usize> {
        let mut order: Vec<_> = (0..tasks).collect();
        if self == Self::Shuffled {
            fastrand::Rng::with_seed(18).shuffle(&mut order);
        }
        order
    }

    /// Signals that let one task after the other begin, and what each task waits for.
    pub fn signals(self, tasks: usize) -> (Signals, Vec<Receiver<()>>) {
        let (senders, receivers) = iter::repeat_with(oneshot::channel).take(tasks).unzip();
        (Signals { order: self.order(tasks), senders }, receivers)
    }
}

pub struct Signals {
    order: Vec<usize>,
    senders: Vec<Sender<()>>,
}

impl Signals {
    /// Lets all tasks begin. They wait for it already.
    pub fn send(self) {
        let mut senders: Vec<_> = self.senders.into_iter().map(Some).collect();
        for task in self.order {
            senders[task].take().expect("one signal for each").send(()).expect("the task waits");
        }
    }
}
