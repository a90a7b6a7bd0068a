//! Which claims in the queue the promised tokens cover.

use crate::core::rovers::ahead;

/// The promised tokens, piece by piece, distributed over the claims in queue order.
#[derive(Clone)]
pub(super) struct Cover<I> {
    /// The position up to which claims have the tokens that they need.
    pub(super) at: u64,
    /// How many tokens of earlier pieces may be kept until the next piece comes.
    pub(super) keeps: u64,
    /// How many tokens are left of the current piece.
    pub(super) left: u64,
    pub(super) pieces: I,
}

impl<I: Iterator<Item = u64>> Cover<I> {
    /// The number of tokens that the next claim lacks. The claim begins at `start` and ends at `ticket`.
    pub(super) fn lacks(&mut self, start: u64, ticket: u64) -> u64 {
        loop {
            let need = ahead(ticket, self.at).max(0) as u64;
            if need <= self.left {
                self.left -= need;
                self.at = self.at.wrapping_add(need);
                return 0;
            }
            let space = ahead(start.wrapping_add(self.keeps), self.at).max(0) as u64;
            self.at = self.at.wrapping_add(self.left.min(space));
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

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_used_up_and_what_is_left_of_it_is_kept_as_far_as_may_be() {
        let lacks = |keeps: u64| {
            let mut cover = Cover { at: 0, keeps, left: 0, pieces: [10].into_iter() };
            [(0, 6), (6, 9), (9, 14)].map(|(start, ticket)| cover.lacks(start, ticket))
        };
        assert_eq!([0, 1, 3].map(lacks), [[0, 0, 5], [0, 0, 4], [0, 0, 4]]);
    }
}
