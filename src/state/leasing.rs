//! One of the quotas is shared: what its line is asked for, and what comes of the answers.

use super::State;
use crate::lease::{Answer, Ask, Feed, Lease, Leases, Outage, Pace, Plan, View};
use crate::rovers::{Rovers, ahead};
use crate::wakes::Wakes;
use std::sync::{Arc, Mutex};

/// What is promised, piece by piece, as far as the claims before need it.
struct Cover<I> {
    /// Up to where claims have what they need,
    at: u64,
    /// how much of what comes in other pieces may be kept for the next one,
    keeps: u64,
    /// and how much is left of the piece that comes then.
    left: u64,
    pieces: I,
}

impl<I: Iterator<Item = u64>> Cover<I> {
    /// How many tokens the next claim lacks, which begins and ends there.
    fn lacks(&mut self, start: u64, ticket: u64) -> u64 {
        loop {
            let need = ahead(ticket, self.at).max(0) as u64;
            if need <= self.left {
                self.left -= need;
                self.at = self.at.wrapping_add(need);
                return 0;
            }
            let room = ahead(start.wrapping_add(self.keeps), self.at).max(0) as u64;
            self.at = self.at.wrapping_add(self.left.min(room));
            match self.pieces.next() {
                Some(left) => self.left = left,
                None => {
                    self.left = 0;
                    return ahead(ticket, self.at).max(0) as u64;
                }
            }
        }
    }
}

impl State {
    /// From now on one of the quotas is shared, and empty. What its keeper finds in the end is returned.
    pub(crate) fn lease(&mut self, feed: Feed, start: u64) -> Arc<Mutex<Option<Ask>>> {
        let remains = Arc::clone(&feed.remains);
        self.supply.quota_mut(feed.quota).become_leased(start);
        self.supply.put_feed(Box::new(feed));
        remains
    }

    /// Wakes the keeper if it has to look. False if there is no room for its waker.
    pub(super) fn feed_keeper(&mut self, rovers: &Rovers, wakes: &mut Wakes) -> bool {
        if !self.is_hungry(rovers) {
            return true;
        }
        if wakes.is_full() {
            return false;
        }
        if let Some(waker) = self.supply.feed_mut().and_then(|feed| feed.rouse()) {
            wakes.push(waker);
        }
        true
    }

    /// Whether the keeper is to be woken.
    #[inline]
    pub(super) fn is_hungry(&self, rovers: &Rovers) -> bool {
        self.supply.feed().is_some_and(|feed| feed.is_low(self.claims(rovers)))
    }

    /// Where the last claim ends, holes left out.
    pub(super) fn claims(&self, rovers: &Rovers) -> u64 {
        rovers.tail().wrapping_sub(self.totals.holes)
    }

    /// Whether a claim that ends at `ticket` can have no tokens, and is to be told so.
    pub(super) fn is_cut_off(&self, ticket: u64) -> bool {
        self.supply.feed().is_some_and(|feed| {
            feed.is_out && feed.outage == Outage::Fail && self.supply.quotas()[feed.quota].reached(ticket).is_none()
        })
    }

    /// `try_acquire` is about to be denied `cost`: if nothing that was promised would help, the keeper asks for it. True if
    /// that is in vain, and is to be said.
    pub(crate) fn misses(&mut self, rovers: &Rovers, cost: u64) -> bool {
        let end = self.claims(rovers).wrapping_add(cost);
        let is_missed = |feed: &Feed| self.supply.quotas()[feed.quota].reached(end).is_none();
        if self.supply.feed().is_some_and(is_missed)
            && let Some(feed) = self.supply.feed_mut()
        {
            feed.miss(cost);
        }
        self.is_cut_off(end)
    }

    /// What the keeper does next, as of `now`, up to which the line was served.
    pub(crate) fn plan(&mut self, rovers: &Rovers, now: u64) -> Option<Plan> {
        let mut feed = self.supply.take_feed()?;
        if feed.until <= now {
            feed.hold = 0;
        }
        let feed_quota = feed.quota;
        self.allow(rovers, &feed, false);
        let claims = self.claims(rovers);
        let gate = if self.supply.is_paused() { self.supply.gate() } else { 0 };
        let schedule = self.supply.quota_mut(feed.quota);
        let head = schedule.head;
        let leases = schedule.leases().expect("the shared quota is leased");
        let covered = head.wrapping_add(leases.promised());
        let mut ends = leases.ends();
        let mut lack = ahead(claims, covered).max(0) as u64;
        if let Some(front) = self.line.front() {
            // What comes for it in several pieces is not kept: it is asked for anew.
            let missing = self.cover(feed_quota).lacks(front.start(), front.ticket);
            if missing > 0 {
                (ends, lack) = (None, lack.max(missing));
            }
        }
        let over = ahead(covered, claims);
        let view = View {
            now,
            total: rovers.tail().wrapping_sub(self.totals.origin).wrapping_sub(self.totals.skipped),
            lack,
            bank: over.max(0) as u64,
            covered,
            ends,
            gate,
            is_waiting: !self.line.is_empty(),
        };
        let soon = now.saturating_add(feed.round_trip());
        let mut plan = feed.next(&view, |share| self.whole_claims(feed_quota, &view, share, soon));
        if let Plan::Ask(ask) = &mut plan {
            // What came and found no room is gone: the line would take it for a part of the hold, which may be spent by now. Only
            // what is given up here and now goes back.
            self.leases(feed_quota).take_spares();
            self.allow(rovers, &feed, ask.leave);
            let leases = self.leases(feed_quota);
            if ask.leave {
                leases.give_up();
            }
            ask.back = leases.take_spares();
        }
        self.supply.put_feed(feed);
        Some(plan)
    }

    /// How many tokens the next claims lack of which nothing is promised yet: whole ones, about a `share`, and none that
    /// will be held up by something else.
    fn whole_claims(&self, quota: usize, view: &View, share: u64, soon: u64) -> u64 {
        let (mut jumped, mut want) = (0_u64, 0_u64);
        let mut cover = self.cover(quota);
        for waiter in self.line.iter() {
            let ticket = waiter.ticket.wrapping_sub(jumped);
            let need = cover.lacks(ticket.wrapping_sub(waiter.cost), ticket);
            if need > 0 {
                let is_enough = want > 0 && want.saturating_add(need) > share;
                if is_enough || !self.supply.would_pass(ticket, quota, soon) {
                    return want;
                }
                want += need;
                cover.at = ticket;
            }
            jumped = jumped.wrapping_add(waiter.skip);
        }
        // What is left are debts.
        want.max(view.lack.min(share.max(1)))
    }

    /// What is promised, to be laid over the claims in line.
    fn cover(&self, quota: usize) -> Cover<impl Iterator<Item = u64>> {
        let schedule = &self.supply.quotas()[quota];
        Cover { at: schedule.head, keeps: schedule.burst, left: 0, pieces: schedule.pieces() }
    }

    fn leases(&mut self, quota: usize) -> &mut Leases {
        self.supply.quota_mut(quota).leases().expect("the shared quota is leased")
    }

    /// Lets as many tokens be kept unused as `feed` says, and none if it is to be emptied; what is there beyond is spare.
    fn allow(&mut self, rovers: &Rovers, feed: &Feed, empty: bool) {
        let (hold, own) = if empty { (0, 0) } else { (feed.hold, feed.own()) };
        let burst = hold.max(own);
        if burst < self.supply.quota_mut(feed.quota).burst {
            self.retract(rovers);
        }
        self.leases(feed.quota).keep_until(feed.until, own);
        self.supply.quota_mut(feed.quota).burst = burst;
        self.supply.cut(self.front_ticket());
        self.stride.shorten(self.supply.least_burst() / 64);
    }

    /// Whether nobody waits or owes, and the line has nothing out to this node: so that it may be forgotten.
    #[cfg(feature = "keyed")]
    pub(crate) fn is_at_rest(&mut self, rovers: &Rovers, now: u64) -> bool {
        if !self.line.is_empty() || self.deficiency(rovers) > 0 {
            return false;
        }
        let Some(feed) = self.supply.feed().filter(|feed| feed.is_at_rest(now)) else { return false };
        let quota = feed.quota;
        self.leases(quota).promised() == 0
    }

    /// The line has answered `ask`, which was sent `elapsed` before `now`.
    pub(crate) fn receive(&mut self, rovers: &Rovers, now: u64, ask: &Ask, answer: &Answer, elapsed: u64) {
        let Some(mut feed) = self.supply.take_feed() else { return };
        let quota = feed.quota;
        let was_own = std::mem::take(&mut feed.is_out) && matches!(feed.outage, Outage::Share(_));
        let is_sound = feed.hear(ask, answer, now, elapsed);
        if was_own || !is_sound {
            // Nothing of it was granted by the line, or the line does not know of it any more.
            self.allow(rovers, &feed, true);
            let leases = self.leases(quota);
            leases.end_own();
            if is_sound { _ = leases.take_spares() } else { leases.forget() }
        }
        self.allow(rovers, &feed, false);
        // Not before now, which is when the answer has come: the line's clock was there before.
        let at = now.max(self.supply.synced());
        let terms = *feed.terms();
        let kept = ahead(self.supply.quotas()[quota].head, self.supply.claimed()).max(0) as u64;
        let room = feed.hold.saturating_sub(ask.bank.max(kept));
        let leases = self.leases(quota);
        let is_new = answer.before != ask.number;
        // In one piece with what was promised before, if nobody else was promised anything since. Where something is there, nobody
        // comes before the rest.
        let goes_on = is_new && answer.behind <= leases.promised();
        let pace = Pace::of(&terms, answer.part);
        // What had its instant while the answer was on its way is stale, and is not taken by who waits.
        let later = Lease::new(now.saturating_sub(answer.age * 1_000), pace, answer.behind, answer.later);
        // Of an answer that got lost and is said again, all that was there meanwhile would come on top of what has been minted
        // since: of that no more is taken than may be held, and nothing goes back.
        let (once, later) = if is_new {
            (answer.once, later)
        } else {
            let once = answer.once.min(room);
            (once, later.without_stale(now, room - once))
        };
        leases.push(Lease::new(at, Pace::AtOnce, 0, once).going_on(goes_on));
        leases.push(later.going_on(goes_on));
        self.supply.put_feed(feed);
    }

    /// The line cannot be reached.
    pub(crate) fn lose(&mut self, rovers: &Rovers, now: u64) {
        let Some(mut feed) = self.supply.take_feed() else { return };
        if !std::mem::replace(&mut feed.is_out, true)
            && let Outage::Share(share) = feed.outage
        {
            let at = now.max(self.supply.synced());
            self.leases(feed.quota).push(Lease::of_our_own(at, &share));
            self.allow(rovers, &feed, false);
        }
        self.supply.put_feed(feed);
    }

    /// The limiter is gone: what is left goes back to the line.
    pub(crate) fn bequeath(&mut self, rovers: &Rovers) -> Option<std::task::Waker> {
        let mut feed = self.supply.take_feed()?;
        if feed.is_known() {
            self.supply.know_claimed(rovers.tail());
            // As before every ask: what found no room is gone.
            self.leases(feed.quota).take_spares();
            self.supply.quota_mut(feed.quota).burst = 0;
            self.supply.cut(None);
            let leases = self.leases(feed.quota);
            leases.give_up();
            let back = leases.take_spares();
            feed.bequeath(back);
        }
        feed.rouse()
    }
}
