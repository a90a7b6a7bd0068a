//! The access log of the program itself.

use super::fixture::{HANG_LIMIT, MILLI, Upstream, file};
use super::process::Process;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const LIMITS: &str = "quota = \"1000/s\"\nmax_wait = \"0s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1/h, burst 2\"\n\
                      unlisted = \"by-key\"\n[keys.listed.ann]\nkey = \"k-ann\"\n[[routes]]\npath = \"/two\"\ncost = 2\n";

fn place(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.log", std::process::id()))
}

fn logging(path: &Path) -> String {
    format!("access_log = {path:?}\n{LIMITS}")
}

async fn get(address: SocketAddr, path: &str, key: &str) -> u16 {
    let request = reqwest::Client::new().get(format!("http://{address}{path}")).header("x-api-key", key);
    request.send().await.unwrap().status().as_u16()
}

/// Waits until the file has this many lines.
async fn lines(path: &Path, count: usize) -> Vec<Value> {
    let began = Instant::now();
    while began.elapsed() < HANG_LIMIT {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.matches('\n').count() >= count {
            return text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        }
        tokio::time::sleep(MILLI).await;
    }
    panic!("{} never had {count} lines", path.display());
}

#[tokio::test]
async fn each_request_has_a_line_and_the_file_is_opened_again_for_logrotate() {
    let (_upstream, address) = Upstream::start().await;
    let (path, rotated) = (place("access"), place("access.1"));
    let gateway = Process::start("logging", address, &logging(&path));
    assert_eq!(get(gateway.address, "/two?token=secret", "k-ann").await, 200);
    assert_eq!(get(gateway.address, "/two", "k-ann").await, 429);
    assert_eq!(get(gateway.address, "/", "sk-0123456789abcdefgh").await, 200);
    let seen = lines(&path, 3).await;
    let of = |field: &str| seen.iter().map(|line| line[field].clone()).collect::<Vec<_>>();
    assert_eq!(of("path"), ["/two", "/two", "/"]);
    assert_eq!(of("status"), [200, 429, 200]);
    assert_eq!(of("cost"), [2, 2, 1]);
    assert_eq!(of("outcome"), ["answered", "refused_each", "answered"]);
    assert_eq!(of("reason"), [Value::Null, "own_quota".into(), Value::Null]);
    assert_eq!(of("complete"), [true, true, true]);
    assert_eq!((&seen[0]["bytes"], &seen[0]["method"], &seen[0]["client"]), (&5.into(), &"GET".into(), &"ann".into()));
    assert!(seen[0]["upstream_ms"].is_number() && seen[1]["upstream_ms"].is_null() && seen[1]["wait_ms"].is_number());
    assert!(seen[2]["client"].as_str().unwrap().starts_with("key:"));
    let all = std::fs::read_to_string(&path).unwrap();
    assert!(!all.contains("k-ann") && !all.contains("sk-0") && !all.contains("secret"), "{all}");

    std::fs::rename(&path, &rotated).unwrap();
    gateway.signal("HUP");
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < HANG_LIMIT, "it was never opened again");
        tokio::time::sleep(MILLI).await;
    }
    assert_eq!(get(gateway.address, "/two", "k-ann").await, 429);
    assert_eq!(lines(&path, 1).await.len(), 1);
    assert_eq!(lines(&rotated, 3).await.len(), 3);

    // What was answered before the shutdown is in the file after it.
    for _ in 0..20 {
        get(gateway.address, "/two", "k-ann").await;
    }
    gateway.signal("TERM");
    assert!(gateway.ended().0.success());
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 21);
    [path, rotated].iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

#[tokio::test]
async fn a_log_that_cannot_be_written_is_reported_and_holds_up_no_request() {
    let (_upstream, address) = Upstream::start().await;
    let gateway = Process::start("full", address, &logging(Path::new("/dev/full")));
    for expected in [200, 200, 429] {
        assert_eq!(get(gateway.address, "/", "k-ann").await, expected);
    }
    gateway.says("the access log cannot be written to /dev/full", 1).await;
    let text = reqwest::get(format!("http://{}/metrics", gateway.admin)).await.unwrap().text().await.unwrap();
    assert!(text.contains("gateway_access_lines_total{result=\"written\"} 0"), "{text}");
    assert!(!text.contains("gateway_access_lines_total{result=\"failed\"} 0"), "{text}");
}

#[tokio::test]
async fn the_standard_output_has_the_lines_of_the_log_and_nothing_else() {
    let (_upstream, address) = Upstream::start().await;
    let path = place("stdout");
    std::fs::write(&path, file(address, &format!("access_log = \"stdout\"\naccess_log_query = true\n{LIMITS}")))
        .unwrap();
    let mut gateway = Command::new(env!("CARGO_BIN_EXE_tollgate-gateway"))
        .arg("--config")
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(gateway.stderr.take().unwrap()).lines().map(Result::unwrap);
    let greeting = said.find(|line| line.contains("gateway: requests at")).unwrap();
    let listens = greeting.split("http://").nth(1).unwrap().split([',', '/']).next().unwrap().parse().unwrap();
    assert_eq!(get(listens, "/a?b", "k-ann").await, 200);
    assert!(Command::new("kill").arg(gateway.id().to_string()).status().unwrap().success());
    assert!(said.any(|line| line.contains("ended; came=1 answered=1")));
    let mut output = String::new();
    gateway.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(gateway.wait().unwrap().success());
    let line: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&line["path"], &line["status"]), (&"/a?b".into(), &200.into()));
    std::fs::remove_file(&path).unwrap();
}

/// The query is logged because the file asks for it; the key in it is not.
#[tokio::test]
async fn a_key_in_the_query_is_never_in_the_log() {
    let (_upstream, address) = Upstream::start().await;
    let path = place("query-key");
    let limits = "quota = \"1000/s\"\nmax_wait = \"0s\"\n[keys]\nquery = \"api_key\"\nquota = \"1/h, burst 2\"\n\
                  unlisted = \"by-key\"\n[[routes]]\npath = \"/two\"\ncost = 2\nquota = \"1/h, burst 2\"\n";
    let file = format!("access_log = {path:?}\naccess_log_query = true\n{limits}");
    let gateway = Process::start("query-log", address, &file);
    assert_eq!(get(gateway.address, "/two?page=2&api_key=sk-secret-1", "").await, 200);
    assert_eq!(get(gateway.address, "/two?page=3&api_key=sk-secret-2", "").await, 429);
    let seen = lines(&path, 2).await;
    let of = |field: &str| seen.iter().map(|line| line[field].clone()).collect::<Vec<_>>();
    assert_eq!(of("path"), ["/two?page=2&...", "/two?page=3&..."]);
    assert_eq!(of("limit"), [Value::Null, "route /two".into()]);
    assert_eq!(of("reason"), [Value::Null, "rule_quota".into()]);
    assert!(!std::fs::read_to_string(&path).unwrap().contains("secret"));
}
