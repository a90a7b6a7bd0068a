//! What no rover counts: who was refused, and how long those waited who had to.
//!
//! Refusals are counted here and handed to the recorder when it is asked for: what an attacker drives is then an addition to
//! a word of the thread's own, and no recorder. A wait is recorded when it ends; it has taken a millisecond anyway.

use super::names;
use crate::observe::{REASONS, Reason};
use crossbeam_utils::CachePadded;
use metrics::{Key, KeyName, Label, Level, Metadata, SharedString};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// As many threads as these can be refused without meeting on one cache line.
const STRIPES: usize = 8;

pub(super) const METADATA: Metadata<'static> = Metadata::new("tollgate", Level::INFO, Some(module_path!()));

/// How a wait ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Allowed,
    Denied,
    /// The caller gave up.
    Left,
}

/// The counts of one limiter.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(super) name: SharedString,
    stripes: [CachePadded<Stripe>; STRIPES],
    waits: [Key; 3],
}

#[derive(Debug, Default)]
struct Stripe {
    calls: [AtomicU64; REASONS.len()],
    /// What those asked for who might have been granted it another time.
    tokens: AtomicU64,
}

impl Tally {
    pub(super) fn new(name: SharedString) -> Self {
        let key = |result: &'static str| {
            let labels = vec![Label::new("key", name.clone()), Label::new("result", result)];
            Key::from_parts(KeyName::from_const_str(names::DURATION), labels)
        };
        let waits = ["allow", "deny", "left"].map(key);
        Self { name, stripes: Default::default(), waits }
    }

    pub(crate) fn count_refusal(&self, cost: u64, reason: Reason) {
        let stripe = &self.stripes[own_number() % STRIPES];
        stripe.calls[reason as usize].fetch_add(1, Ordering::Relaxed);
        if reason.is_for_now() {
            stripe.tokens.fetch_add(cost, Ordering::Relaxed);
        }
    }

    /// User code: the recorder's.
    pub(crate) fn record_wait(&self, nanos: u64, outcome: Outcome) {
        let key = &self.waits[outcome as usize];
        let waited = Duration::from_nanos(nanos);
        metrics::with_recorder(|recorder| recorder.register_histogram(key, &METADATA)).record(waited);
    }

    /// How many calls were refused, by reason.
    pub(super) fn refused(&self) -> impl Iterator<Item = (Reason, u64)> {
        REASONS.iter().map(|reason| (*reason, self.sum(|stripe| &stripe.calls[*reason as usize])))
    }

    /// How many tokens they asked for.
    pub(super) fn refused_tokens(&self) -> u64 {
        self.sum(|stripe| &stripe.tokens)
    }

    fn sum(&self, word: impl Fn(&Stripe) -> &AtomicU64) -> u64 {
        self.stripes.iter().fold(0, |sum, stripe| sum.wrapping_add(word(stripe).load(Ordering::Relaxed)))
    }
}

/// The number of this thread, counted from the first that was refused anything.
fn own_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<Option<usize>> = const { Cell::new(None) };
    }
    OWN.get().unwrap_or_else(|| {
        let own = NEXT.fetch_add(1, Ordering::Relaxed);
        OWN.set(Some(own));
        own
    })
}
