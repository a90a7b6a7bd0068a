//! Taking tokens: at once, or by entering the key's queue.

use super::{Map, Taken};
use crate::blocking;
use crate::core::classes::ROOT;
use crate::core::in_use::InUse;
use crate::core::rovers::Rovers;
use crate::core::state::{MAX_COST, Sample, State};
use crate::core::{drop_quietly, quietly};
use crate::deadline::Allowed;
use crate::error::{Bound, ConfigError, ConsumeError, Denied, TryAcquireError};
use crate::keyed::grant::GrantOfKey;
use crate::keyed::rate::Left;
use crate::keyed::rates::{Kind, Levels, Packed, Rates};
use crate::keyed::shard::{Missed, Shard, Stop};
use crate::keyed::top::{Rank, Ranks};
use crate::keyed::{Hashed, KeyedGrant, ToKey};
use crate::permit::Permit;
use crate::sync::Ordering;
use std::hash::{BuildHasher, Hash};
use std::ops::DerefMut;
use std::time::Duration;

/// The answer to a claim.
enum Answer<E> {
    Taken(Left),
    Refused(E),
    /// The key has this many tokens and could grant, but the parent limiter does not.
    NotInParent(u64),
    /// The live entry has to decide.
    Live(InUse),
}

impl<K: Hash + Eq + Clone, S: BuildHasher> Map<K, S> {
    /// The rest of a try after [`take_at_once`](Self::take_at_once) has missed.
    #[inline(never)]
    pub(in crate::keyed) fn try_acquire(
        &self,
        key: Hashed<'_, impl ToKey<K> + ?Sized>,
        cost: u64,
        missed: Missed,
    ) -> Result<Taken, TryAcquireError> {
        let result = match missed {
            Missed::Refused(error) => Err(error),
            Missed::Live(live) => self.try_live(key, live, cost),
            Missed::Short(..) | Missed::Absent(_) | Missed::Other => self.try_acquire_slowly(key, cost),
        };
        if let Err(error) = &result {
            self.count_refusal(key);
            self.template.observers.refused(cost, *error);
        }
        result
    }

    /// The fast path: the key is in memory, and so are its tokens. Also refuses a call that does not wait for them.
    #[inline(always)]
    pub(in crate::keyed) fn take_at_once(
        &self,
        key: Hashed<'_, impl ToKey<K> + ?Sized>,
        cost: u64,
        may_wait: bool,
    ) -> Result<Left, Missed> {
        if self.has_extras {
            return self.take_with_extras(key, cost);
        }
        // The lock comes first, because the time is then read while the key is on its way from memory. User code must not run
        // under the lock.
        let time = &self.template.time;
        let now = if time.runs_no_user_code() { None } else { Some(time.now()) };
        let mut shard = self.shards[self.shard_of(key.hash)].lock();
        match shard.take_quickly(key, cost, now, time, || true) {
            Ok(left) => Ok(left),
            Err(Missed::Absent(now)) => self.take_new(shard, key, cost, now).ok_or(Missed::Other),
            Err(Missed::Short(packed, now)) if !may_wait => Err(self.refuse(shard, packed, cost, now)),
            Err(missed) => Err(missed),
        }
    }

    /// The fast path of a key that is not in memory.
    #[inline(never)]
    fn take_new(
        &self,
        mut shard: impl DerefMut<Target = Shard<K>>,
        key: Hashed<'_, impl ToKey<K> + ?Sized>,
        cost: u64,
        now: u64,
    ) -> Option<Left> {
        shard.take_new(key, cost, now, &self.key_limit, self.shard_of(key.hash))
    }

    /// Refuses a call for `cost` tokens, which these packed levels do not have when it has read `now`.
    #[inline(never)]
    fn refuse(&self, mut shard: impl DerefMut<Target = Shard<K>>, packed: Packed, cost: u64, now: u64) -> Missed {
        if cost == 0 || cost > shard.rates.burst() || self.template.dry_run.is_on() {
            return Missed::Other;
        }
        let at = now.max(shard.synced);
        shard.count_quick(0, at);
        let rates = &shard.rates;
        let levels = rates.unpack(packed, at);
        let (until, by) = rates.obstacle(&levels, cost);
        if by == Bound::Pause {
            // The tokens are there, but not for the fast path.
            return Missed::Other;
        }
        let retry_after = until.map(|until| Duration::from_nanos(until.saturating_sub(now)));
        let denied = Denied { retry_after, remaining: rates.available(&levels), by, name: by.name(&rates.names) };
        Missed::Refused(denied.into())
    }

    /// The fast path of a caller that may wait, which calls [`arrive`](Self::arrive) next if this returns an error.
    #[inline(always)]
    pub(in crate::keyed) fn claim_at_once(
        &self,
        key: Hashed<'_, impl ToKey<K> + ?Sized>,
        cost: u64,
    ) -> Result<Left, Option<InUse>> {
        let live = |missed| if let Missed::Live(live) = missed { Some(live) } else { None };
        // Refused whatever the level is, and however the key is stored, as in a queue.
        if cost > MAX_COST { Err(None) } else { self.take_at_once(key, cost, true).map_err(live) }
    }

    /// Takes `cost` tokens at once for a limiter whose grants do more than take tokens of a key.
    #[inline(never)]
    fn take_with_extras(&self, key: Hashed<'_, impl ToKey<K> + ?Sized>, cost: u64) -> Result<Left, Missed> {
        if cost > self.template.max_cost {
            return Err(Missed::Other);
        }
        let sample = self.parent_sample();
        let now = self.now_with(sample);
        // Only a live entry counts tokens in flight.
        let is_capped = self.template.cap.is_some();
        let mut shard = self.shards[self.shard_of(key.hash)].lock();
        let admits = || !is_capped && self.parent_admits(cost, sample);
        let mut taken = shard.take_quickly(key, cost, Some(now), &self.template.time, admits);
        if let Err(Missed::Absent(at)) = taken {
            // A key without a quota is not stored.
            if shard.rates.kind == Kind::NoQuota && cost > 0 && cost <= MAX_COST && admits() {
                shard.count_quick(cost, at);
                taken = Ok(Left::whole(MAX_COST - cost));
            }
        }
        let rank = |ranks: &mut Ranks<K>| ranks.count(Rank::Granted, key, cost, now);
        let lost = if taken.is_ok() { shard.count_rank(rank) } else { None };
        drop(shard);
        drop_quietly(lost);
        taken
    }

    /// Reads the parent's time, if there is a parent: called before a shard is locked.
    #[inline]
    fn parent_sample(&self) -> Option<Sample> {
        self.template.parent.as_ref().map(|parent| parent.sample())
    }

    /// Takes `cost` tokens from the parent, if there is one. Never waits in the parent's queue and wakes no task, because
    /// the caller may hold the lock of a shard.
    #[inline]
    fn parent_admits(&self, cost: u64, sample: Option<Sample>) -> bool {
        cost == 0
            || self.template.parent.as_ref().zip(sample).is_none_or(|(parent, sample)| parent.admit_now(cost, sample))
    }

    /// The time, from the reading of the parent's time if both limiters read one clock.
    #[inline]
    fn now_with(&self, sample: Option<Sample>) -> u64 {
        match (sample, self.after_parent) {
            // An instant before this limiter was built is its beginning, as for every clock that has stepped back.
            (Some(sample), Some(after)) => sample.now.saturating_add_signed(after.saturating_neg()),
            _ => self.now(),
        }
    }

    #[inline(never)]
    fn try_acquire_slowly(&self, key: Hashed<'_, impl ToKey<K> + ?Sized>, cost: u64) -> Result<Taken, TryAcquireError> {
        let refuse = |state: &mut State, rovers: &Rovers, now| match state.refuse(rovers, ROOT, cost, now) {
            // Only a live entry counts windows.
            TryAcquireError::Denied(_) if state.has_sliding() => None,
            error => Some(error),
        };
        loop {
            let remaining = match self.decide(key, cost, false, TryAcquireError::Closed, refuse) {
                Ok(Answer::Taken(left)) => return Ok(Taken { left, live: InUse::default() }),
                Ok(Answer::NotInParent(remaining)) => remaining,
                Ok(Answer::Refused(error)) => {
                    return Err(match (&self.template.parent, error) {
                        (Some(parent), TryAcquireError::Denied(denied)) => parent.deny_too(cost, denied),
                        _ => error,
                    });
                }
                Ok(Answer::Live(live)) => return self.try_live(key, live, cost),
                Err(error) => return Err(TryAcquireError::of_key(&error)),
            };
            // If the parent can grant by now, try once more.
            if let Some(error) = self.template.parent.as_ref().and_then(|parent| parent.refusal(cost, remaining)) {
                return Err(error);
            }
        }
    }

    /// Decides a claim by the levels of the key, or leaves it to a live entry, which is created if there is none: with a
    /// cap or a sliding quota, in dry run, and if the claim may wait and `refuse` finds nothing against it.
    fn decide<E: Copy>(
        &self,
        key: Hashed<'_, impl ToKey<K> + ?Sized>,
        cost: u64,
        may_wait: bool,
        closed: E,
        refuse: impl Fn(&mut State, &Rovers, u64) -> Option<E>,
    ) -> Result<Answer<E>, ConfigError> {
        let (sample, template) = (self.parent_sample(), &self.template);
        let is_dry_run = template.dry_run.is_on();
        let has_classes = self.template.parent.as_ref().is_some_and(|parent| parent.has_classes);
        let most = template.max_cost.min(if may_wait { MAX_COST } else { u64::MAX });
        let answer = self.enter(key, false, |shard, request, context| {
            if shard.is_closed() {
                return Ok(Answer::Refused(closed));
            }
            // Only a live entry counts tokens in flight.
            if template.cap.is_none() {
                let by_levels = |rates: &Rates, levels: &mut Levels| {
                    if cost <= most && rates.sliding.is_none() {
                        if let Some(left) = rates.take(levels, cost) {
                            return Some(Answer::Taken(left));
                        }
                    }
                    if is_dry_run {
                        // The live entry simulates the calls that the key's levels refuse.
                        return None;
                    }
                    let (mut state, rovers) = template.state(rates, levels);
                    refuse(&mut state, &rovers, request.now).map(Answer::Refused)
                };
                let admits = |answer: &Option<Answer<E>>| {
                    !matches!(answer, Some(Answer::Taken(_))) || self.parent_admits(cost, sample)
                };
                match shard.at_levels_if(request, context, by_levels, admits)? {
                    (Some(Answer::Taken(left)), true) => {
                        shard.count_granted(cost);
                        let rank = |ranks: &mut Ranks<K>| ranks.count(Rank::Granted, key, cost, request.now);
                        context.deferred.keys.extend(shard.count_rank(rank).flatten());
                        return Ok(Answer::Taken(left));
                    }
                    // The live entry sees both the key and the parent, where the key may have a class.
                    (Some(Answer::Taken(left)), false) if !may_wait && !has_classes => {
                        return Ok(Answer::NotInParent(left.tokens() + cost));
                    }
                    (Some(Answer::Refused(error)), _) => return Ok(Answer::Refused(error)),
                    _ => {}
                }
            }
            let live = shard.live(request, context)?;
            if is_dry_run {
                shard.expect_handles(context);
            }
            Err(Stop::Live(live))
        })?;
        Ok(answer.unwrap_or_else(Answer::Live))
    }

    fn try_live(
        &self,
        key: Hashed<'_, impl ToKey<K> + ?Sized>,
        live: InUse,
        cost: u64,
    ) -> Result<Taken, TryAcquireError> {
        live.weigh(|| self.weight(key.form));
        let word = live.try_acquire_unobserved(cost)?;
        Ok(self.taken(key, Permit::new(live, cost, word)))
    }

    /// Grants at once, refuses at once, or returns as the inner error the live entry in whose queue the caller waits: `live`,
    /// if that is given.
    #[inline(never)]
    pub(in crate::keyed) fn arrive(
        &self,
        key: Hashed<'_, impl ToKey<K> + ?Sized>,
        cost: u64,
        allowed: Option<u64>,
        live: Option<InUse>,
    ) -> Result<Result<Taken, InUse>, ConsumeError> {
        if let Some(live) = live {
            return Ok(Err(self.wait_in(live, key)));
        }
        // The checks in the order in which a queue makes them.
        let check = |state: &mut State, rovers: &Rovers, now| {
            state.check_claim(rovers, cost)?;
            match allowed {
                // Only a live entry counts windows.
                _ if state.has_sliding() => Ok(()),
                Some(allowed) => {
                    state.check_queue(true)?;
                    state.check_in_time(rovers, ROOT, cost, now, allowed)
                }
                None => state.check_queue(true),
            }
        };
        let refuse = |state: &mut State, rovers: &Rovers, now| check(state, rovers, now).err();
        let error = match self.decide(key, cost, true, ConsumeError::Closed, refuse) {
            Ok(Answer::Taken(left)) => return Ok(Ok(Taken { left, live: InUse::default() })),
            Ok(Answer::NotInParent(_)) => unreachable!("a caller that has to wait gets a live entry"),
            Ok(Answer::Live(live)) => return Ok(Err(self.wait_in(live, key))),
            Ok(Answer::Refused(error)) => {
                self.template.parent.as_ref().map_or(error, |parent| parent.refuse_too(cost, error))
            }
            Err(error) => ConsumeError::of_key(&error),
        };
        self.count_refusal(key);
        self.template.observers.refused(cost, error);
        Err(error)
    }

    /// The caller will enter the queue of `live`.
    fn wait_in(&self, live: InUse, key: Hashed<'_, impl ToKey<K> + ?Sized>) -> InUse {
        if self.weight_by.is_some() {
            live.weigh(|| self.weight(key.form));
        }
        self.pool.notify_live(&live);
        live
    }

    /// Converts a permit of a live entry. The grant holds the live entry only where tokens are in flight, or in a window.
    pub(in crate::keyed) fn taken(&self, key: Hashed<'_, impl ToKey<K> + ?Sized>, permit: Permit<InUse>) -> Taken {
        self.rank(Rank::Granted, key, permit.cost);
        let left = Left::of_permit(&permit);
        // Only the core knows whether the tokens are in a window still.
        let is_held = self.template.cap.is_some()
            || permit.word().instant().is_some() && permit.scope().state.lock().has_sliding();
        let live = permit.into_scope();
        Taken { left, live: if is_held { live } else { InUse::default() } }
    }

    /// Waits on this thread, which has no runtime, until the tokens are taken.
    pub(in crate::keyed) fn consume_on_thread(
        &self,
        key: &(impl ToKey<K> + ?Sized),
        cost: u64,
        allowed: Allowed,
    ) -> Result<KeyedGrant<'_, K, S>, ConsumeError> {
        let key = self.hashed(key);
        let arrival = match self.claim_at_once(key, cost) {
            Ok(left) => Ok(Taken { left, live: InUse::default() }),
            Err(live) => self.arrive(key, cost, allowed.nanos(), live)?,
        };
        let taken = match arrival {
            Ok(taken) => taken,
            Err(live) => {
                let mut has_waited = false;
                let on_wait = || {
                    has_waited = true;
                    self.rank(Rank::Waited, key, 1);
                };
                let answer = blocking::consume(live, cost, allowed, on_wait).map(|permit| self.taken(key, permit));
                if answer.as_ref().is_err_and(|error| !has_waited && !matches!(error, ConsumeError::TimedOut { .. })) {
                    self.count_refusal(key);
                }
                answer?
            }
        };
        Ok(GrantOfKey::new(self, (), key.hash, cost, taken))
    }

    pub(in crate::keyed) fn count_refusal(&self, key: Hashed<'_, impl ToKey<K> + ?Sized>) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        // If many threads are refused at once, some refusals stay uncounted here, so that the threads do not wait for
        // this lock.
        let lost = self.most_refused.try_lock().and_then(|mut most| most.count(key, 1.0));
        drop(lost);
        self.rank(Rank::Refused, key, 1);
    }

    /// Counts `events` of a key, if keys are ranked.
    pub(in crate::keyed) fn rank(&self, rank: Rank, key: Hashed<'_, impl ToKey<K> + ?Sized>, events: u64) {
        if self.is_ranked {
            // Tokens are taken already, and a panic of the clock or in the `Drop` of a key would lose them.
            let Some(now) = quietly(|| self.now()) else { return };
            let count = |ranks: &mut Ranks<K>| ranks.count(rank, key, events, now);
            let lost = self.shards[self.shard_of(key.hash)].lock().count_rank(count);
            drop_quietly(lost);
        }
    }
}
