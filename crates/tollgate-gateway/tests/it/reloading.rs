//! Changes of the limits while requests are served.

use super::app::config::Config;
use super::app::request::client::Client;
use super::app::request::name::Name;
use super::fixture::*;
use super::process::Process;

use reqwest::StatusCode;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinSet;
use tollgate::Quota;

const KEYS: &str = "[keys]\nheader = \"x-api-key\"\nquota = \"100000/s\"\nunlisted = \"by-key\"\n";

fn limits(quota: &str) -> String {
    format!("quota = \"{quota}\"\nin_flight = 40\nmax_wait = \"1h\"\n{KEYS}")
}

/// Sends requests without pause from `clients` clients until stopped, and counts the responses. Each must be a 200.
struct Load {
    stop: Arc<AtomicBool>,
    clients: JoinSet<usize>,
}

impl Load {
    fn start(process: &Process, clients: usize) -> Self {
        let (stop, address) = (Arc::new(AtomicBool::new(false)), process.address);
        let client = {
            let stop = Arc::clone(&stop);
            move || {
                let (stop, client) = (Arc::clone(&stop), reqwest::Client::new());
                async move {
                    let mut answered = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let response = client.get(format!("http://{address}/")).header("x-api-key", "a").send().await;
                        let response = response.expect("no request is lost");
                        assert_eq!(response.status(), StatusCode::OK);
                        assert_eq!(response.text().await.expect("no body is cut off"), "hello");
                        answered += 1;
                    }
                    answered
                }
            }
        };
        Self { stop, clients: (0..clients).map(|_| client()).collect() }
    }

    async fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.join_all().await.into_iter().sum()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_and_changes_of_the_file_under_load_lose_no_request() {
    let (upstream, address) = Upstream::start().await;
    let process = Process::start("under-load", address, &limits("500/s, burst 50"));
    let load = Load::start(&process, 60);
    let mut loads = 0;
    for round in 0..4 {
        process.write(address, &limits(["2000/s", "300/s, burst 5"][round % 2]));
        // The gateway notices the change by itself, within a second.
        loads += 1;
        process.says("applied the limits", loads).await;
        process.write(address, &limits(["700/s", "900/s, burst 100"][round % 2]));
        process.signal("HUP");
        loads += 1;
        process.says("applied the limits", loads).await;
        // A wrong file changes nothing.
        process.write(address, &limits("none"));
        process.signal("HUP");
        process.says("the limits are unchanged", round + 1).await;
    }
    let before = upstream.count();
    until("more requests are served", || upstream.count() > before + 50).await;
    let answered = load.stop().await;
    assert_eq!(answered, upstream.count());
    process.signal("TERM");
    let (status, last) = process.ended();
    assert!(status.success(), "{status}");
    assert!(last.contains(&format!("came={answered} answered={answered} ")), "{last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_file_is_refused_with_its_line_and_the_old_limits_hold() {
    let (upstream, address) = Upstream::start().await;
    let process = Process::start("malformed", address, &limits("1/h, burst 3").replace("1h", "0s"));
    let client = reqwest::Client::new();
    let status = async || {
        let request = client.get(format!("http://{}/", process.address)).header("x-api-key", "a");
        request.send().await.unwrap().status()
    };
    assert_eq!(status().await, StatusCode::OK);
    process.write(address, &limits("1/h, burst 30").replace("in_flight = 40", "in_flight = \"many\""));
    let said = process.says("line ", 1).await;
    assert!(said.contains(".toml, line 5: invalid type: string \"many\", expected u64"), "{said}");
    assert_eq!([status().await, status().await], [StatusCode::OK; 2]);
    assert_eq!(status().await, StatusCode::TOO_MANY_REQUESTS, "three at once, not thirty");
    assert_eq!(upstream.count(), 3);
    // The page shows the error too.
    let events = client.get(format!("http://{}/events", process.admin));
    let mut events = events.send().await.unwrap();
    let mut seen = String::new();
    while !seen.contains("invalid type") {
        seen.push_str(&String::from_utf8_lossy(&events.chunk().await.unwrap().expect("events go on")));
    }
    // A setting that only a restart can change is reported as such.
    process.write(address, &limits("1/h, burst 30").replace("max_wait", "max_waiting = 7\nmax_wait"));
    process.signal("HUP");
    let said = process.says("line 6: `max_waiting` is read at the start only: restart the gateway", 1).await;
    assert!(said.contains(".toml, "), "{said}");
}

#[tokio::test]
async fn waiting_requests_are_retimed_and_none_is_lost() {
    let (upstream, address) = Upstream::start().await;
    let fixture = TestGateway::before(upstream, address, &limits("1/s, burst 1")).await;
    let requests: Vec<_> = (0..11).map(|_| fixture.send("/", "a")).collect();
    until("all wait", || fixture.waiting() == (0, 10)).await;
    let faster = file(address, &limits("10/s, burst 1"));
    let path = Path::new("gateway.toml");
    fixture.gateway.limits.change(Config::parse(path, &faster).unwrap(), path).unwrap();
    fixture.advance(SECOND / 2);
    until("served", || fixture.upstream.count() == 6).await;
    short_pause().await;
    assert_eq!((fixture.upstream.count(), fixture.waiting()), (6, (0, 5)));
    fixture.advance(SECOND / 2);
    for request in requests {
        assert_eq!(request.await.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_change_is_applied_as_a_whole_or_not_at_all() {
    let with = |max_keys: u64, quotas: &[(&str, &str)]| {
        let listed =
            quotas.iter().map(|(name, quota)| format!("[keys.listed.{name}]\nkey = \"{name}\"\nquota = \"{quota}\"\n"));
        format!(
            "quota = \"9/s\"\nmax_wait = \"1h\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1/s, burst 5\"\n\
             unlisted = \"by-key\"\nmax_keys = {max_keys}\n{}",
            listed.collect::<String>()
        )
    };
    let fixture = TestGateway::new(&with(4, &[("ann", "5/s"), ("bob", "6/s")])).await;
    let limits = &fixture.gateway.limits;
    let of = |name: &str| limits.clients.listed.available(&Client::Listed(Name::new(name)));
    // Unlisted keys take no space from listed ones.
    for key in ["v", "w", "x", "y", "z"] {
        assert_eq!(fixture.get("/", key).send().await.unwrap().status(), StatusCode::OK);
    }
    change(&fixture, &with(4, &[("bob", "3/s"), ("eve", "7/s")])).unwrap();
    fixture.advance(10 * SECOND);
    assert_eq!([of("ann"), of("bob"), of("eve")], [5, 3, 7]);
    change(&fixture, &with(4, &[("bob", "3/s"), ("eve", "7/s")]).replace("1/s, burst 5", "1/s, burst 2")).unwrap();
    assert_eq!([of("ann"), of("bob"), of("eve")], [2, 3, 7], "a key with a quota of its own keeps it");
    let overflow = |fixture: &TestGateway| fixture.gateway.limits.clients.listed.quotas(&Client::Overflow);
    assert_eq!(overflow(&fixture), Quota::per_second(1).burst(2).into());
    let all = change(&fixture, &with(5, &[])).unwrap_err();
    assert!(
        all.ends_with("`keys.max_keys` is read at the start only: restart the gateway, or restore the old value"),
        "{all}"
    );
    let cap = change(&fixture, &with(4, &[]).replace("max_keys", "in_flight = 3\nmax_keys")).unwrap_err();
    assert!(cap.contains("`keys.in_flight` is read at the start only"), "{cap}");
    assert_eq!([of("ann"), of("bob"), of("eve")], [2, 3, 7], "nothing has changed");
    change(&fixture, &with(4, &[]).replace("max_keys", "overflow = \"3/s\"\nmax_keys")).unwrap();
    assert_eq!(overflow(&fixture), Quota::per_second(3).into());
    // The common cap can be removed and added.
    let capped = |cap: &str| with(4, &[]).replace("max_wait", &format!("{cap}max_wait"));
    change(&fixture, &capped("in_flight = 3\n")).unwrap();
    assert_eq!(limits.all.available(), 3);
    change(&fixture, &capped("")).unwrap();
    assert_eq!(limits.all.available(), 9);
}
