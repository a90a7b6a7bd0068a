//! A redis-server of a test's own, on a free port of loopback; it ends with the test. `TOLLGATE_REDIS_SERVER` names another
//! program for it, such as `valkey-server`.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tollgate::RedisLine;

/// What no test takes: whoever waits that long hangs.
pub const FOR_EVER: Duration = Duration::from_secs(180);

fn program() -> OsString {
    std::env::var_os("TOLLGATE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

/// A line whose asks wait for as long as it takes: that a machine is slow is no outage.
pub async fn line(url: &str, name: &str) -> RedisLine {
    let began = Instant::now();
    loop {
        match RedisLine::connect(url, name).await {
            Ok(line) => return line.patience(FOR_EVER),
            Err(error) => assert!(began.elapsed() < FOR_EVER, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Says that Redis is missing and gives `None`; under `TOLLGATE_REDIS=required`, as in `scripts/test`, that is a failure.
pub fn is_installed() -> bool {
    let found = Command::new(program()).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        assert!(std::env::var_os("TOLLGATE_REDIS").is_none(), "redis-server is required and not installed");
        eprintln!("NOT RUN: redis-server is not installed (apt-get install redis-server)");
    }
    found
}

pub struct Server {
    child: Option<Child>,
    port: u16,
    /// The file of options that it may write into, if it wants one.
    file: Option<PathBuf>,
    more: Vec<String>,
    /// Where it may write.
    folder: PathBuf,
}

impl Server {
    /// `None` where Redis is not installed.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    pub fn start_with(more: &[&str]) -> Option<Self> {
        Self::start_by(None, more)
    }

    /// A sentinel that watches a master, which it calls `name`, and is enough to have another one take its place.
    pub fn start_sentinel(name: &str, master: &Self) -> Option<Self> {
        let of = master.port;
        let text = format!(
            "sentinel monitor {name} 127.0.0.1 {of} 1\nsentinel down-after-milliseconds {name} 1000\n\
             sentinel failover-timeout {name} 10000\n"
        );
        Self::start_by(Some(&text), &["--sentinel"])
    }

    fn start_by(text: Option<&str>, more: &[&str]) -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let more: Vec<String> = more.iter().map(|&text| text.to_owned()).collect();
        // Somebody else may take a port that was free: then that server ends at once, and another port is tried.
        for _ in 0..20 {
            let port = free_port();
            let folder = std::env::temp_dir().join(format!("tollgate-redis-{}-{port}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let file = text.map(|text| {
                let file = folder.join("sentinel.conf");
                std::fs::write(&file, text).unwrap();
                file
            });
            let mut server = Self { child: None, port, file, more: more.clone(), folder };
            if server.launch() {
                return Some(server);
            }
        }
        panic!("redis-server does not start on any port");
    }

    fn launch(&mut self) -> bool {
        let port = self.port.to_string();
        let mut command = Command::new(program());
        match &self.file {
            Some(file) => command.arg(file),
            None => command.args(["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]),
        };
        command.args(["--port", &port, "--bind", "127.0.0.1", "--daemonize", "no"]);
        command.args(&self.more).current_dir(&self.folder).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            if self.child.as_mut().unwrap().try_wait().unwrap().is_some() {
                return false;
            }
            if self.is_up() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("redis-server started on port {port} and does not answer");
    }

    fn is_up(&self) -> bool {
        let Ok(client) = redis::Client::open(self.url()) else { return false };
        let Ok(mut connection) = client.get_connection() else { return false };
        redis::cmd("PING").query::<String>(&mut connection).is_ok()
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// A connection of the test's own.
    pub fn client(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// Asks something that is answered by a text.
    pub fn say(&self, words: &[&str]) -> String {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.client()).unwrap()
    }

    /// Has it follow `master`, and waits until it does.
    pub fn follow(&self, master: &Self) {
        self.say(&["REPLICAOF", "127.0.0.1", &master.port.to_string()]);
        let began = Instant::now();
        while !self.is_in_step() {
            assert!(began.elapsed() < FOR_EVER, "the replica does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether it hears what its master does.
    pub fn is_in_step(&self) -> bool {
        self.say(&["INFO", "replication"]).contains("master_link_status:up")
    }

    /// Has it follow nobody any more, and take writes.
    pub fn lead(&self) {
        self.say(&["REPLICAOF", "NO", "ONE"]);
    }

    /// What it knows of a key, in an order of its own; empty if nothing.
    pub fn knows(&self, key: &str) -> Vec<String> {
        let mut client = self.client();
        // For the replica of a cluster, which would name its master instead. No other one knows the word.
        _ = redis::cmd("READONLY").exec(&mut client);
        let mut fields: Vec<(String, String)> = redis::cmd("HGETALL").arg(key).query(&mut client).unwrap();
        fields.sort();
        fields.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    /// Kills it by `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts again where it was, empty.
    pub fn restart(&mut self) {
        self.kill();
        let began = Instant::now();
        while !self.launch() {
            assert!(began.elapsed() < Duration::from_secs(10), "redis-server does not start again on its port");
        }
    }

    /// Stops or continues the process.
    pub fn signal(&self, name: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
