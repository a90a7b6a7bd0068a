//! A redis-server for one test, on a free port of the loopback interface. It ends with the test.

use super::fixture::{HANG_LIMIT, MILLI};

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

pub(crate) struct Redis {
    child: Option<Child>,
    port: u16,
}

impl Redis {
    /// `None` if Redis is not installed. With `TOLLGATE_REDIS=required`, as in `scripts/test`, that is a failure.
    pub(crate) fn start() -> Option<Self> {
        let mut redis = Self::stopped()?;
        redis.run();
        Some(redis)
    }

    /// A server that does not run yet.
    pub(crate) fn stopped() -> Option<Self> {
        let found = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_ok();
        if !found {
            assert!(std::env::var_os("TOLLGATE_REDIS").is_none(), "redis-server is required and not installed");
            eprintln!("NOT RUN: redis-server is not installed (apt-get install redis-server)");
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Some(Self { child: None, port })
    }

    /// Starts it, without data, and waits until it answers.
    pub(crate) fn run(&mut self) {
        let port = self.port.to_string();
        let options = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        self.child = Some(Command::new("redis-server").args(options).stdout(Stdio::null()).spawn().unwrap());
        let began = Instant::now();
        while !self.answers() {
            assert!(began.elapsed() < HANG_LIMIT, "redis-server does not answer on port {port}");
            std::thread::sleep(MILLI);
        }
    }

    fn answers(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let mut pong = [0; 5];
        stream.write_all(b"PING\r\n").is_ok() && stream.read_exact(&mut pong).is_ok() && pong == *b"+PONG"
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
