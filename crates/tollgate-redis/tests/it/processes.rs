//! Real processes, one of which is killed or stands still.

use super::server::{FOR_EVER, Server, open_store};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tollgate::{Limiter, Quota};

const RATE: u64 = 4_000;
const BURST: u64 = 400;

/// Not a test of its own: the code of each process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node() {
    let Ok(url) = std::env::var("TOLLGATE_TEST_NODE") else { return };
    let store = open_store(&url, "processes").await;
    let quota = Quota::per_second(RATE).burst(BURST).initial(0);
    let limiter = Limiter::builder().quota(quota).distributed(store).build().unwrap();
    for _ in 0..100 {
        let limiter = limiter.clone();
        tokio::spawn(async move { while limiter.consume(1).await.is_ok() {} });
    }
    // Reports its grants every 10 ms, until it is killed or its reader has ended.
    use std::io::Write;
    while writeln!(std::io::stdout(), "granted {}", limiter.snapshot().granted).is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

struct Node {
    child: Child,
    said: BufReader<ChildStdout>,
    granted: u64,
}

impl Node {
    fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "processes::node", "--nocapture", "--test-threads", "1"]);
        let mut child = command.env("TOLLGATE_TEST_NODE", url).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said, granted: 0 }
    }

    /// Reads the next report. False if there are no more.
    fn listen(&mut self) -> bool {
        let mut line = String::new();
        if self.said.read_line(&mut line).unwrap() == 0 {
            return false;
        }
        if let Some(number) = line.strip_prefix("granted ").filter(|_| line.ends_with('\n')) {
            self.granted = number.trim().parse().unwrap();
        }
        true
    }

    /// Reads until this many tokens were granted.
    fn comes_to(&mut self, tokens: u64) {
        let began = Instant::now();
        while self.granted < tokens {
            assert!(self.listen() && began.elapsed() < FOR_EVER, "{} of {tokens}", self.granted);
        }
    }

    /// Sends a signal that stops or continues the process.
    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Kills the process. Returns its last reported number.
    fn end(mut self) -> u64 {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        while self.listen() {}
        self.granted
    }
}

/// Also of a process that stands still.
impl Drop for Node {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn when_one_of_four_processes_is_killed_the_others_take_its_share_and_no_token_more() {
    let Some(server) = Server::start() else { return };
    let began = Instant::now();
    let mut nodes: Vec<Node> = (0..4).map(|_| Node::start(&server.url())).collect();
    nodes.iter_mut().for_each(|node| node.comes_to(1_000));
    let first = nodes.remove(0).end();
    // As many again, which is more than the killed process ever got.
    nodes.iter_mut().for_each(|node| node.comes_to(node.granted.max(first) + 1_000));
    let others: Vec<u64> = nodes.into_iter().map(Node::end).collect();
    let may = (began.elapsed().as_nanos() * u128::from(RATE) / 1_000_000_000) as u64;
    let total = first + others.iter().sum::<u64>();
    println!("{first} and {others:?}: {total} of {may}");
    assert!(total <= may, "{total} of {may}");
}

/// It continues with what is left of its lease, of which the time has passed.
#[test]
fn a_process_that_stood_still_is_served_again_and_the_two_get_no_token_more() {
    let Some(server) = Server::start() else { return };
    let began = Instant::now();
    let mut nodes = [Node::start(&server.url()), Node::start(&server.url())];
    nodes.iter_mut().for_each(|node| node.comes_to(1_000));
    nodes[0].signal("-STOP");
    // Three seconds of the whole rate, which is longer than a lease.
    let three_seconds = nodes[1].granted + 3 * RATE;
    nodes[1].comes_to(three_seconds);
    nodes[0].signal("-CONT");
    nodes.iter_mut().for_each(|node| node.comes_to(node.granted + 2_000));
    let granted = nodes.map(Node::end);
    let may = (began.elapsed().as_nanos() * u128::from(RATE) / 1_000_000_000) as u64;
    println!("{granted:?} of {may}");
    assert!(granted.iter().sum::<u64>() <= may, "{granted:?} of {may}");
}
