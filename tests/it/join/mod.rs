//! Joint claims: all limiters or none, strictly in order in each queue, whatever happens to one of the limiters
//! meanwhile.

mod alone;
mod cancellation;
mod changes;
mod class_histories;
mod class_shares;
mod classes;
mod classes_given_up;
mod grants;
mod histories;
mod late_timers;
mod many_claims;
mod oracle;
mod overtaking;
mod refusals;
mod runtimes;
mod timeline;
mod wakers;
mod world;

use crate::fixture::*;

const MS: Duration = Duration::from_millis(1);

/// A limiter with a manual clock.
fn limiter(clock: &ManualClock, quotas: impl Into<Quotas>) -> Limiter {
    let builder = quotas.into().iter().fold(Limiter::builder(), Builder::quota);
    builder.clock(clock.clone()).build().unwrap()
}

/// Limiters on one clock.
fn on_a_clock<const N: usize>(quotas: [Quotas; N]) -> (ManualClock, [Limiter; N]) {
    let clock = ManualClock::new();
    let limiters = quotas.map(|quotas| limiter(&clock, quotas));
    (clock, limiters)
}

/// One token each millisecond, `burst` at once, empty at first.
fn empty(burst: u64) -> Quotas {
    Quota::per_second(1_000).burst(burst).initial(0).into()
}

/// One token each millisecond, `burst` at once, full at first.
fn full(burst: u64) -> Quotas {
    Quota::per_second(1_000).burst(burst).into()
}

/// One token each millisecond, `burst` at once, full at first, and a manual quota with enough tokens. No clock can tell
/// how long a manual quota takes to mint a token, so a joint claim that comes to the front is not set aside.
fn holding(burst: u64) -> Quotas {
    [Quota::per_second(1_000).burst(burst), Quota::manual(1_000_000)].into()
}

fn tick(limiters: &[&Limiter]) {
    limiters.iter().for_each(|limiter| limiter.tick());
}

/// Advances millisecond by millisecond, so that no timer is late.
fn pass(milliseconds: u64, clock: &ManualClock, limiters: &[&Limiter]) {
    for _ in 0..milliseconds {
        clock.advance(MS);
        tick(limiters);
    }
}

/// The output of a future that must be ready now.
fn done<F: Future>(future: &mut Spawn<F>) -> F::Output
where
    F::Output: Debug,
{
    match future.poll() {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the future is still pending"),
    }
}

/// Tokens granted and not refunded.
fn spent(limiter: &Limiter) -> u64 {
    let now = limiter.snapshot();
    now.granted - now.refunded
}

fn costs<const N: usize>(claim: &mut Spawn<Join<'_, N>>) -> [u64; N] {
    done(claim).unwrap().map(|grant| grant.cost())
}
