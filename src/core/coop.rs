//! Takes part in tokio's cooperative scheduling.
//!
//! A task that awaits one ready future after the other never returns to its runtime, and on a current_thread runtime no
//! other task runs meanwhile, not even the driver of the limiter that the task waits for. Tokio gives each task a budget
//! per poll; every public future here pays one unit of it for each answer. Without budget a future answers `Pending`, and
//! tokio wakes the task as soon as the other tasks have had their turn. Outside of tokio the budget is unlimited.
//!
//! The public futures pay, and the mechanism below them does not: a thread that blocks in
//! [`blocking_consume`](crate::Limiter::blocking_consume) has no other task to yield to, and could not be woken.

use std::task::{Context, Poll, ready};
use tokio::task::coop::{RestoreOnPending, poll_proceed};

/// Polls, and pays for the answer, if there is one. Without budget `poll` is not called at all: a claim that was granted
/// could not be handed out.
#[inline(always)]
pub(crate) fn poll_paid<T>(cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    let budget = ready!(poll_proceed(cx));
    let answer = poll(cx);
    if answer.is_ready() {
        pay(budget);
    }
    answer
}

/// Keeps what `budget` was lowered by. As `made_progress`, but there is nothing left to drop: that drop is a call, and would be
/// a large part of what a grant without waiting costs.
#[inline(always)]
pub(crate) fn pay(budget: RestoreOnPending) {
    std::mem::forget(budget);
}
