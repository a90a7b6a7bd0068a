//! The gateway as a child process.

use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

pub struct Process {
    child: Child,
    api: String,
    /// The address of the page, with a slash at its end.
    pub page: String,
}

impl Process {
    pub async fn demo() -> Self {
        Self::with(&["--demo"]).await
    }

    pub async fn with(arguments: &[&str]) -> Self {
        let binary = std::env::var("GATEWAY").expect("GATEWAY names the gateway's binary");
        let mut child = Command::new(binary).args(arguments).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let greeting = lines.next_line().await.unwrap().expect("it says where it is");
        // Reads the rest of its output, so that it does not block.
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                println!("{line}")
            }
        });
        let mut addresses = greeting.split("http://").skip(1).map(|part| part.split(['/', ',']).next().unwrap());
        let [api, page] =
            [addresses.next().unwrap(), addresses.next().unwrap()].map(|address| format!("http://{address}/"));
        Self { child, api, page }
    }

    /// Sends `times` requests with `key`.
    pub async fn ask(&self, key: &str, times: usize) {
        let client = reqwest::Client::new();
        for _ in 0..times {
            client.get(&self.api).header("x-api-key", key).send().await.unwrap();
        }
    }

    pub fn terminate(&self) {
        self.signal("TERM");
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        assert!(std::process::Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
    }

    /// Waits for its end. Returns whether it succeeded.
    pub async fn ended(mut self) -> bool {
        self.child.wait().await.unwrap().success()
    }
}
