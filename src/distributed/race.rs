//! Waiting for the first of two futures.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
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

/// A future that is polled beside others, one after the other; `None` once it has ended.
pub(crate) type Side = Option<Pin<Box<dyn Future<Output = ()> + Send>>>;

/// Waits for `main`, and polls `side` first each time. If `side` takes longer, the caller keeps it.
pub(crate) async fn beside<T>(side: &mut Side, main: impl Future<Output = T>) -> T {
    let mut main = pin!(main);
    poll_fn(|cx| {
        if side.as_mut().is_some_and(|side| side.as_mut().poll(cx).is_ready()) {
            *side = None;
        }
        main.as_mut().poll(cx)
    })
    .await
}
