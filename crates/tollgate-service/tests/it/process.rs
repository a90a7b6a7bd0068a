//! The program itself: its arguments, its errors, and its end.

use crate::asked::*;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Output, Stdio};

pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-service"));
    command.env_clear().env("GRPC_PORT", "0").env("PORT", "0").env("HOST", "127.0.0.1").env("GRPC_HOST", "127.0.0.1");
    command
}

/// A file of its own, which is removed in the end.
pub struct File(pub PathBuf);

impl File {
    pub fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tollgate-service-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn check_prints_all_problems_with_their_places() {
    let bad = File::new("bad.yaml", "domain: d\ndescriptors:\n  - {key: k, valu: v}\n  - {value: v}\n");
    let output = program().arg("check").arg(&bad.0).output().unwrap();
    let text = said(&output);
    assert!(
        !output.status.success() && text.contains("did you mean `value`?") && text.contains("2 problems"),
        "{text}"
    );
    assert!(text.contains("3 |   - {key: k, valu: v}\n  |              ^^^^\n"), "{text}");
    let good = File::new(
        "good.yaml",
        "domain: d\ndescriptors:\n  - {key: k, wait: 1s, rate_limit: {unit: day, requests_per_unit: 1}}\n",
    );
    let output = program().arg("check").arg(&good.0).output().unwrap();
    assert!(output.status.success() && said(&output).contains("note: requests wait here"), "{}", said(&output));
}

#[test]
fn what_cannot_start_says_why_in_one_line() {
    let file = File::new("one.yaml", "domain: d\n");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let good = file.0.to_str().unwrap();
    let cases = [
        ("--nonsense", ("PORT", "0"), "there is no option --nonsense"),
        ("/nonexistent/limits.yaml", ("PORT", "0"), "there is no such file or directory: check the path"),
        (good, ("GRPC_PORT", &*port), "is in use: end the other program, or set GRPC_PORT"),
        (good, ("HOST", "192.0.2.1"), "is no address of this machine"),
        (good, ("GRPC_SERVER_USE_TLS", "true"), "GRPC_SERVER_USE_TLS=true: "),
        (good, ("POSTGRES_URL", "mysql://x"), "POSTGRES_URL: write postgres://"),
    ];
    for (argument, (name, value), expected) in cases {
        let output = program().arg(argument).env(name, value).output().unwrap();
        assert!(!output.status.success() && said(&output).contains(expected), "{}", said(&output));
    }
    let output = program().arg(OsStr::from_bytes(b"\xff")).output().unwrap();
    assert!(said(&output).contains("there is no such file"), "{}", said(&output));
    for argument in ["--help", "--version"] {
        assert!(program().arg(argument).output().unwrap().status.success());
    }
}

/// A program that runs, and ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the program, and returns its HTTP address.
pub fn start(command: &mut Command) -> (Running, String) {
    let mut child = Running(command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stderr.take().unwrap()).lines();
    let address = lines.find_map(|line| Some(line.unwrap().split_once("HTTP on ")?.1.trim().to_owned()));
    // What it logs later is read, so that it never waits for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    (child, format!("http://{}", address.expect("it ended")))
}

#[tokio::test]
async fn requests_that_wait_are_answered_before_the_end_and_levels_are_kept() {
    let file = File::new(
        "drain.yaml",
        "domain: d\nhttp: [{k: header X-K}]\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 1, burst: 1, wait: 20s}}]\n",
    );
    let state = File::new("levels", "");
    fs::remove_file(&state.0).unwrap();
    let (mut child, url) = start(program().arg(&file.0).env("STATE_FILE", &state.0));
    let client = reqwest::Client::new();
    let check = || client.get(format!("{url}/check")).header("X-K", "v").send();
    assert_eq!(check().await.unwrap().status(), 200);
    let waiting = tokio::spawn(check());
    sleep(Duration::from_millis(200)).await;
    assert!(Command::new("kill").arg(child.0.id().to_string()).status().unwrap().success());
    assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
    let ended = tokio::task::spawn_blocking(move || child.0.wait().unwrap()).await.unwrap();
    assert!(ended.success() && state.0.exists());
}

#[tokio::test]
async fn the_demo_grants_and_refuses() {
    let (mut child, url) = start(program().arg("--demo").env("PAGE_PORT", "0"));
    for _ in 0..600 {
        let metrics = reqwest::get(format!("{url}/metrics")).await.unwrap().text().await.unwrap();
        if metrics.contains("waited_seconds_count{") && metrics.contains("key1=\"agent\",reason=\"over_limit\"") {
            // Asked to end, it also ends nginx.
            let directory = std::env::temp_dir().join(format!("tollgate-demo-{}", child.0.id()));
            assert!(directory.exists());
            assert!(Command::new("kill").arg(child.0.id().to_string()).status().unwrap().success());
            let ended = tokio::task::spawn_blocking(move || child.0.wait().unwrap()).await.unwrap();
            assert!(ended.success() && !directory.exists());
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("no request waited, or none was refused");
}
