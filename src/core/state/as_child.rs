//! What a queue does that has a parent: its front claim, and the proxy of that one in the parent's queue. See
//! `core/parent.rs`.

use super::{Role, State};
use crate::core::rovers::Rovers;
use crate::core::wakes::Wakes;

/// The proxy that a queue has in the queue of its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyState {
    None,
    /// It stands for the front claim.
    OfFront,
    /// It stands for no claim any more, and has to be withdrawn.
    Recalled,
}

impl State {
    /// Whether a proxy stands for the front claim.
    pub(crate) fn front_has_proxy(&self) -> bool {
        self.proxy == ProxyState::OfFront
    }

    /// The front claim leaves without a grant, or is not ready any more.
    pub(crate) fn recall_proxy(&mut self) {
        if self.front_has_proxy() {
            self.proxy = ProxyState::Recalled;
        }
    }

    /// A proxy stands for the front claim from now on.
    pub(crate) fn note_proxy_entered(&mut self) {
        self.proxy = ProxyState::OfFront;
    }

    /// The cost of the front claim, if it is ready and the parent has to grant it. A joint claim that holds this limiter comes
    /// first: the parent is one of its members.
    pub(crate) fn ready_front(&self, rovers: &Rovers) -> Option<u64> {
        let front = self.queue.front().filter(|_| self.held().is_none())?;
        let due = self.supply.due(self.base(rovers).wrapping_add(front.cost))?;
        (due <= self.supply.synced()).then_some(front.cost)
    }

    /// The [ready front](Self::ready_front), if it has no proxy yet.
    pub(crate) fn ready_without_proxy(&self, rovers: &Rovers) -> Option<u64> {
        if self.front_has_proxy() { None } else { self.ready_front(rovers) }
    }

    /// Whether the parent's queue has to be changed, for the front claim here or for a claim that is gone.
    #[inline]
    pub(crate) fn wants_parent(&self, rovers: &Rovers) -> bool {
        self.role.has(Role::CHILD) && (self.proxy == ProxyState::Recalled || self.ready_without_proxy(rovers).is_some())
    }

    /// Whether the proxy must be withdrawn from the parent's queue. The caller must do it: it is not said again.
    pub(crate) fn take_proxy_recall(&mut self) -> bool {
        let is_recalled = self.proxy == ProxyState::Recalled;
        if is_recalled {
            self.proxy = ProxyState::None;
        }
        is_recalled
    }

    /// Grants the claim of the [ready front](Self::ready_front), which the parent has granted, as of `at`. The caller read
    /// `now` from the clock.
    pub(crate) fn grant_ready_front(&mut self, rovers: &Rovers, at: u64, now: u64, wakes: &mut Wakes) {
        let ticket = self.front_ticket(rovers);
        self.proxy = ProxyState::None;
        self.supply.mint(at, ticket);
        self.grant_front(rovers, ticket, at, now, wakes);
    }
}
