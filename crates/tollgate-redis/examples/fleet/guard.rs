//! The guard: a process of its own, out of reach of Ctrl-C, that ends Redis when its input ends. The parent holds the
//! other end of that input, and the system closes it however the parent ends.

use crate::Failure;
use crate::server::Server;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// Runs in the guard process.
pub(crate) fn run() -> Result<(), Failure> {
    let server = Server::start()?;
    println!("{}", server.url());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Runs in the parent. Redis ends when this is dropped.
pub(crate) struct Guard {
    child: Child,
    url: String,
}

impl Guard {
    pub(crate) fn start() -> Result<Guard, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--guard").stdin(Stdio::piped()).stdout(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut guard = Guard { child: command.spawn()?, url: String::new() };
        let answers = guard.child.stdout.take().expect("the output is piped");
        BufReader::new(answers).read_line(&mut guard.url)?;
        guard.url.truncate(guard.url.trim_end().len());
        // The guard has printed the error already.
        if guard.url.is_empty() { Err("there is no Redis".into()) } else { Ok(guard) }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        _ = self.child.wait();
    }
}
