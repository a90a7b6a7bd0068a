//! Waiting for the first of two futures.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Waits until `one` or `other` is ready, and drops both.
pub(crate) async fn first(one: impl Future, other: impl Future) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| {
        if one.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        other.as_mut().poll(cx).map(drop)
    })
    .await;
}

/// Waits for `main`, and polls `side` first each time. If `side` takes longer, it is dropped.
pub(crate) async fn beside<T>(side: impl Future<Output = ()>, main: impl Future<Output = T>) -> T {
    let (mut side, mut main) = (pin!(side), pin!(main));
    let mut is_done = false;
    poll_fn(|cx| {
        is_done = is_done || side.as_mut().poll(cx).is_ready();
        main.as_mut().poll(cx)
    })
    .await
}
