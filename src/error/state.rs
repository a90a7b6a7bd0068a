//! The errors of saved states.

/// The reason why a saved state cannot be read or restored. Nothing was restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The state could not be read.
    #[error("the saved state cannot be read: {message}")]
    Read {
        /// The kind of the error.
        kind: std::io::ErrorKind,
        /// Its text.
        message: String,
    },
    /// The bytes are not the state of a limiter.
    #[error("this is no saved state of tollgate: it does not begin with `tollgate`; check the path of the file")]
    Foreign,
    /// The state was written by a later version of this crate.
    #[error(
        "the saved state has version {found}, and this program reads up to {known}: update it, or start without the state"
    )]
    Version {
        /// The version of the state.
        found: u16,
        /// The latest version that this program can read.
        known: u16,
    },
    /// The state is that of another type: of a limiter instead of a keyed limiter, or the reverse.
    #[error("this is the saved state of a {found}: read it with `{}`", reader_of(found))]
    OtherType {
        /// `Limiter` or `KeyedLimiter`.
        found: &'static str,
    },
    /// The state ends too early: it was not written to its end.
    #[error("the saved state ends too early: use an older one, or start without it")]
    Truncated,
    /// The state was changed after it had been written.
    #[error("the saved state is damaged, in {part}: use an older one, or start without it")]
    Damaged {
        /// The part that is wrong.
        part: &'static str,
    },
    /// The state belongs to another quota.
    #[error(
        "{which} was `{saved}` when the state was saved and is `{built}` now: build it with the saved one, or call `convert` on the state"
    )]
    OtherQuota {
        /// Which quota, such as `quota 0`.
        which: String,
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

/// Reads the state of a `Limiter` or of a `KeyedLimiter`.
fn reader_of(found: &str) -> &'static str {
    if found == "Limiter" { "LimiterState::from_bytes" } else { "KeyedState::read_from" }
}
