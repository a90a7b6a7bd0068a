//! Pauses: the limiter's own, and the common one of all keys of a keyed limiter.

use super::State;
use crate::core::rovers::Rovers;
use crate::core::source::Source;

/// The ends of the pauses of one queue, in nanoseconds; 0 if there is none. The later one counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pauses {
    pub(crate) own: u64,
    /// The keyed limiter has the value, and each of its keys reads it when it changes.
    pub(crate) common: u64,
}

impl Pauses {
    /// The instant before which no claim passes.
    pub(crate) fn gate(&self) -> u64 {
        self.own.max(self.common)
    }
}

impl State {
    /// Pauses for `nanos` from `now`.
    pub(crate) fn pause_for(&mut self, rovers: &Rovers, now: u64, nanos: u64) {
        let gate = self.gate_after(now, nanos);
        self.change_pauses(rovers, |pauses| pauses.own = pauses.own.max(gate));
    }

    /// Ends the limiter's own pause.
    pub(crate) fn end_pause(&mut self, rovers: &Rovers) {
        self.change_pauses(rovers, |pauses| pauses.own = 0);
    }

    /// Pauses this key with all others until `gate`, or ends that pause if `gate` is over.
    pub(crate) fn pause_in_common(&mut self, rovers: &Rovers, gate: u64) {
        self.change_pauses(rovers, |pauses| pauses.common = gate);
    }

    /// Sets the common pause of a queue that no other thread knows yet.
    pub(crate) fn begin_in_common(&mut self, gate: u64) {
        let pauses = &mut self.rare().pauses;
        pauses.common = gate;
        let gate = pauses.gate();
        self.supply.set_gate(gate);
    }

    /// The end of a pause that begins now. It counts from the instant up to which the queue is served if that is later: the
    /// clock may have stepped back.
    fn gate_after(&self, now: u64, nanos: u64) -> u64 {
        now.max(self.supply.synced()).saturating_add(nanos)
    }

    fn change_pauses(&mut self, rovers: &Rovers, change: impl FnOnce(&mut Pauses)) {
        self.retract(rovers);
        let pauses = &mut self.rare().pauses;
        change(pauses);
        let gate = pauses.gate();
        if let Some((dry_run, now)) = self.dry_run_now() {
            dry_run.set_gate(gate, now);
        }
        self.review_all_fronts();
        self.supply.set_gate(gate);
        // The tokens that come during the pause return, and the next ones are requested at its end.
        self.supply.source_mut().into_iter().for_each(Source::call_task);
    }
}
