//! Several resources reserved at once, for work that learns its cost while it runs.

use crate::error::ConsumeError;
use crate::grant::Grant;
use crate::handle::{Handle, Limiter};
use crate::join::Join;

/// Waits until every limiter can grant its cost, as [`join`](crate::join) does, and returns the grants as one [`Reservation`].
///
/// Use it for a stream with a cost that is an estimate at first: a request of a language model takes one request, the input
/// tokens, an estimate of the output tokens, and a place among the tokens in flight.
///
/// [`within`](Join::within) bounds the wait.
///
/// # Errors
///
/// The same as [`join`](crate::join).
///
/// # Cancel safety
///
/// The same as [`join`](crate::join): a future that is dropped has taken nothing.
///
/// # Panics
///
/// The same as [`join`](crate::join).
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Limiter, Quota, reserve};
/// let requests = Limiter::new(Quota::per_minute(60))?;
/// let input = Limiter::new(Quota::per_minute(90_000))?;
/// let output = Limiter::new(Quota::per_minute(30_000))?;
///
/// let mut stream = reserve([(&requests, 1), (&input, 1_200), (&output, 500)]).await?;
/// for _chunk in 0..3 {
///     stream.count(2, 40); // as the chunks arrive
/// }
/// drop(stream); // the connection broke: the 120 tokens stay charged, the rest of the estimate comes back
/// assert_eq!(output.available(), 30_000 - 120);
/// assert_eq!(input.available(), 90_000 - 1_200);
/// # Ok(()) }
/// ```
pub fn reserve<L: Handle, const N: usize>(claims: [(&L, u64); N]) -> Join<'_, N, Reservation<'_, N, L>, L> {
    Join::new(claims)
}

/// The grants of several limiters for one piece of work; returned by [`reserve`]. The resources are numbered as in the
/// array that was reserved.
///
/// Dropping the reservation settles each resource for what was [counted](Self::count), and releases it if its limiter
/// has an in-flight cap. A resource that was never counted stays charged with its cost. So a stream that is aborted
/// leaves no reservation behind, and the units that it has used stay charged.
#[must_use = "dropping a reservation settles it: keep it for as long as the work lasts"]
#[derive(Debug)]
pub struct Reservation<'a, const N: usize, L: Handle = Limiter> {
    parts: [Part<'a, L>; N],
}

#[derive(Debug)]
struct Part<'a, L: Handle> {
    grant: Grant<'a, L>,
    /// The units used so far; `None` if none were counted since the cost was settled.
    counted: Option<u64>,
    /// The settled cost, on top of which units are counted.
    settled: u64,
}

impl<'a, const N: usize, L: Handle> From<[Grant<'a, L>; N]> for Reservation<'a, N, L> {
    /// Makes a reservation of grants, such as those of [`try_join`](crate::try_join).
    fn from(grants: [Grant<'a, L>; N]) -> Self {
        Self { parts: grants.map(|grant| Part { grant, counted: None, settled: 0 }) }
    }
}

impl<'a, const N: usize, L: Handle> Reservation<'a, N, L> {
    /// Returns the cost of a resource in tokens: the reserved cost, after it was grown or settled.
    ///
    /// # Panics
    ///
    /// Panics if there is no such resource, as all methods with a resource do.
    pub fn cost(&self, resource: usize) -> u64 {
        self.parts[resource].grant.cost()
    }

    /// Counts `units` of a resource as used. It never waits: what exceeds the reservation is charged as a debt, see
    /// [`Grant::grow`].
    ///
    /// # Panics
    ///
    /// Panics if there is no such resource, or if the limiter's [clock](crate::Clock) panics.
    pub fn count(&mut self, resource: usize, units: u64) {
        let part = &mut self.parts[resource];
        let counted = part.counted.unwrap_or(part.settled).saturating_add(units);
        part.grant.grow(counted.saturating_sub(part.grant.cost()));
        part.counted = Some(counted);
    }

    /// Waits for `units` more of a resource; see [`Grant::grow_within`]. Call it before the units are used, if the
    /// work can wait.
    ///
    /// # Errors
    ///
    /// The same as [`Limiter::consume`].
    ///
    /// # Panics
    ///
    /// Panics if there is no such resource. The future panics as [`Consume`](crate::Consume) does.
    pub fn grow_within(&mut self, resource: usize, units: u64) -> impl Future<Output = Result<(), ConsumeError>> {
        self.parts[resource].grant.grow_within(units)
    }

    /// Sets the real cost of a resource, which replaces the units counted so far; see [`Grant::settle`].
    ///
    /// # Panics
    ///
    /// Panics if there is no such resource, or if the limiter's [clock](crate::Clock) panics.
    pub fn settle(&mut self, resource: usize, actual: u64) {
        let part = &mut self.parts[resource];
        part.grant.settle(actual);
        (part.counted, part.settled) = (None, part.grant.cost());
    }
}

impl<L: Handle> Drop for Part<'_, L> {
    fn drop(&mut self) {
        if let Some(counted) = self.counted.take() {
            self.grant.settle_anyway(counted);
        }
    }
}
