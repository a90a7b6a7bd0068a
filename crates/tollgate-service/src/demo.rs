//! `--demo`: a sample file, an application behind nginx, and three clients that ask for more than they may have.

use axum::Router;
use axum::routing::any;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const FILE: &str = "\
# Paying and free clients share 50 requests per second, 4 to 1 while they wait, which they do for 2 s at most.
# A crawler, which has no plan, gets 5 per second, and is refused at once.
domain: demo
http:
  - {plan: header X-Plan}
  - {agent: header X-Agent}
descriptors:
  - key: plan
    classes: {paid: 4, free: 1}
    rate_limit: {unit: second, requests_per_unit: 50, burst: 5, wait: 2s}
  - key: agent
    rate_limit: {unit: second, requests_per_unit: 5, burst: 5}
";
const NGINX: &str = include_str!("../contrib/nginx.conf");
/// The header field of each client, and how many connections it has.
const CLIENTS: [(&str, usize); 3] = [("X-Plan: paid", 40), ("X-Plan: free", 40), ("X-Agent: crawler", 2)];

/// What the demo runs beside the service. It ends when this is dropped.
#[derive(Debug)]
pub struct Demo {
    directory: PathBuf,
    nginx: Option<Child>,
}

impl Demo {
    /// Writes the sample file.
    ///
    /// # Errors
    ///
    /// Returns one line if there is no place for temporary files.
    pub fn new() -> Result<Self, String> {
        let directory = std::env::temp_dir().join(format!("tollgate-demo-{}", std::process::id()));
        let demo = Self { directory, nginx: None };
        let written = fs::create_dir_all(&demo.directory).and_then(|()| fs::write(demo.file(), FILE));
        written.map_err(|error| format!("cannot write {}: {error}", demo.directory.display()))?;
        Ok(demo)
    }

    /// Returns the sample file.
    pub fn file(&self) -> PathBuf {
        self.directory.join("limits.yaml")
    }

    /// Starts the application, nginx if it is installed, and the clients.
    ///
    /// # Errors
    ///
    /// Returns one line if a port or a program cannot be had.
    pub async fn start(&mut self, service: SocketAddr) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("the demo cannot start: {error}");
        let application = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = application.local_addr().map_err(failed)?;
        let app = Router::new().fallback(any(async || "hello\n"));
        tokio::spawn(async move { axum::serve(application, app).await });
        let known = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/bin/nginx"].map(Path::new);
        let (target, path) = match known.iter().find(|path| path.exists()) {
            Some(program) => (self.start_nginx(program, service, address).await.map_err(failed)?, "/"),
            None => {
                tracing::info!("nginx is not installed (apt-get install nginx): the clients ask the service itself");
                (service, "/check")
            }
        };
        tracing::info!(
            "three clients send requests to http://{target}{path} by the rules of {}",
            self.file().display()
        );
        for (field, connections) in CLIENTS {
            (0..connections).for_each(|_| drop(tokio::spawn(ask_for_ever(target, path, field))));
        }
        Ok(())
    }

    async fn start_nginx(
        &mut self,
        program: &Path,
        service: SocketAddr,
        application: SocketAddr,
    ) -> std::io::Result<SocketAddr> {
        // nginx takes the port a moment after it is free again.
        let address = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        let own = |name: &str| format!("\n    {name}_temp_path {};", self.directory.join(name).display());
        let own = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(own).concat();
        let config = NGINX
            .replace("127.0.0.1:8080", &service.to_string())
            .replace("127.0.0.1:3000", &application.to_string())
            .replace("listen 8000", &format!("listen {address}"))
            .replace("http {", &format!("http {{{own}"));
        let file = self.directory.join("nginx.conf");
        fs::write(&file, config)?;
        let settings = "daemon off; master_process off; error_log stderr crit; pid nginx.pid;";
        let mut command = Command::new(program);
        command.arg("-p").arg(&self.directory).arg("-c").arg(&file).args(["-g", settings]);
        self.nginx = Some(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?);
        Ok(address)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if let Some(nginx) = &mut self.nginx {
            // It may have ended by itself.
            let _ = nginx.kill();
            let _ = nginx.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Sends one request after the other, and pauses after a refusal or an error.
async fn ask_for_ever(target: SocketAddr, path: &'static str, field: &'static str) {
    loop {
        // An error is a connection that ended: the next one is tried.
        let _ = ask_over_one_connection(target, path, field).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn ask_over_one_connection(target: SocketAddr, path: &str, field: &str) -> std::io::Result<()> {
    let mut stream = BufReader::new(TcpStream::connect(target).await?);
    let request = format!("GET {path} HTTP/1.1\r\nHost: demo\r\n{field}\r\n\r\n");
    loop {
        stream.write_all(request.as_bytes()).await?;
        let (mut line, mut length, mut is_refused, mut is_first) = (String::new(), 0, false, true);
        while stream.read_line(&mut line).await? > 2 {
            let lower = line.to_ascii_lowercase();
            is_refused |= is_first && lower.contains(" 429 ");
            is_first = false;
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            line.clear();
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        if is_refused {
            tokio::time::sleep(Duration::from_millis(100)).await;
        } else if is_first {
            return Ok(());
        }
    }
}
