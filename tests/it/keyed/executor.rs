//! A key of a keyed limiter, on which the oracle's executor executes a history.

use crate::fixture::*;
use crate::oracle::conversions::{nanoseconds, quota, seen_result, signed, unsigned};
use crate::oracle::executor::{Claim, Held, Target};
use crate::oracle::model::Seen;
use crate::oracle::ops::{Op, Setup};
use std::hash::RandomState;

pub(crate) type Key = u8;

/// All keys, for grants to borrow.
static KEYS: [Key; 256] = {
    let mut keys = [0; 256];
    let mut key = 0;
    while key < 256 {
        keys[key] = key as Key;
        key += 1;
    }
    keys
};

/// A keyed limiter as `setup` says, with `shards` shards.
pub(crate) fn build(setup: &Setup, shards: usize, clock: &ManualClock) -> KeyedLimiter<Key> {
    let builder = KeyedLimiter::builder().max_waiting(setup.max_waiting);
    let builder = setup.rules.iter().fold(builder, |builder, rule| builder.quota(quota(*rule)));
    let builder = builder.clock(clock.clone()).shards(shards);
    let builder = if let Some(most) = setup.max_in_flight { builder.max_in_flight(unsigned(most)) } else { builder };
    builder.build().expect("the setup of a history is valid")
}

#[derive(Clone, Copy)]
pub(crate) struct KeyOf<'a>(pub(crate) &'a KeyedLimiter<Key>, pub(crate) Key);

impl<'a> KeyOf<'a> {
    fn key(self) -> &'static Key {
        &KEYS[usize::from(self.1)]
    }
}

pub(crate) struct KeyGrant<'a>(tollgate::KeyedGrant<'a, Key, RandomState>, Key);

impl<'a> Target<'a> for KeyOf<'a> {
    type Grant = KeyGrant<'a>;

    fn try_acquire(self, cost: u64) -> Result<KeyGrant<'a>, TryAcquireError> {
        self.0.try_acquire(self.key(), cost).map(|grant| KeyGrant(grant, self.1))
    }

    fn consume(self, cost: u64, within: Option<Duration>) -> Claim<'a, KeyGrant<'a>> {
        let consume = self.0.consume(self.key(), cost);
        let granted = move |answer: Result<_, _>| answer.map(|grant| KeyGrant(grant, self.1));
        match within {
            None => Box::pin(consume.map(granted)),
            Some(allowed) => Box::pin(consume.within(allowed).map(granted)),
        }
    }

    fn call(self, op: Op) -> Seen {
        let Self(keyed, key) = self;
        match op {
            // Waiters of a key are served by calls on it.
            Op::Tick => _ = keyed.available(&key),
            Op::Release(tokens) => return seen_result(keyed.release(&key, unsigned(tokens))),
            Op::Estimate(cost) => return Seen::Estimate(keyed.estimate(&key, unsigned(cost)).map(signed)),
            Op::Replenish(tokens) => keyed.replenish(&key, unsigned(tokens)),
            Op::Pause(span) => keyed.pause_for(&key, nanoseconds(span)),
            Op::Resume => keyed.resume(&key),
            other => unreachable!("{other:?} is not about one key"),
        }
        Seen::Nothing
    }
}

impl Held for KeyGrant<'_> {
    fn cost(&self) -> u64 {
        self.0.cost()
    }

    fn settle(&mut self, actual: u64) {
        self.0.settle(&self.1, actual);
    }

    fn forget(self) {
        self.0.forget();
    }
}
