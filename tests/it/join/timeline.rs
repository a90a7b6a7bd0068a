//! Claims by name over classes and limiters, and the instants at which they end.

use super::{MS, limiter, tick};
use crate::fixture::*;

/// A limiter with classes, of 100 tokens per second with a burst of 10, empty at first.
pub(crate) fn divided(clock: &ManualClock) -> Limiter {
    divided_by(clock, Quota::per_second(100).burst(10).initial(0))
}

pub(crate) fn divided_by(clock: &ManualClock, quota: Quota) -> Limiter {
    Limiter::builder().quota(quota).classes().clock(clock.clone()).build().unwrap()
}

pub(crate) fn class(limiter: &Limiter, name: &str, weight: u64) -> Class {
    limiter.class(name, Share::weight(weight)).unwrap()
}

pub(crate) fn any(limiter: &Limiter) -> AnyLimiter {
    AnyLimiter::from(limiter.clone())
}

pub(crate) fn any_class(class: &Class) -> AnyLimiter {
    AnyLimiter::from(class.clone())
}

/// A limiter that divides 100 tokens per second among two classes, beside a plain one of 10 requests per second.
pub(crate) struct Setup {
    pub(crate) clock: ManualClock,
    pub(crate) requests: Limiter,
    pub(crate) tokens: Limiter,
    pub(crate) a: Class,
    pub(crate) b: Class,
    pub(crate) timeline: Timeline,
}

pub(crate) fn setup() -> Setup {
    setup_beside(Quota::per_second(10))
}

/// The same beside a plain limiter of so many requests, one at once.
pub(crate) fn setup_beside(requests: Quota) -> Setup {
    let clock = ManualClock::new();
    let (requests, tokens) = (limiter(&clock, requests.burst(1).initial(0)), divided(&clock));
    let (a, b) = (class(&tokens, "a", 1), class(&tokens, "b", 1));
    let timeline = Timeline::new(&clock, [&requests, &tokens]);
    Setup { clock, requests, tokens, a, b, timeline }
}

/// A claim that waits. Its result is whether it was granted.
pub(crate) type Waiting = Spawn<Pin<Box<dyn Future<Output = bool>>>>;

/// Claims by name, and the instants at which they ended.
pub(crate) struct Timeline {
    clock: ManualClock,
    limiters: [Limiter; 2],
    pub(crate) waiting: Vec<(String, Waiting)>,
    pub(crate) now: u64,
    pub(crate) log: Vec<String>,
}

impl Timeline {
    pub(crate) fn new(clock: &ManualClock, limiters: [&Limiter; 2]) -> Self {
        let (clock, limiters) = (clock.clone(), limiters.map(Limiter::clone));
        Self { clock, limiters, waiting: Vec::new(), now: 0, log: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: impl Into<String>, claim: impl Future<Output = bool> + 'static) {
        let mut claim: Waiting = spawn(Box::pin(claim));
        let name = name.into();
        match claim.poll() {
            Poll::Ready(granted) => self.note(&name, granted),
            Poll::Pending => self.waiting.push((name, claim)),
        }
    }

    pub(crate) fn plain(&mut self, name: impl Into<String>, class: &Class, cost: u64) {
        let claim = class.clone().consume_owned(cost);
        self.add(name, async { claim.await.is_ok() });
    }

    pub(crate) fn many(&mut self, name: &str, class: &Class, count: usize, cost: u64) {
        (0..count).for_each(|index| self.plain(format!("{name}{index}"), class, cost));
    }

    pub(crate) fn joint<const N: usize>(&mut self, name: impl Into<String>, claims: [(AnyLimiter, u64); N]) {
        self.add(name, async move { join(claims.each_ref().map(|(limiter, cost)| (limiter, *cost))).await.is_ok() });
    }

    /// Drops a claim.
    pub(crate) fn cancel(&mut self, name: &str) {
        self.waiting.retain(|(known, _)| known != name);
        self.look();
    }

    fn note(&mut self, name: &str, granted: bool) {
        let mark = if granted { "" } else { "!" };
        self.log.push(format!("{mark}{name} {}", self.now));
    }

    pub(crate) fn look(&mut self) {
        tick(&self.limiters.each_ref());
        let mut index = 0;
        while index < self.waiting.len() {
            let (name, claim) = &mut self.waiting[index];
            match if claim.is_woken() { claim.poll() } else { Poll::Pending } {
                Poll::Ready(granted) => {
                    let name = std::mem::take(name);
                    drop(self.waiting.remove(index));
                    self.note(&name, granted);
                }
                Poll::Pending => index += 1,
            }
        }
    }

    /// Advances by 5 milliseconds at a time.
    pub(crate) fn until(&mut self, milliseconds: u64) {
        while self.now < milliseconds {
            self.now += 5;
            self.clock.advance(5 * MS);
            self.look();
        }
    }

    pub(crate) fn log(&self) -> String {
        self.log.join(", ")
    }
}
