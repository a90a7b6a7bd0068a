//! Takes part in tokio's cooperative scheduling.
//!
//! A task that awaits one ready future after the other never returns to its runtime, and on a current_thread runtime no
//! other task runs meanwhile, not even the driver of the limiter that the task waits for. Tokio gives each task a
//! budget per poll; every public future of this crate pays one unit of it for each result. Without budget a future
//! returns `Pending`, and tokio wakes the task as soon as the other tasks have had their turn. Outside of tokio the
//! budget is unlimited.
//!
//! The public futures pay, and the mechanism below them does not: a thread that blocks in
//! [`blocking_consume`](crate::Limiter::blocking_consume) has no other task to yield to, and could not be woken.

use std::task::{Context, Poll, ready};
use tokio::task::coop::{RestoreOnPending, poll_proceed};

/// Polls, and pays for the result, if there is one. Without budget `poll` is not called at all: a claim granted by it
/// could not be returned to the caller.
#[inline(always)]
pub(crate) fn poll_paid<T>(cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    let budget = ready!(poll_proceed(cx));
    let answer = poll(cx);
    if answer.is_ready() {
        pay(budget);
    }
    answer
}

/// Pays with `budget`: the unit is not given back. Does the same as `made_progress`, but leaves nothing to drop: that
/// drop is a function call, and would be a large part of the cost of a grant without waiting.
#[inline(always)]
pub(crate) fn pay(budget: RestoreOnPending) {
    std::mem::forget(budget);
}
