//! A redis-server of this program's own, on a free loopback port, with no data on disk but its log.
//! `TOLLGATE_REDIS_SERVER` names another program for it, such as `valkey-server`.

use crate::Failure;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// This only ends a hang: a busy machine may take long to start a process.
const HANGS: Duration = Duration::from_secs(120);

/// The server ends when this is dropped.
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Server {
    pub(crate) fn start() -> Result<Server, Failure> {
        // Another process may take the free port first: then another port is tried.
        let began = Instant::now();
        loop {
            if let Some(server) = Self::start_on(free_port()?)? {
                return Ok(server);
            }
            if began.elapsed() > HANGS {
                return Err("redis-server finds every port in use".into());
            }
        }
    }

    /// `None` if the server ends because the port is in use, or if another process answers there.
    fn start_on(port: u16) -> Result<Option<Server>, Failure> {
        let folder = std::env::temp_dir().join(format!("tollgate-redis-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let program = std::env::var_os("TOLLGATE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let mut command = Command::new(&program);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        let log = folder.join("log");
        let output = std::fs::File::create(&log)?;
        command.current_dir(&folder).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().map_err(|error| {
            _ = std::fs::remove_dir_all(&folder);
            let program = program.display();
            format!("{program} does not start ({error}); on Debian redis-server is in the package of that name")
        })?;
        let mut server = Server { child, folder, port };
        let began = Instant::now();
        while began.elapsed() < HANGS {
            if let Some(status) = server.child.try_wait()? {
                let said = std::fs::read_to_string(&log)?;
                let is_in_use = said.contains("Address already in use");
                return if is_in_use {
                    Ok(None)
                } else {
                    Err(format!("redis-server ended with {status}: {said}").into())
                };
            }
            if let Some(process) = server.process() {
                return Ok((process == server.child.id()).then_some(server));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("redis-server was started on port {port} and does not answer").into())
    }

    /// The process that answers on the port.
    fn process(&self) -> Option<u32> {
        let text = info(&self.url(), "server").ok()?;
        text.lines().find_map(|line| line.strip_prefix("process_id:"))?.parse().ok()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The `INFO` of the Redis at this address.
pub(crate) fn info(url: &str, section: &str) -> Result<String, Failure> {
    Ok(redis::cmd("INFO").arg(section).query(&mut redis::Client::open(url)?.get_connection()?)?)
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
