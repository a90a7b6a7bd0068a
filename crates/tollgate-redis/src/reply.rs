//! Error replies of Redis, by kind.

use redis::{ErrorKind, RedisError};
use tollgate::distributed::{ReplyKind, StoreError};

/// The kind of error that the server replied with; `None` if the server did not reply.
pub(super) fn reply_kind(error: &RedisError) -> Option<ReplyKind> {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => {
            let text = error.detail().unwrap_or_default();
            Some(kind_of(error.code().unwrap_or_default(), text))
        }
        ErrorKind::AuthenticationFailed => Some(ReplyKind::NoPermission),
        _ => None,
    }
}

/// The error for a reply of this kind: what the server said, and what to do.
pub(super) fn error_reply(kind: ReplyKind, said: &RedisError) -> StoreError {
    StoreError::Reply { kind, message: format!("`{said}`: {}", advice(kind)) }
}

fn advice(kind: ReplyKind) -> &'static str {
    match kind {
        ReplyKind::OutOfMemory => "raise `maxmemory`, or allow the eviction of other keys",
        ReplyKind::WrongType => "rename the store, or delete the key that holds something else",
        ReplyKind::NoPermission => "allow the user the commands and the keys of docs/operations.md",
        ReplyKind::Busy => "end the running script with SCRIPT KILL",
        ReplyKind::ReadOnly => "connect to the master",
        ReplyKind::NoReplicas => "repair the replicas, or lower `min-replicas-to-write`",
        ReplyKind::NotSaved => "make the disk writable again",
        ReplyKind::Unavailable | ReplyKind::NoScript => "the request is repeated",
        ReplyKind::ForeignField => "the field was removed: find the software that wrote it",
        ReplyKind::Damaged => "delete the key, which grants a burst again, and find the software that wrote the field",
        _ => "see the documentation of Redis",
    }
}

/// The kind of an error reply with this code and text. Redis before version 7 wraps errors inside scripts: there the
/// code is `ERR`, and the text names the error.
pub(super) fn kind_of(code: &str, text: &str) -> ReplyKind {
    // In a script, Redis 7 has no code for what the user may not do.
    if text.contains("The user executing the script can't") {
        return ReplyKind::NoPermission;
    }
    of_code(code).unwrap_or_else(|| {
        text.split(|sign: char| !sign.is_ascii_alphabetic()).find_map(of_code).unwrap_or(ReplyKind::Other)
    })
}

fn of_code(code: &str) -> Option<ReplyKind> {
    Some(match code {
        "OOM" => ReplyKind::OutOfMemory,
        "WRONGTYPE" => ReplyKind::WrongType,
        "NOPERM" | "NOAUTH" | "WRONGPASS" => ReplyKind::NoPermission,
        "BUSY" => ReplyKind::Busy,
        "NOSCRIPT" => ReplyKind::NoScript,
        "READONLY" => ReplyKind::ReadOnly,
        "NOREPLICAS" => ReplyKind::NoReplicas,
        "MISCONF" => ReplyKind::NotSaved,
        "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => ReplyKind::Unavailable,
        "TOLLGATEFOREIGN" => ReplyKind::ForeignField,
        "TOLLGATEDAMAGED" => ReplyKind::Damaged,
        _ => return None,
    })
}

/// Whether the server would reply the same for every key.
pub(super) fn is_of_the_server(kind: ReplyKind) -> bool {
    matches!(kind, ReplyKind::Busy | ReplyKind::ReadOnly | ReplyKind::Unavailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_the_server_wraps_is_recognized_by_its_text() {
        let of = kind_of;
        assert_eq!(of("OOM", "command not allowed when used memory > 'maxmemory'."), ReplyKind::OutOfMemory);
        let wrapped = "Error running script (call to f_12ab): @user_script:41: WRONGTYPE Operation against a key";
        assert_eq!(of("ERR", wrapped), ReplyKind::WrongType);
        assert_eq!(of("ERR", "@user_script: 82: -READONLY You can't write"), ReplyKind::ReadOnly);
        let forbidden =
            "The user executing the script can't run this command or subcommand script: 2248, on @user_script:1.";
        assert_eq!(of("ERR", forbidden), ReplyKind::NoPermission);
        assert_eq!(of("ERR", "value is out of range"), ReplyKind::Other);
    }
}
