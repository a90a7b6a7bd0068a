//! The errors of saved states.

use super::error_enum;

error_enum! {
    /// The reason why a state cannot be saved or restored. Nothing was restored.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum StateError {
        /// The state has another version than those that this crate writes and reads.
        #[error(
            "the saved state has version {found}, and this program reads version {expected}: restore it with the program \
             that saved it, or start without it"
        )]
        Version {
            /// The version of the state.
            found: u16,
            /// The version that this program reads.
            expected: u16,
        },
        /// The state has a value that no limiter can have: it was changed after it had been saved.
        #[error("{part} is {value} in the saved state, which is impossible: use an older state, or start without one")]
        Impossible {
            /// The part that is wrong, such as `tokens of quota 0`. A key is named by its number in the state, counted
            /// from 0.
            part: String,
            /// Its value.
            value: String,
        },
        /// The state belongs to another quota.
        #[error(
            "quota {index} was `{saved}` when the state was saved and is `{built}` now: build it with the saved one, or \
             call `convert` on the state"
        )]
        OtherQuota {
            /// The index of the quota.
            index: usize,
            /// The quota that the state belongs to; `none` if there was none.
            saved: String,
            /// The quota that the builder has; `none` if there is none.
            built: String,
        },
        /// A distributed limiter has nothing to save: its store keeps the tokens.
        #[error(
            "a distributed limiter has no state of its own: its store keeps the tokens, leave out saving and restoring"
        )]
        Distributed,
    }
}

impl std::error::Error for StateError {}
