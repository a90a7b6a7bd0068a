//! Lines for the operator about what clients and upstreams do. Each kind is limited, so that a flood of failures is no
//! flood of lines.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::{Limiter, Quota};

/// The upstream does not answer, or not as it should.
pub(crate) static UPSTREAM: LazyLock<Log> = LazyLock::new(Log::new);
/// Connections cannot be accepted, or are refused.
pub(crate) static CONNECTIONS: LazyLock<Log> = LazyLock::new(Log::new);
/// The state cannot be saved. It has a limit of its own, so that a flood of connections does not hide it.
pub(crate) static STATE: LazyLock<Log> = LazyLock::new(Log::new);
/// The access log cannot be written.
pub(crate) static ACCESS: LazyLock<Log> = LazyLock::new(Log::new);

/// Lines of one kind.
pub(crate) struct Log {
    limiter: Limiter,
    left_out: AtomicU64,
}

impl Log {
    fn new() -> Self {
        Self::with(Limiter::new(Quota::per_second(1).burst(5)).expect("the quota is valid"))
    }

    fn with(limiter: Limiter) -> Self {
        Self { limiter, left_out: AtomicU64::new(0) }
    }

    /// Writes a line, or counts it for the next one.
    pub(crate) fn line(&self, what: impl fmt::Display) {
        if let Some(line) = self.limited(what) {
            eprintln!("gateway: {line}");
        }
    }

    fn limited(&self, what: impl fmt::Display) -> Option<String> {
        if self.limiter.try_acquire(1).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(match self.left_out.swap(0, Ordering::Relaxed) {
            0 => what.to_string(),
            count => format!("{what} ({count} lines like this left out)"),
        })
    }
}

#[test]
fn lines_that_are_left_out_are_counted() {
    let clock = tollgate::ManualClock::new();
    let limiter = Limiter::builder().quota(Quota::per_second(1).burst(5)).clock(clock.clone()).build().unwrap();
    let log = Log::with(limiter);
    let lines: Vec<_> = (0..100).filter_map(|number| log.limited(number)).collect();
    assert_eq!(lines, ["0", "1", "2", "3", "4"]);
    clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(log.limited("next").as_deref(), Some("next (95 lines like this left out)"));
    clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(log.limited("last").as_deref(), Some("last"));
}
