//! Takes part in tokio's cooperative scheduling.
//!
//! A task that awaits one ready future after the other never returns to its runtime, which then cannot run the driver
//! of the limiter that the task waits for. The futures of tollgate pay one unit of the task's budget for each result.
//! The futures of this crate either poll one of those, or pay a unit themselves.

use std::task::{Context, Poll, ready};
use tokio::task::coop::poll_proceed;

/// Polls, and pays for the result, if there is one. Without budget `poll` is not called at all: a claim granted by it
/// could not be returned to the caller.
pub(crate) fn poll_paid<T>(cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    let budget = ready!(poll_proceed(cx));
    let answer = poll(cx);
    if answer.is_ready() {
        budget.made_progress();
    }
    answer
}
