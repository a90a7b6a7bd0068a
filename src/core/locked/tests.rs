use super::*;
use crate::{Limiter, ManualClock, Quota};
use std::iter;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// A waker that records, at each wake-up, which of the queues are in the middle of being served.
struct Witness {
    limiters: [Limiter; 2],
    unfinished: Mutex<Vec<[bool; 2]>>,
}

impl Wake for Witness {
    fn wake(self: Arc<Self>) {
        let unfinished = self.limiters.each_ref().map(|limiter| limiter.core().state.lock().is_unfinished());
        self.unfinished.lock().unwrap().push(unfinished);
    }
}

#[test]
fn queues_unlocked_before_the_action_are_unfinished() {
    let clock = ManualClock::new();
    let limiters = [(); 2].map(|()| {
        let limiter = Limiter::builder().quota(Quota::per_second(100)).clock(clock.clone()).build().unwrap();
        drop(limiter.try_acquire(100).unwrap());
        limiter
    });
    let witness = Arc::new(Witness { limiters: limiters.clone(), unfinished: Mutex::default() });
    let waker = Waker::from(Arc::clone(&witness));
    // The second queue is served first. Its waker and those of the first queue do not fit into one batch.
    let indices = iter::repeat_n(0, 32).chain([1]);
    let mut claims: Vec<_> = indices.map(|index| Box::pin(limiters[index].consume(1))).collect();
    for claim in &mut claims {
        assert!(claim.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    clock.advance(Duration::from_secs(1));
    let mut wakes = Wakes::default();
    let cores = limiters.each_ref().map(Limiter::core);
    let samples = cores.map(|core| Some(core.sample()));
    with_locked(&mut wakes, cores, &samples, Reach::Now, CatchUp::Fully, |_| (), |_, _| ());
    wakes.run();
    let unfinished = witness.unfinished.lock().unwrap();
    assert_eq!((unfinished.len(), unfinished[0], unfinished[32]), (33, [true, true], [false, false]));
}
