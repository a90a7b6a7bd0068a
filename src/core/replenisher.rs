//! The background task: sleeps until the front waiter is due, serves the queue, sleeps again.
//!
//! No caller has to start one: the first waiter of each runtime does. While no claim waits it is parked without a
//! timer. It holds a `Weak` of the limiter, and ends when the limiter is dropped. When its runtime shuts down, all
//! waiters are woken and poll again, and the first of them that still has a runtime starts the next driver.

use crate::core::alarm::Alarm;
use crate::core::drivers::Kind;
use crate::core::fine::{BEHIND, Fine, GAP};
use crate::core::wakes::Hired;
use crate::core::{Core, Drive};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::runtime::Handle;

pin_project! {
    /// A future that serves a limiter's queue whenever it is due, to be spawned by the user; from
    /// [`Limiter::replenisher`](crate::Limiter::replenisher). It ends when the last clone of the limiter is dropped.
    ///
    /// A limiter spawns a replenisher by itself on each runtime that has waiters, and spawning another is harmless. One is
    /// needed where the waiters' own runtime is not driven, or where waiters are outside of all runtimes: on a runtime that
    /// is driven, a replenisher serves the whole queue, wherever the waiters are.
    ///
    /// # Cancel safety
    ///
    /// It can be dropped at any time: waiters are woken, and find or start another one on their own runtimes.
    ///
    /// # Panics
    ///
    /// When polled outside of a tokio runtime, or on one without timers, as `tokio::time::sleep` does.
    #[must_use = "a replenisher does nothing unless it is spawned or polled"]
    #[derive(Debug)]
    pub struct Replenisher {
        core: Weak<Core>,
        registration: Option<Registration>,
        #[pin]
        alarm: Alarm,
        fine: Fine,
        // Serves the parent of a key.
        parent: Option<Pin<Box<Replenisher>>>,
        // Whether the runtime of this driver is shutting down, so that the task of a source cannot be spawned on it.
        is_ending: bool,
    }
}

impl Replenisher {
    /// Creates a replenisher that registers when it is first polled.
    pub(crate) fn new(core: &Core) -> Self {
        let parent = core.parent().map(|parent| Box::pin(Self::new(parent)));
        let (alarm, fine) = (Alarm::unset(), Fine::Unset);
        Self { core: core.weak(), registration: None, alarm, fine, parent, is_ending: false }
    }

    /// Creates a replenisher that is registered already.
    pub(crate) fn registered(registration: Registration) -> Self {
        let core = registration.core.clone();
        let (alarm, fine) = (Alarm::unset(), Fine::Unset);
        Self { core, registration: Some(registration), alarm, fine, parent: None, is_ending: false }
    }
}

impl Future for Replenisher {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let Some(core) = this.core.upgrade() else { return Poll::Ready(()) };
        if let Some(parent) = this.parent {
            let _pending = parent.as_mut().poll(cx);
        }
        let registration = this.registration.get_or_insert_with(|| Registration::new(&core, Kind::ByHand));
        loop {
            let turn = core.drive(registration.id, cx.waker());
            if matches!(turn, Drive::Until { source_task_is_gone: true, .. }) && !*this.is_ending {
                // Waiters of children rely on this, because their proxies have no wakers. If it is in vain, the task
                // wakes all drivers, also this one: it does not try again.
                *this.is_ending = !core.replace_source_task();
            }
            let alarm = match turn {
                Drive::Until { alarm: u64::MAX, .. } => return Poll::Pending,
                Drive::Until { alarm, several_wait, .. } => {
                    let at = core.time.instant_or_retry(alarm);
                    // A clock other than tokio's may stand still with little time left: without a gap this would become
                    // a busy loop.
                    let gap = if several_wait || !core.time.is_tokios() { GAP } else { Duration::ZERO };
                    if core.fine && this.fine.wake_at(at, gap, cx) { at + BEHIND } else { at }
                }
                Drive::Yield => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            };
            ready!(this.alarm.as_mut().poll_until(alarm, cx));
        }
    }
}

/// The entry of a driver in its limiter. Dropping the entry hands the queue over to other drivers.
#[derive(Debug)]
pub(crate) struct Registration {
    core: Weak<Core>,
    pub(crate) id: u64,
}

impl Registration {
    pub(crate) fn new(core: &Core, kind: Kind) -> Self {
        Self::adopt(core.weak(), core.add_driver(kind))
    }

    /// Takes ownership of an entry that was added already.
    pub(crate) fn adopt(core: Weak<Core>, id: u64) -> Self {
        Self { core, id }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            core.remove_driver(self.id);
        }
    }
}

impl Core {
    /// Spawns a driver on `host`, unless this queue has one there, and the task of the source, unless the task runs
    /// already, on any runtime.
    pub(super) fn hire(&self, host: &Handle) -> Hired {
        self.start_source_task(host);
        let mut state = self.state.lock();
        if state.drivers.serve(host) {
            return Hired::Before;
        }
        if let Some(link) = &self.link {
            drop(state);
            return if link.driver.hire(host, self) { Hired::Now } else { Hired::InVain };
        }
        // Registered at once, so that the next waiter does not spawn another.
        let id = state.drivers.add(Kind::Hired(host.clone()));
        drop(state);
        host.spawn(Replenisher::registered(Registration::adopt(self.weak(), id)));
        if self.state.lock().drivers.contains(id) { Hired::Now } else { Hired::InVain }
    }

    /// The task of the source ended with its runtime: spawns it on this one, if there is one. Returns false if this runtime
    /// is shutting down too.
    pub(super) fn replace_source_task(&self) -> bool {
        self.host().is_none_or(|host| self.start_source_task(&host))
    }

    /// Spawns the tasks of the sources of this limiter and its parent, unless they run already, if this thread is in a
    /// runtime. Returns false if it is not.
    pub(crate) fn replace_sources(&self) -> bool {
        let Some(host) = self.host() else { return false };
        self.start_source_task(&host);
        self.parent().into_iter().for_each(|parent| _ = parent.start_source_task(&host));
        true
    }

    /// Spawns the task of a source of tokens on `host`, unless it runs already. Returns false if `host` is shutting down.
    /// Whether the task is gone afterwards would not tell: another thread may have spawned it in vain on its own runtime.
    pub(super) fn start_source_task(&self, host: &Handle) -> bool {
        let task = self.state.lock().supply.source_mut().and_then(|source| source.take_task());
        task.is_none_or(|task| task.spawn(host))
    }
}
