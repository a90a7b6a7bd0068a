//! A list that grows without moving what is in it, once it is long.

use std::ops::{Index, IndexMut};

/// How many values the first part can have, which grows as any vector.
const FIRST: usize = 1 << 14;
/// How many values each of the others has.
const PART: usize = 1 << 12;

#[derive(Clone, Debug)]
pub(super) struct Parts<T> {
    first: Vec<T>,
    rest: Vec<Vec<T>>,
}

impl<T> Parts<T> {
    pub(super) fn new(value: T) -> Self {
        Self { first: vec![value], rest: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.rest.last().map_or(self.first.len(), |last| FIRST + (self.rest.len() - 1) * PART + last.len())
    }

    pub(super) fn push(&mut self, value: T) {
        if self.first.len() < FIRST {
            return self.first.push(value);
        }
        if self.rest.last().is_none_or(|last| last.len() == PART) {
            self.rest.push(Vec::with_capacity(PART));
        }
        let last = self.rest.len() - 1;
        self.rest[last].push(value);
    }

    #[cold]
    #[inline(never)]
    fn far(&self, index: usize) -> &T {
        &self.rest[(index - FIRST) / PART][(index - FIRST) % PART]
    }
}

// Inlined always: while there are few values, this costs as much as with a vector.
impl<T> Index<usize> for Parts<T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, index: usize) -> &T {
        match self.first.get(index) {
            Some(value) => value,
            None => self.far(index),
        }
    }
}

impl<T> IndexMut<usize> for Parts<T> {
    #[inline(always)]
    fn index_mut(&mut self, index: usize) -> &mut T {
        match self.first.get_mut(index) {
            Some(value) => value,
            None => far_mut(&mut self.rest, index),
        }
    }
}

#[cold]
#[inline(never)]
fn far_mut<T>(rest: &mut [Vec<T>], index: usize) -> &mut T {
    &mut rest[(index - FIRST) / PART][(index - FIRST) % PART]
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn values_stay_at_their_indices_while_the_list_grows() {
        let mut list = Parts::new(0);
        for index in 1..FIRST + 2 * PART + 2 {
            assert_eq!(list.len(), index);
            list.push(index);
        }
        (0..list.len()).for_each(|index| list[index] += 1);
        assert!((0..list.len()).all(|index| list[index] == index + 1));
    }
}
