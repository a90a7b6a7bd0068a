//! A lower bound for the cost of waiting in classes: tasks wait in a queue of wakers per class, with a binary heap of
//! tags and no limiter.

use crate::RATE;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tokio::time::sleep;

struct Waiter {
    waker: Waker,
    is_granted: Rc<Cell<bool>>,
}

#[derive(Default)]
struct Class {
    queue: VecDeque<Waiter>,
    start: u64,
    span: u64,
}

/// One queue if there are no classes.
#[derive(Default)]
struct Scheduler {
    queue: VecDeque<Waiter>,
    classes: Vec<Class>,
    /// Start tag, span, age and number of each class that waits.
    heap: BinaryHeap<Reverse<(u64, u64, u64, usize)>>,
    virtual_time: u64,
    count: u64,
}

impl Scheduler {
    fn enter(&mut self, task: usize, waiter: Waiter) {
        let count = self.classes.len();
        if count == 0 {
            return self.queue.push_back(waiter);
        }
        let class = &mut self.classes[task % count];
        class.queue.push_back(waiter);
        if class.queue.len() == 1 {
            class.start = class.start.max(self.virtual_time);
            self.count += 1;
            self.heap.push(Reverse((class.start, class.span, self.count, task % count)));
        }
    }

    fn serve(&mut self) -> Option<Waiter> {
        let Some(mut first) = self.heap.peek_mut() else { return self.queue.pop_front() };
        let Reverse((start, span, age, number)) = *first;
        self.virtual_time = start;
        let class = &mut self.classes[number];
        let waiter = class.queue.pop_front();
        class.start = start + span;
        if class.queue.is_empty() {
            PeekMut::pop(first);
        } else {
            *first = Reverse((class.start, span, age, number));
        }
        waiter
    }
}

/// The CPU time of a grant, in so many classes.
pub fn per_grant(classes: usize) -> f64 {
    let class = |index: u64| Class { span: 6 / (1 + index % 3), ..Class::default() };
    let classes = (0..classes as u64).map(class).collect();
    let scheduler = Rc::new(RefCell::new(Scheduler { classes, ..Scheduler::default() }));
    let waits = |_| {
        let scheduler = Rc::clone(&scheduler);
        async move |task| wait(&scheduler, task).await
    };
    crate::per_grant(waits, serve_each_millisecond(Rc::clone(&scheduler)))
}

async fn wait(scheduler: &RefCell<Scheduler>, task: usize) {
    let is_granted = Rc::new(Cell::new(false));
    let mut is_new = true;
    poll_fn(|cx| {
        if std::mem::take(&mut is_new) {
            let waiter = Waiter { waker: cx.waker().clone(), is_granted: Rc::clone(&is_granted) };
            scheduler.borrow_mut().enter(task, waiter);
        }
        if is_granted.get() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

async fn serve_each_millisecond(scheduler: Rc<RefCell<Scheduler>>) {
    let (start, mut served) = (Instant::now(), 0);
    loop {
        sleep(Duration::from_millis(1)).await;
        let due = (start.elapsed().as_micros() * u128::from(RATE) / 1_000_000) as u64;
        while served < due {
            // In batches, as limiters wake.
            let batch = 32.min(due - served);
            served += batch;
            let waiters: Vec<_> = (0..batch).filter_map(|_| scheduler.borrow_mut().serve()).collect();
            for waiter in waiters {
                waiter.is_granted.set(true);
                waiter.waker.wake();
            }
        }
    }
}
