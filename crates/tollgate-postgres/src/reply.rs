//! Errors of PostgreSQL, by kind.

use deadpool_postgres::tokio_postgres::Error;
use deadpool_postgres::tokio_postgres::error::SqlState;
use tollgate::distributed::{ReplyKind, StoreError};

/// Why an attempt failed.
pub(super) enum Failed {
    /// The server replied with an error.
    Reply(ReplyKind, String),
    /// The connection broke. The request may have been carried out.
    Broken(String),
}

impl Failed {
    pub(super) fn of(error: &Error) -> Self {
        let Some(reply) = error.as_db_error() else { return Self::Broken(chain(error)) };
        let (code, message) = (reply.code(), format!("{} {}", reply.code().code(), reply.message()));
        match kind_of(code) {
            // The server ends this connection: another one may be answered.
            ReplyKind::Unavailable => Self::Broken(message),
            kind if is_missing(code) => {
                Self::Reply(kind, format!("{message}: run the migration, `tollgate_postgres::MIGRATION`"))
            }
            kind => Self::Reply(kind, message),
        }
    }

    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Reply(kind, message) => StoreError::Reply { kind, message },
            Self::Broken(why) => StoreError::Unreachable(why),
        }
    }
}

/// Whether the migration did not run, or not in this schema.
fn is_missing(code: &SqlState) -> bool {
    [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_FUNCTION, SqlState::INVALID_SCHEMA_NAME].contains(code)
}

fn kind_of(code: &SqlState) -> ReplyKind {
    let code = code.code();
    match (code.get(..2).unwrap_or_default(), code) {
        // Read-only transaction: a standby.
        (_, "25006") => ReplyKind::ReadOnly,
        // Insufficient privilege; invalid authorization.
        (_, "42501") | ("28", _) => ReplyKind::NoPermission,
        // Too many connections; shutdown, crash, start; the session was idle for too long.
        (_, "53300") | (_, "57P01" | "57P02" | "57P03" | "57P05") | ("08", _) => ReplyKind::Unavailable,
        // Out of memory or of space on the disk.
        ("53", _) => ReplyKind::OutOfMemory,
        // The row stays locked; a statement timeout; a conflict with another transaction.
        (_, "55P03" | "57014") | ("40", _) => ReplyKind::Busy,
        // Numbers that no request of a node leads to.
        ("22" | "23", _) => ReplyKind::Damaged,
        _ => ReplyKind::Other,
    }
}

/// The error with all its causes: the text of the first alone is "db error".
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_kinds_of_their_classes() {
        for (code, kind) in [
            ("25006", ReplyKind::ReadOnly),
            ("42501", ReplyKind::NoPermission),
            ("28P01", ReplyKind::NoPermission),
            ("53200", ReplyKind::OutOfMemory),
            ("53300", ReplyKind::Unavailable),
            ("57P01", ReplyKind::Unavailable),
            ("57P05", ReplyKind::Unavailable),
            ("55P03", ReplyKind::Busy),
            ("40P01", ReplyKind::Busy),
            ("22003", ReplyKind::Damaged),
            ("42P01", ReplyKind::Other),
            // No codes of PostgreSQL: something between answers.
            ("5", ReplyKind::Other),
            ("", ReplyKind::Other),
            ("5\u{1f600}", ReplyKind::Other),
        ] {
            assert_eq!(kind_of(&SqlState::from_code(code)), kind, "{code}");
        }
    }
}
