//! Changes of the rules: the cap, the pause and the quotas.

use super::Supply;
use crate::Quota;
use crate::core::schedule::Schedule;

impl Supply {
    /// A copy without the in-flight cap, in which everything claimed so far ends at `claimed`.
    pub(crate) fn copied_at(&self, claimed: u64) -> Self {
        let mut copy = self.clone();
        copy.uncap();
        copy.know_claimed(claimed);
        copy
    }

    /// Removes the in-flight cap, on a copy that no grant is made from.
    pub(crate) fn uncap(&mut self) {
        self.ceiling = None;
    }

    /// Sets the end of the pause, later or earlier than before.
    pub(crate) fn set_gate(&mut self, gate: u64) {
        if gate.max(self.synced) != self.gate.max(self.synced) {
            self.note_change();
        }
        self.gate = gate;
    }

    pub(crate) fn set_quota(&mut self, index: usize, quota: Quota, front: Option<u64>) {
        self.note_change();
        self.quotas[index].become_quota(quota, self.claimed, self.synced);
        self.cut(front);
    }

    /// Replaces a quota by one that holds back no claim: it is in dry run.
    pub(crate) fn open_quota(&mut self, index: usize) {
        self.note_change();
        let quota = &mut self.quotas[index];
        *quota = Schedule::open(quota.quota, self.claimed);
    }

    /// Continues a quota that comes from a dry run, or goes there, with its level.
    pub(crate) fn continue_quota(&mut self, index: usize, schedule: Schedule, front: Option<u64>) {
        self.note_change();
        self.quotas[index] = schedule;
        self.cut(front);
    }

    /// Replaces all quotas, in their order: each keeps its tokens, as with [`set_quota`](Self::set_quota). A quota that
    /// is new starts full; one that is not among `quotas` is gone.
    pub(crate) fn replace_quotas(&mut self, quotas: impl Iterator<Item = Quota>, front: Option<u64>) {
        self.note_change();
        let (now, claimed) = (self.synced, self.claimed);
        let mut old = self.quotas.iter().cloned();
        let replaced = quotas.map(|quota| match old.next() {
            Some(mut schedule) => {
                schedule.become_quota(quota, claimed, now);
                schedule
            }
            None => Schedule::new(quota, claimed, now),
        });
        self.quotas = replaced.collect();
        self.cut(front);
    }
}
