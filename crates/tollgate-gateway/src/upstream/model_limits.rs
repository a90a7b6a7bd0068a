//! What one upstream says about its limits for one model of a language model.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollgate::{ConfigError, Limiter, Quota};

use crate::request::rule::unlimited;

/// How long a response counts, as a pause is for no longer.
const COUNTS_FOR: Duration = Duration::from_secs(600);

/// Limiters that follow the responses of one upstream. No request waits for them: they know what is left there.
#[derive(Debug)]
pub(crate) struct ModelLimits {
    pub(crate) tokens: Limiter,
    pub(crate) requests: Limiter,
    /// The quota of the file.
    pub(crate) fastest: Quota,
    /// When the upstream last responded.
    heard: Mutex<Option<Instant>>,
}

impl ModelLimits {
    /// Of an upstream that has said nothing yet; it may get `fastest`.
    pub(crate) fn new(fastest: Quota) -> Result<Self, ConfigError> {
        let limiter = |quota| Limiter::builder().quota(quota).build();
        Ok(Self { tokens: limiter(fastest)?, requests: limiter(unlimited())?, fastest, heard: Mutex::default() })
    }

    /// The same after a change of the file: the upstream still pauses.
    pub(crate) fn with_fastest(&self, fastest: Quota) -> Result<Self, ConfigError> {
        let new = Self::new(fastest)?;
        for (old, new) in [(&self.tokens, &new.tokens), (&self.requests, &new.requests)] {
            old.snapshot().paused_for.into_iter().for_each(|pause| new.pause_for(pause));
        }
        Ok(new)
    }

    /// Notes a response.
    pub(crate) fn heard(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether the last response is not long ago.
    pub(crate) fn is_known(&self) -> bool {
        let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.is_some_and(|at| at.elapsed() <= COUNTS_FOR)
    }

    /// For how long the upstream takes no request, as it has said: a request needs tokens, and counts as a request.
    pub(crate) fn paused_for(&self) -> Option<Duration> {
        [&self.tokens, &self.requests].into_iter().filter_map(|limiter| limiter.snapshot().paused_for).max()
    }
}

/// Makes `limiter` follow the limiters `of` all upstreams together: it gets the sum of their quotas, but no more than
/// `fastest`, and it gives up what none of them has left. An upstream that pauses has nothing left.
pub(crate) fn follow_together(
    limiter: &Limiter,
    parts: &[Arc<ModelLimits>],
    of: fn(&ModelLimits) -> &Limiter,
    fastest: Quota,
) {
    let states: Vec<_> = parts.iter().map(|part| (of(part).snapshot(), part.paused_for())).collect();
    let quota = sum(states.iter().map(|(state, _)| state.quotas[0].quota), fastest);
    if limiter.snapshot().quotas[0].quota != quota {
        // It is slower than `fastest`, which was checked.
        let _ = limiter.set_quota(0, quota);
    }
    let free = states.iter().filter(|(_, pause)| pause.is_none());
    let left = free.map(|(state, _)| state.quotas[0].available).fold(0, u64::saturating_add);
    let surplus = limiter.available().saturating_sub(left);
    if surplus > 0 {
        // If other requests took tokens meanwhile, there is less to give up.
        drop(limiter.try_acquire(surplus));
    }
}

/// All quotas together, but not faster and with no larger burst than `fastest`.
fn sum(quotas: impl Iterator<Item = Quota> + Clone, fastest: Quota) -> Quota {
    let longest = quotas.clone().map(|quota| quota.period()).max().unwrap_or(fastest.period());
    let in_longest =
        |quota: Quota| u128::from(quota.amount()).saturating_mul(longest.as_nanos()) / quota.period().as_nanos().max(1);
    let burst = quotas.clone().map(|quota| quota.capacity()).fold(0, u64::saturating_add).min(fastest.capacity());
    let amount = quotas.map(in_longest).fold(0, u128::saturating_add);
    if amount >= in_longest(fastest) && burst == fastest.capacity() {
        // It may be stepped.
        return fastest;
    }
    if amount >= in_longest(fastest) {
        return Quota::new(fastest.amount(), fastest.period()).burst(burst);
    }
    Quota::new(u64::try_from(amount).unwrap_or(u64::MAX).max(1), longest).burst(burst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_add_up_to_that_of_the_file_at_most() {
        let fastest = Quota::per_minute(60_000).burst(5_000);
        let all = |quotas: &[Quota]| sum(quotas.iter().copied(), fastest);
        let stepped = Quota::per_minute(60).stepped();
        assert_eq!(sum([stepped, stepped].into_iter(), stepped), stepped);
        let slow = Quota::per_minute(600).burst(99);
        assert_eq!(all(&[slow]), slow);
        assert_eq!(all(&[slow, slow]), Quota::per_minute(1_200).burst(198));
        assert_eq!(all(&[slow, Quota::per_second(1)]), Quota::per_minute(660).burst(100));
        assert_eq!(all(&[slow, fastest]), fastest);
        assert_eq!(
            all(&[Quota::new(1, Duration::from_secs(600)), slow]),
            Quota::new(6_001, Duration::from_secs(600)).burst(100)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_pauses_has_nothing_left_of_tokens_and_of_requests() {
        let quota = Quota::per_minute(60);
        let [one, other] = [(); 2].map(|()| Arc::new(ModelLimits::new(quota).unwrap()));
        let all = Limiter::new(quota).unwrap();
        one.requests.pause_for(Duration::from_secs(30));
        drop(other.tokens.try_acquire(50));
        follow_together(&all, &[one, other], |limits| &limits.tokens, quota);
        assert_eq!(all.available(), 10);
    }
}
