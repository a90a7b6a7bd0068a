//! The claims of classes, as a request of a node has them, and what its answer has for them.

/// What the claims of one class lack on a node. Times are in microseconds.
///
/// A request has a row for each class that lacks tokens, and one for each class around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassClaims {
    /// The class: the same number on all nodes, at most 2^52. 0 stands for claims outside of all classes.
    pub class: u64,
    /// The class around it; 0 if there is none.
    pub parent: u64,
    /// The weight of the class beside the others in the same parent.
    pub weight: u64,
    /// Tokens that waiters lack, as in [`LeaseRequest::want`](super::LeaseRequest::want). 0 if the node asks for none now: then
    /// it keeps its place.
    pub want: u64,
    /// What the first of these claims lacks.
    pub first: u64,
    /// What all claims of the class itself lack.
    pub lack: u64,
    /// How long the first of these claims has waited.
    pub age: u64,
    /// The longest time that any of these claims still waits.
    pub useful: u64,
}

impl ClassClaims {
    /// Builds the claims of a class from these numbers, in the order of the fields.
    pub fn from_numbers([class, parent, weight, want, first, lack, age, useful]: [u64; 8]) -> Self {
        Self { class, parent, weight, want, first, lack, age, useful }
    }

    /// Returns the numbers of [`from_numbers`](Self::from_numbers), none above 2^53.
    pub fn numbers(&self) -> [u64; 8] {
        let Self { class, parent, weight, want, first, lack, age, useful } = *self;
        [class, parent, weight, want, first, lack, age, useful].map(|number| number.min(1 << 53))
    }
}

/// What a store gives to the claims of one class. Times are in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassGrant {
    /// How many of the answer's tokens are for the class.
    pub given: u64,
    /// The time until the tokens of the first claim are there, if none are given.
    pub wait: u64,
    /// When the node asks again, if none are given.
    pub sleep: u64,
    /// The part of the class on this node.
    pub part: u64,
}

impl ClassGrant {
    /// Builds what a class gets from these numbers, in the order of the fields.
    pub fn from_numbers([given, wait, sleep, part]: [u64; 4]) -> Self {
        Self { given, wait, sleep, part }
    }

    pub(crate) fn numbers(&self) -> [u64; 4] {
        [self.given, self.wait, self.sleep, self.part]
    }
}
