//! Linux's timer file descriptor (timerfd). The worker of the runtime that waits for sockets also waits for this file,
//! so no additional thread has to wake up, and then wake a worker.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::os::fd::OwnedFd;
use std::panic::catch_unwind;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{Interest, unix::AsyncFd};

#[derive(Debug)]
pub(crate) struct Timer {
    file: AsyncFd<OwnedFd>,
}

impl Timer {
    /// Opens a timer. `None` if no more files can be opened, and on a runtime without an I/O driver (`enable_io`):
    /// there tokio panics, which the panic hook has reported.
    pub(super) fn open() -> Option<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let file = timerfd_create(TimerfdClockId::Monotonic, flags).ok()?;
        // The functions that replace `with_interest` are missing in the oldest tokio that this crate supports.
        #[allow(deprecated, reason = "it accepts types that may not be files; this one is a file")]
        let register = || AsyncFd::with_interest(file, Interest::READABLE);
        Some(Self { file: catch_unwind(register).ok()?.ok()? })
    }

    /// Wakes the task when `wait` is over, or earlier. Returns false if that is not possible.
    pub(super) fn wake_after(&mut self, wait: Duration, cx: &mut Context<'_>) -> bool {
        // Clear past events before the new alarm is set: afterwards, an event of the new alarm could be cleared too.
        loop {
            match self.file.poll_read_ready(cx) {
                Poll::Ready(Ok(mut event)) => event.clear_ready(),
                // The runtime is shutting down.
                Poll::Ready(Err(_)) => return false,
                Poll::Pending => break,
            }
        }
        // A wait of zero would disarm the timer.
        let wait = wait.max(Duration::from_nanos(1));
        let Ok(tv_sec) = wait.as_secs().try_into() else { return false };
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec, tv_nsec: wait.subsec_nanos().into() },
        };
        timerfd_settime(self.file.get_ref(), TimerfdTimerFlags::empty(), &once).is_ok()
    }
}
