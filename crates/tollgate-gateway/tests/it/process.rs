//! The gateway as a child process, which can be sent signals.

use super::fixture::{HANG_LIMIT, MILLI, file};

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

pub(crate) struct Process {
    child: Child,
    file: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// The lines of its standard error so far.
    said: Arc<Mutex<Vec<String>>>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts it with a file of `limits` that is named after `name`.
    pub(crate) fn start(name: &str, upstream: SocketAddr, limits: &str) -> Self {
        Self::run(command(&[]), name, upstream, limits)
    }

    /// Like [`start`](Self::start), with at most this many open files.
    pub(crate) fn limited(name: &str, upstream: SocketAddr, limits: &str, files: u32) -> Self {
        Self::run(with_files(files), name, upstream, limits)
    }

    /// What a process with at most this many open files says that does not start.
    pub(crate) fn refused(name: &str, upstream: SocketAddr, limits: &str, files: u32) -> String {
        let path = write(name, upstream, limits);
        let output = with_files(files).arg("--config").arg(&path).output().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    }

    fn run(mut command: Command, name: &str, upstream: SocketAddr, limits: &str) -> Self {
        let path = write(name, upstream, limits);
        command.arg("--config").arg(&path);
        Self::spawn(command, path)
    }

    /// Starts it with these arguments, and no file.
    pub(crate) fn with(arguments: &[&str]) -> Self {
        let mut command = command(&[]);
        command.args(arguments);
        Self::spawn(command, PathBuf::new())
    }

    fn spawn(mut command: Command, path: PathBuf) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = listen(child.stderr.take().unwrap());
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let greeting = output.by_ref().map(Result::unwrap).find(|line| line.contains("gateway: requests at"));
        let greeting = greeting.unwrap_or_else(|| panic!("it ended: {:?}", said.lock().unwrap()));
        let address = |part: &str| part.split(['/', ',']).next().unwrap().parse().unwrap();
        let mut addresses = greeting.split("://").skip(1).map(address);
        let (address, admin) = (addresses.next().unwrap(), addresses.next().unwrap());
        Self { child, file: path, address, admin, said, output }
    }

    /// From now on it can open no more files than it has.
    pub(crate) fn open_no_more_files(&self) {
        let id = self.child.id();
        let open = std::fs::read_dir(format!("/proc/{id}/fd")).unwrap();
        let numbers: BTreeSet<u32> =
            open.map(|entry| entry.unwrap().file_name().into_string().unwrap().parse().unwrap()).collect();
        // A new file gets the lowest free number.
        let limit = format!("--nofile={}", (0..).find(|number| !numbers.contains(number)).unwrap());
        let set = Command::new("prlimit").args(["--pid", &id.to_string(), &limit]).status();
        assert!(set.unwrap().success());
    }

    /// How many lines contain `part` so far.
    pub(crate) fn lines(&self, part: &str) -> usize {
        self.said.lock().unwrap().iter().filter(|line| line.contains(part)).count()
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Replaces the file at once, as an editor does that never leaves a partial file.
    pub(crate) fn write(&self, upstream: SocketAddr, limits: &str) {
        let other = self.file.with_extension("new");
        std::fs::write(&other, file(upstream, limits)).unwrap();
        std::fs::rename(other, &self.file).unwrap();
    }

    /// Waits for the `times`-th line that contains `part`.
    pub(crate) async fn says(&self, part: &str, times: usize) -> String {
        let began = Instant::now();
        while began.elapsed() < HANG_LIMIT {
            let said = self.said.lock().unwrap().iter().filter(|line| line.contains(part)).nth(times - 1).cloned();
            if let Some(line) = said {
                return line;
            }
            tokio::time::sleep(MILLI).await;
        }
        panic!("no line contains {part:?}: {:?}", self.said.lock().unwrap());
    }

    /// Waits for its end. Returns its exit status and the last line of its standard output.
    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let last = self.output.by_ref().map(Result::unwrap).last().unwrap_or_default();
        (self.child.wait().unwrap(), last)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already, and the file is only a temporary one.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.file);
    }
}

fn command(before: &[&str]) -> Command {
    let program = env!("CARGO_BIN_EXE_tollgate-gateway");
    let Some((first, rest)) = before.split_first() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(rest).arg(program);
    command
}

fn with_files(files: u32) -> Command {
    command(&["prlimit", &format!("--nofile={files}:{files}")])
}

fn write(name: &str, upstream: SocketAddr, limits: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.toml", std::process::id()));
    std::fs::write(&path, file(upstream, limits)).unwrap();
    path
}

fn listen(error: ChildStderr) -> Arc<Mutex<Vec<String>>> {
    let said = Arc::<Mutex<Vec<String>>>::default();
    let hears = Arc::clone(&said);
    std::thread::spawn(move || {
        for line in BufReader::new(error).lines().map_while(Result::ok) {
            hears.lock().unwrap().push(line);
        }
    });
    said
}
