//! A PostgreSQL server for one test, on a free loopback port, in a temporary directory; it ends with the test.

use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tollgate_postgres::{PostgresStore, migrate, pool};

/// Longer than any test takes on any machine: it only ends a hang.
pub const FOR_EVER: Duration = Duration::from_secs(180);

/// The directory of `initdb` and `postgres`, which Debian does not put on the path.
fn programs() -> Option<PathBuf> {
    let said = Command::new("pg_config").arg("--bindir").output().ok();
    let said = said.map(|said| PathBuf::from(String::from_utf8_lossy(&said.stdout).trim()));
    let mut all: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.flatten().map(|version| version.path().join("bin")).collect())
        .unwrap_or_default();
    all.sort();
    all.extend(said);
    all.into_iter().rev().find(|folder| folder.join("initdb").exists())
}

/// Prints that PostgreSQL is missing and returns `None`. With `TOLLGATE_POSTGRES=required`, as in `scripts/test`, that is
/// a failure.
fn find() -> Option<PathBuf> {
    let found = programs();
    if found.is_none() {
        assert!(std::env::var_os("TOLLGATE_POSTGRES").is_none(), "PostgreSQL is required and not installed");
        eprintln!("NOT RUN: PostgreSQL is not installed (apt-get install postgresql)");
    }
    found
}

fn id(option: &str, user: &str) -> Option<u32> {
    let said = Command::new("id").args([option, user]).stderr(Stdio::null()).output().ok()?;
    String::from_utf8(said.stdout).ok()?.trim().parse().ok()
}

/// The user and group of the server. It refuses to run as root.
fn owner() -> Option<(u32, u32)> {
    let me = Command::new("id").arg("-u").output().unwrap().stdout;
    if String::from_utf8_lossy(&me).trim() != "0" {
        return None;
    }
    let of = |user| Some((id("-u", user)?, id("-g", user)?));
    Some(of("postgres").or_else(|| of("nobody")).expect("a user other than root"))
}

pub struct Server {
    child: Option<Child>,
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
}

impl Server {
    /// A server with the migration. `None` where PostgreSQL is not installed.
    pub async fn start() -> Option<Self> {
        let server = Self::start_bare().await?;
        migrate(&pool(&server.address()).unwrap()).await.unwrap();
        Some(server)
    }

    /// A server without the migration.
    pub async fn start_bare() -> Option<Self> {
        let programs = find()?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = std::env::temp_dir().join(format!("tollgate-postgres-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        if let Some((user, group)) = owner() {
            chown(&folder, Some(user), Some(group)).unwrap();
        }
        let mut server = Self { child: None, programs, folder, port };
        let made =
            server.command("initdb").args(["-U", "owner", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        server.restart().await;
        Some(server)
    }

    /// A command on the data directory.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.arg("-D").arg(self.data()).current_dir(&self.folder).stdin(Stdio::null());
        if let Some((user, group)) = owner() {
            command.uid(user).gid(group);
        }
        command
    }

    fn data(&self) -> PathBuf {
        Path::new(&self.folder).join("data")
    }

    /// The id of the server's first process, the parent of all others.
    #[allow(dead_code, reason = "for the bench `asks`")]
    pub fn process(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Sends a signal that stops or continues all its processes.
    #[allow(dead_code, reason = "no bench does that")]
    pub fn signal(&self, name: &str) {
        let first = self.process();
        let others = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap();
        let ids = others.split_whitespace().map(str::to_owned).chain([first.to_string()]);
        assert!(Command::new("kill").arg(name).args(ids).status().unwrap().success());
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self) -> String {
        self.address_of("owner")
    }

    pub fn address_of(&self, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/postgres", self.port)
    }

    /// Ends the server without a checkpoint, as a crash would: connections are cut off.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            _ = Command::new("kill").args(["-QUIT", &child.id().to_string()]).status();
            child.wait().unwrap();
        }
    }

    /// Starts the server on its port, with the data that it had.
    pub async fn restart(&mut self) {
        self.restart_with(&[]).await;
    }

    /// Starts the server on its port with further options, and with the data that it had.
    pub async fn restart_with(&mut self, options: &[&str]) {
        self.stop();
        let port = self.port.to_string();
        let mut command = self.command("postgres");
        command.args(["-p", &port, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        command.args(["-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "autovacuum=off"]);
        command.args(options);
        self.child = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let began = Instant::now();
        while self.try_say("SELECT 1").await.is_err() {
            assert!(began.elapsed() < FOR_EVER, "the server does not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Runs statements as the owner of the database.
    pub async fn say(&self, text: &str) {
        self.try_say(text).await.unwrap();
    }

    async fn try_say(&self, text: &str) -> Result<(), String> {
        let pool = pool(&self.address()).unwrap();
        let connection = pool.get().await.map_err(|error| error.to_string())?;
        connection.batch_execute(text).await.map_err(|error| error.to_string())
    }

    /// A number that a query returns.
    pub async fn count(&self, text: &str) -> i64 {
        pool(&self.address()).unwrap().get().await.unwrap().query_one(text, &[]).await.unwrap().get(0)
    }

    /// A store with a very long timeout, so that a slow machine is no outage.
    pub async fn store(&self, name: &str) -> PostgresStore {
        let pool = pool(&self.address()).unwrap();
        PostgresStore::lazy(pool, name).unwrap().answer_timeout(FOR_EVER)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}
