//! Alarms: the instants at which the parts of joint claims that wait aside are looked at. The rule that sets them is in
//! `state/joint.rs`.
//!
//! Tokens that come in make the due instant of this queue earlier, and with it the alarms that follow from it. While the
//! limiter is in debt, no claim can be granted here. So these alarms are not set anew with each refund: they are noted as
//! late, and all of them are due once the debt is paid. Between two steps of a quota, a refund looks at a bounded number of
//! parts, those with the earliest alarms. The others keep their alarms, before the next step.

use super::State;
use super::serving::{Served, Step};
use crate::core::queue::PartStage;
use crate::core::rovers::Rovers;
use crate::core::wakes::Wakes;

/// How many parts a refund between two steps of a quota looks at.
const MOST_MADE_DUE: usize = 32;

impl State {
    /// The next instant at which a part that waits aside must be looked at, if there is one.
    #[inline]
    pub(super) fn next_alarm(&self) -> Option<u64> {
        let (alarm, _) = self.queue.parts()?.first_alarm()?;
        Some(self.late_alarm().map_or(alarm, |(at, _)| at.min(alarm)))
    }

    /// If alarms may be too late: the instant at which the debt is paid, as far as the oldest of their parts waits for it,
    /// or one nanosecond earlier; and the number of that part.
    fn late_alarm(&self) -> Option<(u64, u64)> {
        let number = self.queue.parts()?.first_late()?;
        let start = self.supply.claimed();
        let at = self.supply.minted(start.wrapping_sub(self.debt_behind(number, start)))?;
        // Before the step of a quota that pays the debt: with that step, another claim may be due.
        Some((at.saturating_sub(1).max(self.supply.synced()), number))
    }

    /// Part `number`, which is due here at `due` and in the other queues at `others`, waits aside. Notes whether it has an
    /// alarm because of a debt of this limiter.
    pub(super) fn note_if_debt_alarm(&mut self, number: u64, due: Option<u64>, others: Option<u64>) {
        let start = self.supply.claimed();
        if due > others
            && self.supply.minted(start.wrapping_sub(self.debt_behind(number, start))) > Some(self.supply.synced())
            && let Some(parts) = self.queue.parts_mut()
            && let Some(PartStage::Alarm(_)) = parts.stage(number)
        {
            parts.note_debt_alarm(number);
        }
    }

    /// Runs `add`, by which tokens come in. They can make parts due earlier that wait for a debt to be paid, or for the next
    /// step of a quota.
    pub(super) fn adding_tokens(&mut self, add: impl FnOnce(&mut Self)) {
        let was_in_debt = self.queue.parts().is_some() && self.supply.shortfall(self.supply.claimed()) > 0;
        add(self);
        if was_in_debt {
            self.note_late_alarms();
        }
        if let Some(parts) = self.queue.parts_mut()
            && self.supply.quotas().iter().any(|quota| quota.quota.is_stepped())
        {
            parts.make_first_alarms_due(MOST_MADE_DUE);
        }
    }

    /// The alarms that parts have because of a debt may be too late. The parts are looked at before another claim is granted.
    fn note_late_alarms(&mut self) {
        let Some(parts) = self.queue.parts_mut() else { return };
        parts.note_late_alarms();
        if self.late_alarm().is_some_and(|(at, _)| at <= self.supply.synced()) {
            self.make_debt_alarms_due();
        }
    }

    fn make_debt_alarms_due(&mut self) {
        if let Some(parts) = self.queue.parts_mut() {
            parts.make_debt_alarms_due();
        }
    }

    /// The quotas are others now, or a pause has ended early: all parts with an alarm are looked at before another claim is
    /// decided. Takes time in proportion to their number.
    pub(super) fn make_alarms_due(&mut self) {
        if let Some(parts) = self.queue.parts_mut() {
            parts.make_alarms_due();
        }
    }

    /// Whether `alarm` comes by `now` and before the part of `cost` at the front, which ends at `ticket`, is ready. It is then handled first: as soon as the
    /// part is ready here, the claim may be committed, and an older part could not come to the front any more.
    pub(super) fn alarm_comes_first(&self, alarm: u64, cost: u64, ticket: u64, now: u64) -> bool {
        alarm <= now && self.front_due(cost, ticket).is_none_or(|due| alarm < due)
    }

    /// Reviews the part with the first alarm, as of the instant of that alarm. `front` is the ticket of the front
    /// waiter.
    pub(super) fn review_alarm(&mut self, rovers: &Rovers, front: Option<u64>, wakes: &mut Wakes) -> Step {
        let Some((at, number)) = self.queue.parts().and_then(|parts| parts.first_alarm()) else {
            return Step::Moved;
        };
        if let Some((earlier, number)) = self.late_alarm().filter(|(late, _)| *late < at) {
            if !self.is_behind_held(number) {
                self.supply.mint(earlier, front);
            }
            self.make_debt_alarms_due();
            return Step::Moved;
        }
        if wakes.must_pause() {
            return Step::Ended(Served::Again);
        }
        wakes.steps += 1;
        let at = at.max(self.supply.synced());
        if !self.is_behind_held(number) {
            self.supply.mint(at, front);
        }
        self.review_aside(rovers, number, at, wakes);
        Step::Moved
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use crate::{Limiter, ManualClock, Quota, join};
    use std::time::Duration;
    use tokio_test::task::spawn;

    fn first_alarm(limiter: &Limiter) -> Option<(u64, u64)> {
        limiter.core().state.lock().queue.parts().and_then(|parts| parts.first_alarm())
    }

    #[test]
    fn a_refund_that_does_not_pay_the_debt_moves_no_alarm_and_one_that_does_moves_all() {
        let clock = ManualClock::new();
        let limiter = Limiter::builder().quota(Quota::per_second(1_000).burst(9)).clock(clock.clone()).build().unwrap();
        let mut earlier = limiter.try_acquire(1).unwrap();
        earlier.settle(1_000);
        let mut claims = [(); 3].map(|()| spawn(join([(&limiter, 1)])));
        claims.iter_mut().for_each(|claim| assert!(claim.poll().is_pending()));
        let alarm = first_alarm(&limiter);
        (100..1_000).rev().for_each(|cost| earlier.settle(cost));
        assert!(alarm.is_some() && first_alarm(&limiter) == alarm);
        clock.advance(Duration::from_millis(91));
        limiter.tick();
        assert_eq!(first_alarm(&limiter), None);
        assert_eq!(claims.each_ref().map(|claim| claim.is_woken()), [false; 3]);
        earlier.settle(97);
        assert_eq!(claims.each_ref().map(|claim| claim.is_woken()), [true; 3]);
    }

    /// The first claim waits for the end of a pause only: the debt was charged after it had come. If its alarm counted as one
    /// that the debt causes, each refund would move the alarms of all claims.
    #[test]
    fn a_refund_moves_no_alarm_though_the_oldest_claim_waits_for_no_debt() {
        let clock = ManualClock::new();
        let limiter = Limiter::builder().quota(Quota::per_second(1_000).burst(9)).clock(clock).build().unwrap();
        let mut earlier = limiter.try_acquire(1).unwrap();
        limiter.pause_for(Duration::from_secs(5));
        let mut claims = [(); 3].map(|()| spawn(join([(&limiter, 1)])));
        assert!(claims[0].poll().is_pending());
        earlier.settle(1_000);
        claims[1..].iter_mut().for_each(|claim| assert!(claim.poll().is_pending()));
        (100..1_000).rev().for_each(|cost| earlier.settle(cost));
        assert!(limiter.core().state.lock().queue.parts().is_some_and(|parts| parts.first_late().is_some()));
    }
}
