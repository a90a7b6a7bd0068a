//! Four real processes, one of which is killed.

use crate::server::Server;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tollgate::{Limiter, Quota, RedisLine};

const RATE: u64 = 4_000;
const BURST: u64 = 400;

/// Not a test of its own: what each of the four processes is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node() {
    let Ok(url) = std::env::var("TOLLGATE_TEST_NODE") else { return };
    let line = RedisLine::connect(url, "processes").await.unwrap();
    let quota = Quota::per_second(RATE).burst(BURST).initial(0);
    let limiter = Limiter::builder().quota(quota).shared(line).build().unwrap();
    for _ in 0..100 {
        let limiter = limiter.clone();
        tokio::spawn(async move { while limiter.consume(1).await.is_ok() {} });
    }
    // What it was granted, every 10 ms, until it is killed or nobody listens any more.
    use std::io::Write;
    while writeln!(std::io::stdout(), "granted {}", limiter.snapshot().granted).is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

struct Node {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Node {
    fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "processes::node", "--nocapture", "--test-threads", "1"]);
        let mut child = command.env("TOLLGATE_TEST_NODE", url).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// The last that it said.
    fn granted(mut self) -> u64 {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let (mut line, mut granted) = (String::new(), 0);
        while self.said.read_line(&mut line).unwrap() > 0 {
            if let Some(number) = line.strip_prefix("granted ").filter(|_| line.ends_with('\n')) {
                granted = number.trim().parse().unwrap();
            }
            line.clear();
        }
        granted
    }
}

#[test]
fn when_one_of_four_processes_is_killed_the_others_take_its_share_and_no_token_more() {
    let Some(server) = Server::start() else { return };
    let began = Instant::now();
    let mut nodes: Vec<Node> = (0..4).map(|_| Node::start(&server.url())).collect();
    std::thread::sleep(Duration::from_millis(1_500));
    let first = nodes.remove(0).granted();
    std::thread::sleep(Duration::from_millis(1_500));
    let others: Vec<u64> = nodes.into_iter().map(Node::granted).collect();
    let may = (began.elapsed().as_nanos() * u128::from(RATE) / 1_000_000_000) as u64;
    let total = first + others.iter().sum::<u64>();
    println!("{first} and {others:?}: {total} of {may}");
    assert!(total <= may, "{total} of {may}");
    assert!(first > 0 && others.iter().all(|granted| *granted > first), "they went on: {first} and {others:?}");
}
