//! How much the classes of a node may take, and when: an account for each class. Pure.
//!
//! What is [due](super::shares) to a class on this node is added to its account in each share time, and what the class is served
//! is taken from it. A class asks for what its account will have a share time later. A claim that costs more is requested at once,
//! and the class then *rests* until its account is at 0 again, unless the store has tokens for which no node asks. So what is due
//! to one class of a node is not spent on another one.

use super::{ClassDemand, Usage};
use crate::core::classes::MAX_WEIGHT;
use std::collections::HashMap;

/// For how long what other nodes reported is used after an answer, in nanoseconds: as long as a store remembers a node.
const KNOWN_FOR: u64 = super::LeaseRequest::LEASE_TIME.as_nanos() as u64;

/// The most accounts that are kept, those of removed classes included.
const MOST_ACCOUNTS: usize = 256;

/// From this fullness of the store's bucket on, all debts are cancelled. It is below 1, so that no token is lost before.
const FULL: f64 = 0.95;
/// Extra tokens in a share time, as a multiple of the part, are this times the third power of how full the bucket is. The third
/// power leaves out the tokens that a busy fleet leaves for moments.
const SPEED: f64 = 2.0;
/// The largest ratio of two weights: the parts may be too small by so much.
const MOST_BOOST: f64 = MAX_WEIGHT as f64;

/// What a node with classes knows of the others, and what its classes may take.
#[derive(Debug)]
pub(crate) struct Accounts {
    /// The demand on the other nodes, and when that is out of date.
    others: Vec<ClassDemand>,
    known_until: u64,
    /// By the numbers of the classes. Empty if the demand on other nodes is not known.
    classes: HashMap<u64, Account>,
    /// When the accounts were updated, and when what is left in the store was added.
    updated_at: u64,
    spare_at: u64,
    /// The last report had claims that wait.
    pub(crate) has_reported: bool,
    /// By what the parts are multiplied while tokens are left. Above 1 if the store's bucket was full again and again although
    /// claims wait here: other nodes have reported more than they use.
    boost: f64,
    pub(crate) usage: Usage,
}

/// A class of this node, as its account needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassState {
    pub(crate) number: u64,
    /// The number of the class around it; 0 for a class of the limiter itself.
    pub(crate) parent: u64,
    /// What is due to it in a share time, in tokens, if that many wait.
    pub(crate) part: f64,
    /// What is due to it on all nodes.
    pub(crate) due: f64,
    /// All tokens that it was served so far.
    pub(crate) served: u64,
    pub(crate) is_waiting: bool,
}

/// What a class of this node may take.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    parent: u64,
    part: f64,
    due: f64,
    /// What was due to it so far, less what it was served.
    credit: f64,
    /// What was requested for it and was not served yet, and how much of that was added by the last request.
    requested: f64,
    in_last: f64,
    /// What the last fall of `due` has forgiven. It counts again if that much is due again.
    forgiven: f64,
    served: u64,
    is_waiting: bool,
}

impl Account {
    fn balance(&self) -> f64 {
        self.credit - self.requested
    }

    /// What it will have in so many share times, if it is served nothing.
    fn balance_in(&self, share_times: f64) -> f64 {
        self.balance() + self.part * share_times
    }

    /// The class is due so much on all nodes. If that falls by more than half while claims wait, as when a sibling has claims
    /// again, what the class asked for a share time ahead was due to it, and it pays back as much less. If only the part of
    /// this node falls, other nodes of the class have what it took too much.
    fn set_due(&mut self, due: f64, is_waiting: bool) {
        let ahead = (-self.balance()).clamp(0.0, self.part);
        if due > self.due * 2.0 {
            self.credit -= std::mem::take(&mut self.forgiven);
        } else if due < self.due / 2.0 && self.is_waiting && is_waiting {
            let forgiven = ahead * (1.0 - due / self.due);
            self.credit += forgiven;
            self.forgiven += forgiven;
        }
        (self.due, self.is_waiting) = (due, is_waiting);
    }

    /// Adds what was due to the class in so many share times, less the tokens that it was served. Nothing is saved for later,
    /// except what is too little for the next claim, and what was left in the store.
    fn add(&mut self, share_times: f64, taken: f64, part: f64, boost: f64) {
        let left = self.balance().min(part * boost);
        self.requested = (self.requested - taken).max(0.0);
        let most = self.requested + if self.is_waiting { part.max(left) } else { 0.0 };
        let due = self.part * share_times;
        self.credit = (self.credit + due - taken).min(most);
        self.forgiven = (self.forgiven - due).max(0.0);
        self.part = part;
    }

    /// In how many share times it has paid back what it took beyond its part.
    fn pays_for(&self) -> f64 {
        (-self.balance()).max(0.0) / self.part.max(f64::MIN_POSITIVE)
    }
}

impl Default for Accounts {
    fn default() -> Self {
        Self {
            others: Vec::new(),
            known_until: 0,
            classes: HashMap::new(),
            updated_at: 0,
            spare_at: 0,
            has_reported: false,
            boost: 1.0,
            usage: Usage::default(),
        }
    }
}

impl Accounts {
    /// Whether the store's bucket was full again and again.
    pub(crate) fn are_boosted(&self) -> bool {
        self.boost > 1.0
    }

    /// Records the demand on the other nodes.
    pub(crate) fn learn(&mut self, others: Vec<ClassDemand>, now: u64) {
        (self.others, self.known_until) = (others, now.saturating_add(KNOWN_FOR));
    }

    /// The demand on the other nodes, if it is known.
    pub(crate) fn others(&self, now: u64) -> Option<&[ClassDemand]> {
        (now < self.known_until).then_some(&self.others)
    }

    /// Updates the accounts of the classes of this node. `outstanding`: the tokens that are promised to it or here, and not
    /// served.
    pub(crate) fn update(&mut self, classes: &[ClassState], outstanding: u64, share_time: u64, now: u64) {
        let elapsed = now.saturating_sub(self.updated_at) as f64 / share_time as f64;
        self.updated_at = self.updated_at.max(now);
        let mut removed = std::mem::take(&mut self.classes);
        let known: Vec<_> = classes.iter().map(|class| removed.remove(&class.number)).collect();
        let mut unasked = 0.0;
        for (class, known) in classes.iter().zip(known) {
            let &ClassState { number, parent, part, due, served, is_waiting } = class;
            let mut known = known.unwrap_or_else(|| {
                let credit = take_debts(&mut removed, parent, elapsed);
                Account { parent, credit, served, ..Account::default() }
            });
            // A class that was made anew counts from 0.
            let taken = served.checked_sub(known.served).unwrap_or(served) as f64;
            unasked += (taken - known.requested).max(0.0);
            // The parts are right again.
            if part > 2.0 * known.part && known.part > 0.0 {
                self.boost = 1.0;
            }
            known.set_due(due, is_waiting);
            known.add(elapsed, taken, part, self.boost);
            self.classes.insert(number, Account { served, ..known });
        }
        self.keep_debts(removed, elapsed);
        self.write_off(outstanding as f64, unasked);
    }

    /// Accounts of classes that were removed stay until their debts are paid: a class that is made anew has them, or the next
    /// class of another name in the same class around it.
    fn keep_debts(&mut self, removed: HashMap<u64, Account>, share_times: f64) {
        for (number, mut account) in removed {
            (account.credit, account.requested, account.is_waiting) = (account.balance_in(share_times), 0.0, false);
            // What it is served when it is made anew counts from 0.
            account.served = 0;
            if account.credit < 0.0 && self.classes.len() < MOST_ACCOUNTS {
                self.classes.insert(number, account);
            }
        }
    }

    /// Settles requested tokens that are no longer outstanding. Those that were served to a class that has not requested them are
    /// `unasked`, and that class has paid. The others were lost, or served to a class that was removed, and the classes that have
    /// requested them pay.
    fn write_off(&mut self, outstanding: f64, unasked: f64) {
        let requested: f64 = self.classes.values().map(|account| account.requested).sum();
        let settled = requested - outstanding;
        if settled <= 0.0 {
            return;
        }
        let paid = 1.0 - (unasked / settled).min(1.0);
        for account in self.classes.values_mut() {
            let part = account.requested * settled / requested;
            account.requested -= part;
            account.credit -= part * paid;
        }
    }

    /// No claim waits on this node.
    pub(crate) fn pause(&mut self, share_time: u64, now: u64) {
        let elapsed = now.saturating_sub(self.updated_at) as f64 / share_time as f64;
        (self.updated_at, self.boost) = (self.updated_at.max(now), 1.0);
        for account in self.classes.values_mut() {
            account.is_waiting = false;
            account.add(elapsed, 0.0, account.part, 1.0);
        }
    }

    /// The last request got nothing. What earlier ones brought may still be outstanding.
    pub(crate) fn withdraw_last_request(&mut self) {
        for account in self.classes.values_mut() {
            account.requested = (account.requested - std::mem::take(&mut account.in_last)).max(0.0);
        }
    }

    /// The store has lost its state: no request brings anything any more.
    pub(crate) fn withdraw_requests(&mut self) {
        self.classes.values_mut().for_each(|account| (account.requested, account.in_last) = (0.0, 0.0));
    }

    /// The demand on other nodes is not known any more.
    pub(crate) fn forget(&mut self) {
        self.classes.clear();
    }

    /// Whether claims of this class wait until it has paid back what it took beyond its part, and no tokens are requested for
    /// it.
    pub(crate) fn rests(&self, class: u64) -> bool {
        self.classes.get(&class).is_some_and(|account| account.balance() < 0.0 && account.requested < 0.5)
    }

    /// How many tokens claims of this class may take now, and whether a claim may take more; `None` if that is not known.
    pub(crate) fn limit(&self, class: u64) -> Option<(f64, bool)> {
        let account = self.classes.get(&class)?;
        Some((account.balance() + account.part, account.balance() >= 0.0))
    }

    /// How many tokens the node may take now.
    pub(crate) fn share(&self) -> Option<u64> {
        let waiting = self.classes.values().filter(|account| account.is_waiting);
        let share = |account: &Account| (account.balance() + account.part).max(0.0);
        (!self.classes.is_empty()).then(|| waiting.map(share).sum::<f64>() as u64)
    }

    /// The instant before which no class may take tokens; 0 if one may. A share time lasts `share_time` nanoseconds.
    pub(crate) fn resumes_at(&self, share_time: u64) -> u64 {
        let waiting = self.classes.values().filter(|account| account.is_waiting);
        match waiting.map(Account::pays_for).reduce(f64::min) {
            Some(share_times) if share_times > 0.0 => {
                self.updated_at.saturating_add((share_times * share_time as f64).ceil() as u64)
            }
            _ => 0,
        }
    }

    /// Records a request, by the tokens that it is for in each class.
    pub(crate) fn request(&mut self, classes: impl IntoIterator<Item = (u64, f64)>) {
        self.classes.values_mut().for_each(|account| account.in_last = 0.0);
        for (class, tokens) in classes {
            if let Some(account) = self.classes.get_mut(&class) {
                account.requested += tokens;
                account.in_last += tokens;
            }
        }
    }

    /// The store's bucket is full to this part after all that was asked for: more is due to each class, in proportion to its
    /// part, and the more the fuller the bucket is. So what is left is shared as all else is.
    pub(crate) fn add_spare(&mut self, fullness: f64, share_time: u64, now: u64) {
        let elapsed = now.saturating_sub(self.spare_at).min(share_time);
        self.spare_at = now;
        let share_times = elapsed as f64 / share_time as f64;
        for account in self.classes.values_mut().filter(|account| account.is_waiting) {
            let part = account.part * self.boost;
            let most = (part - account.balance()).max(0.0);
            let more = if fullness < FULL {
                SPEED * fullness.powi(3) * share_times * part
            } else {
                part - account.part - account.balance()
            };
            account.credit += more.clamp(0.0, most);
        }
        if fullness >= FULL {
            self.boost = (2.0 * self.boost).min(MOST_BOOST);
        } else if fullness < FULL / 2.0 {
            self.boost = (self.boost / 2.0).max(1.0);
        }
    }
}

/// What a new class inside the class `parent` owes: the debts of the removed classes there, which leave `removed`. Classes of the
/// limiter itself, whose parent is 0, may belong to different users of it.
fn take_debts(removed: &mut HashMap<u64, Account>, parent: u64, share_times: f64) -> f64 {
    let mut debts = 0.0;
    removed.retain(|_, account| {
        let is_sibling = parent != 0 && account.parent == parent;
        if is_sibling {
            debts += account.balance_in(share_times).min(0.0);
        }
        !is_sibling
    });
    debts
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests;
