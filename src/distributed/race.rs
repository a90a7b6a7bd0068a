//! Waiting for the first of two futures.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// The output of the future that was ready first.
pub(crate) enum First<A, B> {
    One(A),
    Other(B),
}

/// Waits until `one` or `other` is ready, and drops the other. If both are ready, `one` wins.
pub(crate) async fn first<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> First<A, B> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| {
        if let Poll::Ready(output) = one.as_mut().poll(cx) {
            return Poll::Ready(First::One(output));
        }
        other.as_mut().poll(cx).map(First::Other)
    })
    .await
}
