//! What became of a request.

/// The outcome of a request. Each request is counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The upstream responded.
    Answered,
    /// Refused by the limit of its own key.
    RefusedEach,
    /// Refused by the limit of all requests.
    RefusedAll,
    /// Refused by another limit of the file, such as that of a route.
    RefusedRule,
    /// Its client is not admitted at all.
    Unknown,
    /// Its head or its body is not what HTTP allows, or its body did not come in time: 400, 408.
    Invalid,
    /// The upstream did not respond, or no upstream is healthy: 502, 503, 504.
    Failed,
    /// Its client hung up before there was a response.
    Left,
}

impl Outcome {
    pub(crate) const ALL: [(Outcome, &'static str); 8] = [
        (Outcome::Answered, "answered"),
        (Outcome::RefusedEach, "refused_each"),
        (Outcome::RefusedAll, "refused_all"),
        (Outcome::RefusedRule, "refused_rule"),
        (Outcome::Unknown, "unknown"),
        (Outcome::Invalid, "invalid"),
        (Outcome::Failed, "failed"),
        (Outcome::Left, "left"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}
