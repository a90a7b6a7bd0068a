//! A limiter with classes on a manual clock, with the same calls as the model.

use super::model::{ClassId, Id, Int};
use crate::fixture::*;
use crate::oracle::Rule;
use crate::oracle::conversions::quota;
use tollgate::{ConsumeOwned, OwnedGrant};

/// A floor of some tokens in some nanoseconds.
pub(super) type Rate = (Int, Int);

pub(super) fn share(weight: Int, floor: Option<Rate>, ceiling: Option<Rule>) -> Share {
    let mut share = Share::weight(weight as u64);
    if let Some((tokens, nanos)) = floor {
        share = share.floor(Quota::new(tokens as u64, Duration::from_nanos(nanos as u64)));
    }
    if let Some(rule) = ceiling {
        share = share.ceiling(quota(rule));
    }
    share
}

pub(super) struct Fixture {
    pub(super) limiter: Limiter,
    clock: ManualClock,
    now: Int,
    /// By the model's numbers; the root and dropped classes are `None`.
    classes: Vec<Option<Class>>,
    next: Id,
    waiting: Vec<(Id, Spawn<ConsumeOwned<Class>>)>,
    /// Grants that are held, with the claim and the class that they were made for.
    pub(super) held: Vec<(Id, ClassId, OwnedGrant<Class>)>,
    class_of: Vec<ClassId>,
    /// Claims in the order in which their grants were seen.
    pub(super) granted: Vec<Id>,
    /// The instants of the grants seen by [`walk`](Self::walk).
    pub(super) instants: Vec<(Id, Int)>,
    /// Claims whose grants were dropped unseen, and grants of `try_acquire`.
    pub(super) unseen: Vec<Id>,
    pub(super) skipped: Vec<Id>,
    removed: Vec<ClassId>,
    /// Claims that found their class closed.
    pub(super) closed: Vec<Id>,
}

impl Fixture {
    pub(super) fn new(rules: &[Rule], cap: Option<Int>) -> Self {
        let clock = ManualClock::new();
        let builder = rules.iter().fold(Limiter::builder(), |builder, rule| builder.quota(quota(*rule)));
        let builder = cap.into_iter().fold(builder, |builder, cap| builder.max_in_flight(cap as u64));
        let builder = builder.classes().rovers_at(u64::MAX - 20).clock(clock.clone());
        Self {
            limiter: builder.build().expect("a valid limiter"),
            clock,
            now: 0,
            classes: vec![None],
            next: 0,
            waiting: Vec::new(),
            held: Vec::new(),
            class_of: Vec::new(),
            granted: Vec::new(),
            instants: Vec::new(),
            unseen: Vec::new(),
            skipped: Vec::new(),
            removed: Vec::new(),
            closed: Vec::new(),
        }
    }

    pub(super) fn at(&mut self, now: Int) {
        self.clock.advance(Duration::from_nanos((now - self.now) as u64));
        self.now = now;
    }

    /// Moves the clock to `to` and notes each grant at the nanosecond at which it is made: 1 ns before each millisecond
    /// nothing may have been granted since the last one. Grants at one instant are noted in the order in which their
    /// tasks were woken or, for calls that did not wait, made.
    pub(super) fn walk(&mut self, to: Int) {
        const MS: Int = 1_000_000;
        self.note();
        while self.now < to {
            let next = (self.now / MS + 1) * MS;
            if next - 1 > self.now && next <= to {
                self.at(next - 1);
                self.note();
            }
            self.at(next.min(to));
            self.note();
        }
    }

    fn note(&mut self) {
        self.look();
        let known = self.instants.len();
        let mut new: Vec<_> = self.granted[known..].to_vec();
        new.sort_unstable();
        self.instants.extend(new.into_iter().map(|id| (id, self.now)));
        let instants = &self.instants;
        self.granted = instants.iter().map(|(id, _)| *id).collect();
    }

    pub(super) fn class(&self, class: ClassId) -> &Class {
        self.classes[class].as_ref().expect("the class was not dropped")
    }

    pub(super) fn add(&mut self, parent: ClassId, share: Share) -> Result<ClassId, ConfigError> {
        let name = self.classes.len().to_string();
        let class = match &self.classes[parent] {
            None => self.limiter.class(name, share),
            Some(parent) => parent.class(name, share),
        }?;
        self.classes.push(Some(class));
        Ok(self.classes.len() - 1)
    }

    /// Removes a class, after all claims that were granted have been polled.
    pub(super) fn remove(&mut self, class: ClassId) {
        self.look();
        self.class(class).remove();
        self.removed.push(class);
    }

    pub(super) fn drop_class(&mut self, class: ClassId) {
        self.classes[class] = None;
    }

    pub(super) fn arrive(&mut self, class: ClassId, cost: Int) -> Id {
        let id = self.next;
        self.next += 1;
        self.class_of.push(class);
        self.waiting.push((id, spawn(self.class(class).clone().consume_owned(cost as u64))));
        self.poll(self.waiting.len() - 1);
        id
    }

    /// Polls a waiting claim. Returns true if it is not waiting any more.
    fn poll(&mut self, index: usize) -> bool {
        let id = self.waiting[index].0;
        match self.waiting[index].1.poll() {
            Poll::Pending => return false,
            Poll::Ready(Ok(grant)) => {
                self.held.push((id, self.class_of[id], grant));
                self.granted.push(id);
            }
            Poll::Ready(Err(ConsumeError::Closed)) => self.closed.push(id),
            Poll::Ready(Err(error)) => panic!("{error}"),
        }
        drop(self.waiting.remove(index));
        true
    }

    pub(super) fn try_acquire(&mut self, class: ClassId, cost: Int) -> bool {
        // The grant is not held: without an in-flight cap that makes no difference.
        self.class(class).try_acquire(cost as u64).map(|grant| grant.forget()).is_ok()
    }

    /// The model gives a grant of `try_acquire` a number too.
    pub(super) fn skip_id(&mut self, class: ClassId) {
        self.skipped.push(self.next);
        self.next += 1;
        self.class_of.push(class);
    }

    /// Drops a claim, whether it waits or was granted, or settles its grant for nothing.
    pub(super) fn cancel(&mut self, id: Id) {
        if let Some(index) = self.waiting.iter().position(|(known, _)| *known == id) {
            let (_, waiting) = self.waiting.remove(index);
            self.limiter.tick();
            // It was woken with a grant, or because its class was removed.
            if waiting.is_woken() && !self.removed.contains(&self.class_of[id]) {
                self.unseen.push(id);
            }
            drop(waiting);
        } else if let Some(index) = self.held.iter().position(|(known, ..)| *known == id) {
            let (.., mut grant) = self.held.remove(index);
            grant.settle(0);
        }
    }

    pub(super) fn settle(&mut self, id: Id, actual: Int) {
        let held = self.held.iter_mut().find(|(known, ..)| *known == id);
        held.expect("the grant is held").2.settle(actual as u64);
    }

    /// Serves what is due and polls the claims that were woken.
    pub(super) fn look(&mut self) {
        self.limiter.tick();
        let mut index = 0;
        while index < self.waiting.len() {
            if !self.waiting[index].1.is_woken() || !self.poll(index) {
                index += 1;
            }
        }
    }

    /// How many claims of a class were granted.
    pub(super) fn granted_to(&self, class: ClassId) -> usize {
        self.granted.iter().filter(|id| self.class_of[**id] == class).count()
    }

    pub(super) fn levels(&self) -> Vec<Int> {
        self.limiter.snapshot().quotas.iter().map(|quota| quota.level.into()).collect()
    }
}
