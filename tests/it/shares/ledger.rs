//! Law 9 of the specification, as a checker of its own: every token is accounted for. It sees what callers see, the
//! counters of the limiter and of its classes and its own list of claims. No model takes part.
//!
//! ```text
//! start + minted + back = level + served + discarded
//! served - back = granted + set aside
//! ```
//!
//! For one continuous quota, without debts.

use super::bucket::Rule;
use super::fixture::Fixture;
use super::model::{ClassId, Id, Int};

pub(super) struct Ledger {
    rule: Rule,
    claims: Vec<Claim>,
    /// Tokens granted at once, which no class counts as served.
    at_once: Int,
    /// Tokens that refunds and cancelled divided claims offered to the bucket.
    back: Int,
    /// Tokens of each class that left its count without a grant.
    withdrawn: Vec<Int>,
    /// What was discarded, and the accrued part of the next token, in `1 / period` of a token.
    lost: Int,
    /// Whether a claim that no ceiling can hold back waited when the ledger was last checked, and the instant.
    busy: bool,
    at: Int,
    /// Whether tokens may have been discarded since, because they came back.
    may_discard: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Granted,
    Left,
}

struct Claim {
    id: Id,
    class: ClassId,
    cost: Int,
    state: State,
    /// Whether its class counts it as served.
    is_counted: bool,
}

impl Ledger {
    pub(super) fn new(rule: Rule) -> Self {
        let (claims, withdrawn) = (Vec::new(), Vec::new());
        let (at_once, back, lost, busy, at, may_discard) = (0, 0, 0, false, 0, false);
        Self { rule, claims, at_once, back, withdrawn, lost, busy, at, may_discard }
    }

    /// A claim arrived in a class that had been served `before` tokens. It may have been granted already.
    pub(super) fn arrive(&mut self, fixture: &Fixture, id: Id, class: ClassId, cost: Int, before: Int) {
        let is_granted = fixture.granted.contains(&id);
        let is_counted = !is_granted || served(fixture, class) > before;
        let state = if is_granted { State::Granted } else { State::Waiting };
        self.at_once += if is_counted { 0 } else { cost };
        self.claims.push(Claim { id, class, cost, state, is_counted });
    }

    /// A claim is about to leave, or its grant is about to be settled for nothing.
    pub(super) fn cancel(&mut self, fixture: &Fixture, id: Id) {
        let Some(index) = self.claims.iter().position(|claim| claim.id == id) else { return };
        let Claim { class, cost, state, .. } = self.claims[index];
        let is_front = self.claims[..index].iter().all(|other| other.class != class || other.state != State::Waiting);
        match state {
            State::Granted => self.back += cost,
            State::Waiting if is_front => {
                let set_aside = self.set_aside(fixture, class);
                self.withdrawn.resize(self.withdrawn.len().max(class + 1), 0);
                self.withdrawn[class] += set_aside;
                self.back += set_aside;
            }
            State::Waiting | State::Left => return self.claims[index].state = State::Left,
        }
        self.may_discard = true;
        if state == State::Waiting {
            self.claims[index].state = State::Left;
        }
    }

    /// What its class counts as served and nothing else explains.
    fn set_aside(&self, fixture: &Fixture, class: ClassId) -> Int {
        let granted = |claim: &&Claim| claim.class == class && claim.is_counted && claim.state == State::Granted;
        let granted: Int = self.claims.iter().filter(granted).map(|claim| claim.cost).sum();
        served(fixture, class) - granted - self.withdrawn.get(class).copied().unwrap_or(0)
    }

    /// Checks both equations, after the claims that were granted have been polled. `is_free` tells whether no ceiling is
    /// above a class.
    pub(super) fn check(
        &mut self,
        fixture: &Fixture,
        now: Int,
        classes: &[ClassId],
        is_free: impl Fn(ClassId) -> bool,
    ) {
        for claim in self.claims.iter_mut().filter(|claim| claim.state == State::Waiting) {
            if fixture.granted.contains(&claim.id) {
                claim.state = State::Granted;
            }
        }
        for &class in classes {
            let front = self.claims.iter().find(|claim| claim.class == class && claim.state == State::Waiting);
            let (set_aside, most) = (self.set_aside(fixture, class), front.map_or(0, |front| front.cost - 1));
            assert!((0..=most).contains(&set_aside), "{set_aside} tokens set aside in class {class} at {now}");
        }
        let served: Int = classes.iter().map(|class| served(fixture, *class)).sum::<Int>() + self.at_once;
        let left = self.rule.initial + self.back - fixture.levels()[0] - served;
        let lost = left * self.rule.period + now * self.rule.amount;
        assert!(lost >= 0 && lost > self.lost - self.rule.period, "tokens out of nothing at {now}: {lost}");
        let waits = |claim: &Claim| claim.state == State::Waiting && is_free(claim.class);
        let busy = self.claims.iter().any(waits);
        let is_exact = !self.may_discard && (now == self.at || self.busy && busy);
        assert!(!is_exact || lost < self.lost + self.rule.period, "tokens lost at {now}: {lost}, before {}", self.lost);
        if !is_exact {
            self.lost = lost;
        }
        (self.busy, self.at, self.may_discard) = (busy, now, false);
    }
}

pub(super) fn served(fixture: &Fixture, class: ClassId) -> Int {
    fixture.class(class).snapshot().served.into()
}
