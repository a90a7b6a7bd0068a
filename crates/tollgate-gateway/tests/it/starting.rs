//! The first minute: the commands before there is a file, and with a wrong one.

use super::fixture::*;
use super::process::Process;

use reqwest::StatusCode;
use std::path::PathBuf;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate-gateway")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap() + &String::from_utf8(output.stderr.clone()).unwrap()
}

/// A file in the folder for tests, which does not exist yet.
fn new_file(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.toml", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

#[test]
fn init_writes_a_valid_file_and_replaces_none() {
    let path = new_file("init");
    let file = path.to_str().unwrap();
    let written = run(&["init", file]);
    assert!(written.status.success() && said(&written).contains("tollgate-gateway --config"), "{}", said(&written));
    assert!(std::fs::read_to_string(&path).unwrap().contains("# All requests together"));
    let checked = run(&["check", file]);
    assert!(checked.status.success() && said(&checked).contains("is valid"), "{}", said(&checked));
    std::fs::write(&path, "mine").unwrap();
    let again = run(&["init", file]);
    assert!(again.status.code() == Some(2) && said(&again).contains("exists"), "{}", said(&again));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_mistake_is_shown_with_its_line_and_a_caret() {
    let path = new_file("caret");
    std::fs::write(&path, file("127.0.0.1:1".parse().unwrap(), "quota = \"9/s\"\nmax_wait = \"soon\" # or later\n"))
        .unwrap();
    let checked = run(&["check", path.to_str().unwrap()]);
    let expected = "  |\n5 | max_wait = \"soon\" # or later\n  |            ^^^^^^\n";
    assert!(checked.status.code() == Some(2) && said(&checked).contains(expected), "{}", said(&checked));
    assert!(said(&checked).contains(", line 5: `soon` is not a duration: write one like \"2s\""), "{}", said(&checked));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn it_tells_its_version_and_what_to_do_without_a_file() {
    assert_eq!(said(&run(&["--version"])), format!("tollgate-gateway {}\n", env!("CARGO_PKG_VERSION")));
    let path = new_file("none");
    let missing = run(&["--config", path.to_str().unwrap()]);
    let said = said(&missing);
    assert!(missing.status.code() == Some(2) && said.contains("tollgate-gateway init"), "{said}");
    for (arguments, expected) in [
        (&["--upstream", "http://127.0.0.1:1"][..], "--limit"),
        (&["--upstream", "here", "--limit", "9/s"], "`here` is not an upstream"),
        (&["--upstream", "http://127.0.0.1:1", "--limit", "fast"], "`fast` is no rate"),
        (&["--upstream", "http://127.0.0.1:1", "--limit", "9/s", "--config", "x"], "cannot be used with"),
    ] {
        let output = run(arguments);
        let said = self::said(&output);
        assert!(output.status.code() == Some(2) && said.contains(expected), "{arguments:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_command_limits_each_address() {
    let (upstream, address) = Upstream::start().await;
    let url = format!("http://{address}");
    let anywhere = "127.0.0.1:0";
    let arguments = ["--upstream", &url, "--limit", "1/h, burst 3", "--listen", anywhere, "--admin", anywhere];
    let process = Process::with(&arguments);
    let mut statuses = Vec::new();
    for key in ["a", "b", "c", "d"] {
        let request = reqwest::Client::new().get(format!("http://{}/", process.address)).header("x-api-key", key);
        statuses.push(request.send().await.unwrap().status());
    }
    let ok = StatusCode::OK;
    assert_eq!(statuses, [ok, ok, ok, StatusCode::TOO_MANY_REQUESTS]);
    assert_eq!(upstream.count(), 3);
    process.signal("HUP");
    process.signal("TERM");
    assert!(process.ended().0.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_without_limits_says_so() {
    let (_, address) = Upstream::start().await;
    let url = format!("http://{address}");
    let anywhere = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let run = |more: &[&str]| {
        let limits = ["--upstream", &url, "--limit", "1/h, burst 1"];
        Process::with(&[&limits, &anywhere[..], more].concat())
    };
    let process = run(&["--without-limits"]);
    process.says("no request is limited, and no key is asked for", 1).await;
    for _ in 0..3 {
        assert_eq!(reqwest::get(format!("http://{}/", process.address)).await.unwrap().status(), StatusCode::OK);
    }
    process.signal("TERM");
    assert!(process.ended().0.success());
    let limited = run(&[]);
    limited.signal("TERM");
    limited.says("gateway: ending", 1).await;
    assert_eq!(limited.lines("no request is limited"), 0);
}
