//! Restarts with a state file: no bucket is filled by a restart, and whenever the process is killed, the file is the old
//! state or the new one.

use super::app::limits::state::State;
use super::fixture::*;
use super::process::Process;

use reqwest::StatusCode;
use std::path::{Path, PathBuf};

/// A state file in the folder for tests, which does not exist yet.
fn new_state(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.state", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// Each key has `burst` tokens, and next to none comes back.
fn limits(state: &Path, every: &str, burst: u64) -> String {
    format!(
        "quota = \"100000/s\"\nmax_wait = \"1ms\"\nrate_limit_fields = \"always\"\nstate = {state:?}\n\
         state_every = \"{every}\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1/d, burst {burst}\"\n\
         unlisted = \"by-key\"\n[keys.listed.shop]\nkey = \"the-key-of-shop\"\nquota = \"1/d, burst 4\"\n"
    )
}

async fn ask(process: &Process, key: &str) -> reqwest::Response {
    let request = reqwest::Client::new().get(format!("http://{}/", process.address)).header("x-api-key", key);
    request.send().await.unwrap()
}

/// The remaining tokens of a key after one request.
async fn remaining(process: &Process, key: &str) -> u64 {
    let response = ask(process, key).await;
    assert_eq!(response.status(), StatusCode::OK);
    let fields = response.headers()["ratelimit"].to_str().unwrap();
    let own = fields.split(';').find_map(|part| part.trim().strip_prefix("r=")).unwrap_or_else(|| panic!("{fields}"));
    own.split([',', ' ']).next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_fills_no_bucket() {
    let (_upstream, address) = Upstream::start().await;
    let state = new_state("restart");
    let limits = limits(&state, "1h", 3);
    let process = Process::start("restart", address, &limits);
    process.says("no state yet", 1).await;
    for key in ["a-long-unlisted-key", "a-long-unlisted-key", "the-key-of-shop", "other"] {
        assert_eq!(ask(&process, key).await.status(), StatusCode::OK);
    }
    process.signal("TERM");
    assert!(process.ended().0.success());
    let process = Process::start("restart", address, &limits);
    process.says("restored 4 levels", 1).await;
    let mut statuses = Vec::new();
    for key in ["a-long-unlisted-key", "a-long-unlisted-key", "the-key-of-shop", "new"] {
        statuses.push(ask(&process, key).await.status());
    }
    let ok = StatusCode::OK;
    assert_eq!(statuses, [ok, StatusCode::TOO_MANY_REQUESTS, ok, ok]);
    // Its bucket began with the three tokens of any key, and fills up to four.
    assert_eq!(remaining(&process, "the-key-of-shop").await, 0);
    drop(process);
    std::fs::remove_file(state).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_fills_no_bucket_of_a_rule() {
    let (_upstream, address) = Upstream::start().await;
    let state = new_state("rules");
    let rules = "[[routes]]\npath = \"/reports\"\nquota = \"1/d, burst 4\"\nkey_quota = \"1/d, burst 2\"\n\
                 [[networks]]\ncidr = \"127.0.0.0/8\"\naddress_quota = \"1/d, burst 6\"\n";
    let limits = format!("{}{rules}", limits(&state, "1h", 100));
    let status = async |process: &Process, path: &str, key: &str| {
        let request = reqwest::Client::new().get(format!("http://{}{path}", process.address)).header("x-api-key", key);
        request.send().await.unwrap().status().as_u16()
    };
    let process = Process::start("rules", address, &limits);
    process.says("no state yet", 1).await;
    for (key, expected) in [("ann", 200), ("ann", 200), ("ann", 429), ("bob", 200), ("the-key-of-shop", 200)] {
        assert_eq!(status(&process, "/reports", key).await, expected, "{key}");
    }
    process.signal("TERM");
    assert!(process.ended().0.success());
    let process = Process::start("rules", address, &limits);
    process.says("restored", 1).await;
    // The route has no token left, the address two.
    for (path, expected) in [("/reports", 429), ("/", 200), ("/", 200), ("/", 429)] {
        assert_eq!(status(&process, path, "new").await, expected, "{path}");
    }
    process.signal("TERM");
    assert!(process.ended().0.success());
    // A larger quota of the route leaves that of each key as it is.
    let process =
        Process::start("rules", address, &limits.replace("1/d, burst 4", "9/ms").replace("1/d, burst 6", "9/ms"));
    process.says("restored", 1).await;
    for (key, expected) in [("ann", 429), ("bob", 200), ("bob", 429), ("the-key-of-shop", 200)] {
        assert_eq!(status(&process, "/reports", key).await, expected, "{key}");
    }
    drop(process);
    std::fs::remove_file(state).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_at_any_moment_of_saving_leaves_the_old_state_or_the_new_one() {
    const ROUNDS: usize = 12;
    let (_upstream, address) = Upstream::start().await;
    let state = new_state("killed");
    let limits = limits(&state, "1ms", 1_000_000);
    let (mut highest, mut lowest, mut with_news) = (1_000_000, 1_000_000, 0);
    for round in 0..ROUNDS {
        let process = Process::start("killed", address, &limits);
        // Another thread reads standard error, maybe later than the greeting was read.
        process.says(if round == 0 { "no state yet" } else { "restored" }, 1).await;
        let first = remaining(&process, "a").await + 1;
        assert!((lowest..=highest).contains(&first), "{first} is not in {lowest}..={highest}, round {round}");
        (highest, lowest) = (first, first - 1);
        // Many keys, so that a state is written in more than one piece.
        for key in 0..fastrand::u32(0..40) {
            let _ = ask(&process, &format!("{round}-{key}")).await;
        }
        for _ in 0..fastrand::u32(0..20) {
            lowest = remaining(&process, "a").await;
        }
        tokio::time::sleep(MILLI * fastrand::u32(0..8)).await;
        process.signal("KILL");
        assert!(!process.ended().0.success());
        with_news += usize::from(state.with_extension("state.new").exists());
        let saved = State::read(&state).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(saved.is_some(), "round {round}");
    }
    eprintln!("{with_news} of {ROUNDS} were killed while they wrote");
    // What a killed process left is no obstacle, and a damaged file is told and not used.
    std::fs::write(state.with_extension("state.new"), "half of a st").unwrap();
    let bytes = std::fs::read(&state).unwrap();
    for damaged in [&bytes[..bytes.len() - 1], b"", b"something else entirely"] {
        std::fs::write(&state, damaged).unwrap();
        let process = Process::start("killed", address, &limits);
        process.says("all buckets are full", 1).await;
        assert_eq!(remaining(&process, "a").await, 999_999);
        process.signal("TERM");
        assert!(process.ended().0.success());
        assert!(State::read(&state).unwrap().is_some());
    }
    std::fs::remove_file(state).unwrap();
}

#[test]
fn a_state_that_cannot_be_written_is_told_at_the_start() {
    let address = "127.0.0.1:1".parse().unwrap();
    let missing = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-such-folder/state");
    let said = Process::refused("unwritable", address, &limits(&missing, "1h", 3), 4_096);
    assert!(said.contains("the state cannot be saved to") && said.contains("no-such-folder"), "{said}");
}
