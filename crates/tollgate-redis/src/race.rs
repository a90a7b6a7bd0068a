//! Waiting for the first of two futures.

use futures_util::future::{Either, select};
use std::pin::pin;

/// Waits until `one` or `other` is ready, and drops both. If both are ready, `one` wins.
pub(super) async fn first<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> Either<A, B> {
    match select(pin!(one), pin!(other)).await {
        Either::Left((output, _)) => Either::Left(output),
        Either::Right((output, _)) => Either::Right(output),
    }
}
