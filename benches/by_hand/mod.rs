//! The work of the limiter alone, to be counted by valgrind: futures that are polled by hand on a manual clock, without
//! tasks and timers.

use crate::start::Start;
use crate::{limiter_with, quota};
use std::hint::black_box;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use tollgate::{AsLimiter, ConsumeOwned, Limiter, ManualClock};

const WAITS: usize = 100_000;

/// The numbers of the futures that were woken.
type Woken = Mutex<Vec<usize>>;

struct NumberedWaker {
    number: usize,
    woken: Arc<Woken>,
}

impl Wake for NumberedWaker {
    fn wake(self: Arc<Self>) {
        self.woken.lock().expect("no panic").push(self.number);
    }
}

struct Waits<L: AsLimiter> {
    limiter: Limiter,
    clock: ManualClock,
    /// Where each future waits.
    queues: Vec<L>,
    futures: Vec<Pin<Box<ConsumeOwned<L>>>>,
    wakers: Vec<Waker>,
    woken: Arc<Woken>,
}

pub fn run(tasks: usize, classes: usize) {
    let clock = ManualClock::new();
    let builder = Limiter::builder().quota(quota()).clock(clock.clone());
    if classes == 0 {
        let limiter = builder.build().expect("a quota");
        return Waits::new(&limiter, clock, std::slice::from_ref(&limiter), tasks).run();
    }
    let (limiter, classes) = limiter_with(builder, classes);
    Waits::new(&limiter, clock, &classes, tasks).run();
}

impl<L: AsLimiter> Waits<L> {
    fn new(limiter: &Limiter, clock: ManualClock, queues: &[L], tasks: usize) -> Self {
        let queues: Vec<_> = (0..tasks).map(|task| queues[task % queues.len()].clone()).collect();
        let futures = queues.iter().map(|queue| Box::pin(queue.clone().consume_owned(1))).collect();
        let woken = Arc::new(Woken::default());
        let waker = |number| Waker::from(Arc::new(NumberedWaker { number, woken: Arc::clone(&woken) }));
        let wakers = (0..tasks).map(waker).collect();
        Self { limiter: limiter.clone(), clock, queues, futures, wakers, woken }
    }

    fn run(mut self) {
        for task in Start::Shuffled.order(self.futures.len()) {
            self.wait(task);
        }
        // Until all futures wait again, in the order that lasts.
        self.serve(2 * self.futures.len());
        let waits = serve_counted(&mut self);
        println!("{waits} waits");
    }

    fn wait(&mut self, task: usize) {
        loop {
            let mut context = Context::from_waker(&self.wakers[task]);
            if self.futures[task].as_mut().poll(&mut context).is_pending() {
                return;
            }
            self.futures[task].set(self.queues[task].clone().consume_owned(1));
        }
    }

    /// Lets time pass in steps of one millisecond. Returns how many futures were ready.
    fn serve(&mut self, waits: usize) -> usize {
        let mut served = 0;
        let mut woken = Vec::new();
        while served < waits {
            self.clock.advance(Duration::from_millis(1));
            self.limiter.tick();
            std::mem::swap(&mut woken, &mut self.woken.lock().expect("no panic"));
            served += woken.len();
            woken.drain(..).for_each(|task| self.wait(task));
        }
        served
    }
}

/// What is counted.
#[inline(never)]
fn serve_counted<L: AsLimiter>(waits: &mut Waits<L>) -> usize {
    black_box(waits).serve(WAITS)
}
