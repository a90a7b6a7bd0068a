//! A redis-server of a test's own, on a free port of loopback; it ends with the test.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Says that Redis is missing and gives `None`; under `TOLLGATE_REDIS=required`, as in `scripts/test`, that is a failure.
pub fn is_installed() -> bool {
    let found = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        assert!(std::env::var_os("TOLLGATE_REDIS").is_none(), "redis-server is required and not installed");
        eprintln!("NOT RUN: redis-server is not installed (apt-get install redis-server)");
    }
    found
}

pub struct Server {
    child: Option<Child>,
    port: u16,
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
        if !is_installed() {
            return None;
        }
        let more: Vec<String> = more.iter().map(|&text| text.to_owned()).collect();
        // Somebody else may take a port that was free: then that server ends at once, and another port is tried.
        for _ in 0..20 {
            let port = free_port();
            let folder = std::env::temp_dir().join(format!("tollgate-redis-{}-{port}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let mut server = Self { child: None, port, more: more.clone(), folder };
            if server.launch() {
                return Some(server);
            }
        }
        panic!("redis-server does not start on any port");
    }

    fn launch(&mut self) -> bool {
        let port = self.port.to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"]);
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
