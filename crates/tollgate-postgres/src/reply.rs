//! Errors of PostgreSQL, by kind.

use deadpool_postgres::tokio_postgres::Error;
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
        let code = reply.code().code();
        let (kind, advice) = judge(code);
        let message = format!("`{code} {}`: {advice}", reply.message());
        // The server ends this connection: another one may be answered.
        if kind == ReplyKind::Unavailable { Self::Broken(message) } else { Self::Reply(kind, message) }
    }

    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Reply(kind, message) => StoreError::Reply { kind, message },
            Self::Broken(why) => StoreError::Unreachable(why),
        }
    }
}

/// What to do about rows that no request wrote.
pub(super) const DAMAGED: &str =
    "delete the rows of the store, which grants a burst again, and find the software that wrote them";

/// The kind of an error with this code, and what to do.
fn judge(code: &str) -> (ReplyKind, &'static str) {
    match (code.get(..2).unwrap_or_default(), code) {
        // Read-only transaction: a standby.
        (_, "25006") => (
            ReplyKind::ReadOnly,
            "list all servers in the address, with `target_session_attrs=read-write`, or let the user write",
        ),
        // Insufficient privilege; invalid authorization.
        (_, "42501") | ("28", _) => {
            (ReplyKind::NoPermission, "correct the user and the password, or grant the rights of docs/operations.md")
        }
        // Too many connections; shutdown, crash, start; the session was idle for too long.
        (_, "53300") | (_, "57P01" | "57P02" | "57P03" | "57P05") | ("08", _) => {
            (ReplyKind::Unavailable, "the request is repeated over another connection")
        }
        ("53", _) => (ReplyKind::OutOfMemory, "give the server more memory or disk"),
        (_, "55P03") => {
            (ReplyKind::Busy, "end the transaction that locks the rows of the store, with `pg_terminate_backend`")
        }
        (_, "57014") => (ReplyKind::Busy, "raise the `statement_timeout` of the user"),
        (CONFLICT, _) => (ReplyKind::Busy, "end the other transactions that write the rows of the store"),
        // Numbers that no request of a node leads to.
        ("22" | "23", _) => (ReplyKind::Damaged, DAMAGED),
        // No such table, function, schema.
        (_, "42P01" | "42883" | "3F000") => {
            (ReplyKind::Setup, "run the migration, `tollgate_postgres::MIGRATION`, in the `search_path` of the user")
        }
        // No such prepared statement; there is one already.
        (_, "26000" | "42P05") => (
            ReplyKind::Setup,
            "a pooler between loses prepared statements: use PgBouncer 1.21 or later with `max_prepared_statements`, or \
             `pool_mode=session`, or connect to the server itself",
        ),
        _ => (ReplyKind::Other, "see \"PostgreSQL Error Codes\" in its documentation"),
    }
}

/// The class of serialization failures and deadlocks: the transaction is undone, and may be repeated.
const CONFLICT: &str = "40";

pub(super) fn is_conflict(error: &Error) -> bool {
    error.code().is_some_and(|code| code.code().starts_with(CONFLICT))
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
            ("42P01", ReplyKind::Setup),
            ("26000", ReplyKind::Setup),
            ("XX000", ReplyKind::Other),
            // No codes of PostgreSQL: something between answers.
            ("5", ReplyKind::Other),
            ("", ReplyKind::Other),
            ("5\u{1f600}", ReplyKind::Other),
        ] {
            assert_eq!(judge(code).0, kind, "{code}");
        }
    }
}
