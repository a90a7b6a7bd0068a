//! A redis-server for one test, on a free loopback port; it ends with the test. `TOLLGATE_REDIS_SERVER` names another
//! program for it, such as `valkey-server`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;
use tollgate::distributed::StoreError;
use tollgate_redis::RedisStore;

/// Longer than any test takes on any machine: it only ends a hang.
pub const FOR_EVER: Duration = Duration::from_secs(180);

fn program() -> OsString {
    std::env::var_os("TOLLGATE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into())
}

/// A store with a very long request timeout, so that a slow machine is no outage.
pub async fn open_store(url: &str, name: &str) -> RedisStore {
    in_the_end(|| RedisStore::connect(url, name)).await.answer_timeout(FOR_EVER)
}

/// Waits until the condition is true, for as long as it takes. Other tasks run on other threads meanwhile.
pub fn wait_until(or_else: &str, so: impl Fn() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < FOR_EVER, "{or_else}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Connects, and retries for a while: a machine may be slow.
pub async fn in_the_end<F>(connect: impl Fn() -> F) -> RedisStore
where
    F: Future<Output = Result<RedisStore, StoreError>>,
{
    let began = Instant::now();
    loop {
        match connect().await {
            Ok(store) => return store,
            Err(error) => assert!(began.elapsed() < FOR_EVER, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Prints that Redis is missing and returns false. With `TOLLGATE_REDIS=required`, as in `scripts/test`, that is a
/// failure.
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
    port: Port,
    /// The port on which a node of a cluster talks to the others.
    bus: Option<Port>,
    /// The file of options that the server may write to, if there is one.
    file: Option<PathBuf>,
    more: Vec<String>,
    /// The directory that the server may write to.
    folder: PathBuf,
}

impl Server {
    /// `None` where Redis is not installed.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    pub fn start_with(more: &[&str]) -> Option<Self> {
        Self::start_by(None, more, false)
    }

    /// A node of a cluster, which has a file of its own and a second port.
    pub fn start_node(more: &[&str]) -> Option<Self> {
        let options = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"];
        Self::start_by(None, &[&options[..], more].concat(), true)
    }

    /// A sentinel that monitors a master under the name `name`, and alone can start a failover. Its timeout is long, so
    /// that a slow master on a busy machine does not count as down: see [`Self::fail_over_soon`].
    pub fn start_sentinel(name: &str, master: &Self) -> Option<Self> {
        let of = master.port();
        let text = format!(
            "sentinel monitor {name} 127.0.0.1 {of} 1\nsentinel down-after-milliseconds {name} 60000\n\
             sentinel failover-timeout {name} 10000\n"
        );
        Self::start_by(Some(&text), &["--sentinel"], false)
    }

    /// Makes this sentinel count the master `name` as down as soon as it has not answered for a second.
    pub fn fail_over_soon(&self, name: &str) {
        self.say(&["SENTINEL", "SET", name, "down-after-milliseconds", "1000"]);
    }

    fn start_by(text: Option<&str>, more: &[&str], has_bus: bool) -> Option<Self> {
        if !is_installed() {
            return None;
        }
        let more: Vec<String> = more.iter().map(|&text| text.to_owned()).collect();
        let began = Instant::now();
        loop {
            let (port, bus) = (Port::take(), has_bus.then(Port::take));
            let folder = std::env::temp_dir().join(format!("tollgate-redis-{}-{}", std::process::id(), port.number));
            std::fs::create_dir_all(&folder).unwrap();
            let file = text.map(|text| {
                let file = folder.join("sentinel.conf");
                std::fs::write(&file, text).unwrap();
                file
            });
            let mut server = Self { child: None, port, bus, file, more: more.clone(), folder };
            if server.launch() {
                return Some(server);
            }
            assert!(began.elapsed() < FOR_EVER, "redis-server finds every port in use");
        }
    }

    /// Starts the server and waits until it answers or ends. False if it ended because a port was in use.
    fn launch(&mut self) -> bool {
        let log = self.folder.join("log");
        let output = std::fs::File::create(&log).unwrap();
        let mut command = Command::new(program());
        match &self.file {
            Some(file) => command.arg(file),
            None => command.args(["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]),
        };
        command.args(["--port", &self.port().to_string(), "--bind", "127.0.0.1", "--daemonize", "no"]);
        if let Some(bus) = &self.bus {
            command.args(["--cluster-port", &bus.number.to_string()]);
        }
        command.args(&self.more).current_dir(&self.folder);
        command.stdout(output.try_clone().unwrap()).stderr(output);
        let process = self.child.insert(command.spawn().unwrap()).id();
        let began = Instant::now();
        while self.process() != Some(process) {
            if let Some(status) = self.child.as_mut().unwrap().try_wait().unwrap() {
                let said = std::fs::read_to_string(&log).unwrap();
                assert!(said.contains("Address already in use"), "redis-server ended with {status}: {said}");
                return false;
            }
            assert!(began.elapsed() < FOR_EVER, "redis-server started on port {} and does not answer", self.port());
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// The process that answers on the port.
    pub fn process(&self) -> Option<u32> {
        let mut connection = redis::Client::open(self.url()).ok()?.get_connection_with_timeout(FOR_EVER).ok()?;
        connection.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        let text: String = redis::cmd("INFO").arg("server").query(&mut connection).ok()?;
        text.lines().find_map(|line| line.strip_prefix("process_id:"))?.parse().ok()
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port())
    }

    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// The port on which a node of a cluster talks to the others.
    pub fn bus(&self) -> Option<u16> {
        Some(self.bus.as_ref()?.number)
    }

    /// A connection for the test itself.
    pub fn client(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// Sends a command with a text reply.
    pub fn say(&self, words: &[&str]) -> String {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.client()).unwrap()
    }

    /// Makes this server follow `master`, and waits until it does.
    pub fn follow(&self, master: &Self) {
        self.say(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
        wait_until("the replica does not come up", || self.is_in_step());
    }

    /// Whether the replica receives the writes of its master.
    pub fn is_in_step(&self) -> bool {
        self.say(&["INFO", "replication"]).contains("master_link_status:up")
    }

    /// Makes this server a master, which accepts writes.
    pub fn lead(&self) {
        self.say(&["REPLICAOF", "NO", "ONE"]);
    }

    /// All data of a key, in a fixed order; empty if there is none.
    pub fn knows(&self, key: &str) -> Vec<String> {
        let mut client = self.client();
        // For a replica in a cluster, which would redirect to its master. Other servers do not know the command.
        _ = redis::cmd("READONLY").exec(&mut client);
        let mut fields: Vec<(String, Vec<u8>)> = redis::cmd("HGETALL").arg(key).query(&mut client).unwrap();
        fields.sort();
        fields.into_iter().map(|(name, value)| format!("{name}={}", value.escape_ascii())).collect()
    }

    /// Kills the server by `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts the server again on its port, without data.
    pub fn restart(&mut self) {
        self.kill();
        let began = Instant::now();
        while !self.launch() {
            assert!(began.elapsed() < FOR_EVER, "redis-server does not start again on its port");
        }
    }

    /// Sends a signal that stops or continues the process.
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

/// A loopback port, reserved for as long as this lives.
///
/// A socket that is bound and does not listen keeps other processes from the port. A server can listen there all the
/// same, because it and this socket both allow the address to be reused. Systems other than Linux do not support that;
/// there the port is only free when it is chosen, and a server that finds it in use ends with an error.
struct Port {
    number: u16,
    _socket: Option<TcpSocket>,
}

impl Port {
    fn take() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // Reuse is allowed only after the bind, so the bind proves that the port was free.
        socket.set_reuseaddr(false).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        socket.set_reuseaddr(true).unwrap();
        let number = socket.local_addr().unwrap().port();
        Self { number, _socket: cfg!(target_os = "linux").then_some(socket) }
    }
}
