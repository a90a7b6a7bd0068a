//! The fine timer changes nothing but lateness: the tests of paused time and of runtimes that end, with it on, and what is
//! its own. Nothing here is timed, but for bounds that a slow machine cannot break.

mod ending;
mod own;
mod paused;

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use tollgate::{Builder, ConfigError, Quota};

/// In the place of tollgate's, so that limiters get the fine timer.
struct Limiter;

impl Limiter {
    fn builder() -> Builder {
        tollgate::Limiter::builder().fine_timer()
    }

    #[allow(clippy::new_ret_no_self)]
    fn new(quota: Quota) -> Result<tollgate::Limiter, ConfigError> {
        Self::builder().quota(quota).build()
    }
}

/// Runs `test` on a thread of its own, so that one that hangs fails instead of holding everybody up.
fn to_its_end(test: impl FnOnce() + Send + 'static) {
    let (running, ended) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        let _running = running;
        test();
    });
    match ended.recv_timeout(Duration::from_secs(180)) {
        Err(RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
    }
}
