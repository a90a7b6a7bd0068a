//! Takes part in tokio's cooperative scheduling.
//!
//! A task that awaits one ready future after the other never returns to its runtime, and on a current_thread runtime no
//! other task runs meanwhile, not even the driver of the limiter that the task waits for. Tokio gives each task a
//! budget per poll; every public future of this crate pays one unit of it for each result. Without budget a future
//! returns `Pending`, and tokio wakes the task as soon as the other tasks have had their turn. Outside of tokio the
//! budget is unlimited.
//!
//! Paying is a large part of the cost of a grant without waiting. So of the polls that may grant without waiting, only
//! one in 32 on each thread needs budget ([`count_free_grant`]).
//!
//! The public futures pay, and the mechanism below them does not: a thread that blocks in
//! [`blocking_consume`](crate::Limiter::blocking_consume) has no other task to yield to, and could not be woken.

use std::cell::Cell;
use std::task::{Context, Poll, ready};
use tokio::task::coop::poll_proceed;

/// How many grants without waiting a thread gives between two results that are paid for.
const FREE_GRANTS: u8 = 31;

thread_local! {
    /// How many free grants this thread has given since a result was last paid for.
    static GIVEN: Cell<u8> = const { Cell::new(0) };
}

/// Returns whether a grant without waiting costs no budget, and counts the grant if so. Such a grant is returned even
/// if no budget is left, so it is never lost.
///
/// Grants are counted, not tokens: if every 32nd token paid, claims of 32 tokens would pay always or never.
#[inline(always)]
pub(crate) fn count_free_grant() -> bool {
    let given = GIVEN.get();
    // Loom repeats a model, and expects the same calls each time.
    let is_free = !cfg!(tollgate_loom) && given < FREE_GRANTS;
    if is_free {
        GIVEN.set(given + 1);
    }
    is_free
}

/// Takes back the count of a free grant, because the claim has to wait.
///
/// Without this, in a task that polls a waiting claim and a ready claim in turns, each payment could fall on the
/// waiting claim, which pays nothing.
#[inline(always)]
pub(crate) fn uncount_free_grant() {
    // The count is 0 if user code that ran in between (`Hash` or `Eq` of a key) polled a future that paid.
    GIVEN.set(GIVEN.get().saturating_sub(1));
}

/// Polls, and pays for the result, if there is one. Without budget `poll` is not called at all: a claim granted by it
/// could not be returned to the caller.
#[inline(always)]
pub(crate) fn poll_paid<T>(cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    let budget = ready!(poll_proceed(cx));
    let answer = poll(cx);
    if answer.is_ready() {
        GIVEN.set(0);
        // This does what `made_progress` does and leaves nothing to drop: that drop is a function call, and would be a large
        // part of the cost of a grant without waiting.
        std::mem::forget(budget);
    }
    answer
}
