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
