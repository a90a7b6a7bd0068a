//! What `connect` checks: that the server accepts the user, and lets it do what the script does.

use super::connection::{Connection, Topology};
use redis::{ErrorKind, RedisError, Script};
use tollgate::distributed::{Missing, StoreError};

const PROBE: &str = include_str!("probe.lua");

/// The rights of a user, as in docs/operations.md.
const RIGHTS: &str = "~tollgate:* +eval +evalsha +ping +time +hget +hmget +hgetall +hset +hdel +pexpire +pttl";

/// Runs the commands of the script on a key beside `key`. `user` is the name for advice about rights.
///
/// Errors that may pass, such as a server that loads its data, are no errors here: requests are repeated.
pub(super) async fn probe(mut connection: Connection, key: &str, user: &str) -> Result<(), StoreError> {
    let (script, key) = (Script::new(PROBE), format!("{key}:probe"));
    let mut failed = Vec::new();
    for (verb, text) in [("eval", PROBE), ("evalsha", script.get_hash())] {
        let mut command = redis::cmd(verb);
        command.arg(text).arg(1).arg(&key);
        match command.query_async::<Vec<String>>(&mut connection).await {
            Ok(inside) => failed.extend(inside.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()))),
            Err(error) => failed.push((verb.to_owned(), text_of(&error))),
        }
    }
    judge(&failed, user).map_or(Ok(()), Err)
}

/// The error for a connection that could not be made because of `error`, if something is missing.
pub(super) async fn why_not_connected(topology: &Topology, error: &RedisError) -> Option<StoreError> {
    #[cfg(feature = "cluster")]
    if let Topology::Cluster(cluster) = topology {
        if let Some(error) = cluster.refusal().await {
            return of_refusal(&error, topology.user());
        }
    }
    #[cfg(feature = "sentinel")]
    if matches!(topology, Topology::Sentinels(_))
        && (error.kind() == ErrorKind::InvalidClientConfig || text_of(error).contains("unknown command"))
    {
        return Some(no_sentinel(&text_of(error)));
    }
    of_refusal(error, topology.user())
}

fn of_refusal(error: &RedisError, user: &str) -> Option<StoreError> {
    match error.kind() {
        ErrorKind::AuthenticationFailed => Some(no_authentication(&error.to_string())),
        ErrorKind::MasterNameNotFoundBySentinel => Some(no_sentinel(&error.to_string())),
        _ => judge(&[(String::new(), text_of(error))], user),
    }
}

/// The code and the text of an error reply.
fn text_of(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

/// What is missing by these commands and the replies to them, if something is.
fn judge(failed: &[(String, String)], user: &str) -> Option<StoreError> {
    let said = |what: &str| failed.iter().map(|(_, reply)| reply).find(|reply| reply.contains(what));
    if let Some(reply) = said("NOAUTH").or(said("WRONGPASS")) {
        return Some(no_authentication(reply));
    }
    if let Some(reply) = said("MOVED") {
        let advice =
            "it is one node of a cluster, and another one keeps the store: use `connect_cluster` (feature `cluster`)";
        return Some(setup(Missing::OtherNodes, advice, reply));
    }
    if let Some(reply) = said("cluster support disabled") {
        return Some(setup(Missing::Cluster, "it is no node of a cluster: use `connect`", reply));
    }
    if let Some(reply) = said("unknown command") {
        let advice = "it runs no scripts: if it is a sentinel, use `connect_sentinels` (feature `sentinel`)";
        return Some(setup(Missing::Scripts, advice, reply));
    }
    if let Some(reply) = said("READONLY") {
        let advice = "it is a replica, which accepts no writes: connect to the master, or use `connect_sentinels`";
        return Some(setup(Missing::Master, advice, reply));
    }
    let refused: Vec<_> = failed.iter().filter(|(_, reply)| is_about_rights(reply)).collect();
    let (_, reply) = refused.first()?;
    let keys = refused.iter().any(|(_, reply)| reply.contains("key")).then_some("the keys `tollgate:*`");
    let mut commands: Vec<_> =
        refused.iter().filter(|(_, reply)| !reply.contains("key")).map(|(name, _)| name).collect();
    commands.dedup();
    let commands = commands.iter().filter(|name| !name.is_empty()).map(|name| format!("`{name}`"));
    let lacks = commands.chain(keys.map(str::to_owned)).collect::<Vec<_>>().join(", ");
    let advice = format!("the user `{user}` has no right to {lacks}: run `ACL SETUSER {user} {RIGHTS}`");
    Some(setup(Missing::Rights, &advice, reply))
}

/// Whether Redis 6 or later refuses a command, or a key, to this user.
fn is_about_rights(reply: &str) -> bool {
    ["NOPERM", "The user executing the script", "ACL failure"].iter().any(|sign| reply.contains(sign))
}

fn no_authentication(reply: &str) -> StoreError {
    let advice = "it does not accept this user and password: write them in the URL, `redis://user:password@host/`, with \
                  special characters in percent encoding";
    setup(Missing::Authentication, advice, reply)
}

fn no_sentinel(reply: &str) -> StoreError {
    let advice = "no sentinel at these addresses knows the master: check them, and that the host of the master's URL is the \
                  sentinels' name for it";
    setup(Missing::Sentinel, advice, reply)
}

fn setup(missing: Missing, advice: &str, reply: &str) -> StoreError {
    StoreError::Setup { missing, message: format!("{advice} (it said: {reply})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_replies_of_all_versions_about_rights_name_the_command_or_the_keys() {
        let message = |name: &str, reply: &str| match judge(&[(name.to_owned(), reply.to_owned())], "limits") {
            Some(StoreError::Setup { missing: Missing::Rights, message }) => message,
            other => panic!("{other:?}"),
        };
        for reply in [
            "NOPERM The user executing the script can't run this command or subcommand",
            "ERR The user executing the script can't run this command or subcommand script: 1a, on @user_script:8.",
            "NOPERM ACL failure in script: User limits has no permissions to run the 'hset' command",
        ] {
            assert!(message("hset", reply).contains("no right to `hset`: run `ACL SETUSER limits ~"), "{reply}");
        }
        for reply in [
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "NOPERM No permissions to access a key",
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
        ] {
            assert!(message("eval", reply).contains("no right to the keys `tollgate:*`"), "{reply}");
        }
    }

    #[test]
    fn errors_that_may_pass_are_not_about_the_setup() {
        for reply in
            ["OOM command not allowed", "LOADING Redis is loading", "BUSY Redis is busy", "CLUSTERDOWN", "ERR x"]
        {
            assert_eq!(judge(&[("eval".to_owned(), reply.to_owned())], "limits"), None, "{reply}");
        }
    }
}
