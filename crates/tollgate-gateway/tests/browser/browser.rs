//! Headless Chromium, by chromedriver.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use thirtyfour::common::command::{Command as WebDriverCommand, ExtensionCommand};
use thirtyfour::extensions::cdp::ChromeDevTools;
use thirtyfour::prelude::*;
use thirtyfour::{CapabilitiesHelper, ChromeCapabilities, ChromiumLikeCapabilities};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const FLAGS: [&str; 8] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

pub struct Browser {
    driver: WebDriver,
    /// The browser ends when this is dropped.
    _chromedriver: Child,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub async fn start() -> Self {
        let mut chromedriver =
            Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(chromedriver.stdout.take().unwrap()).lines();
        let port = loop {
            let line = lines.next_line().await.unwrap().expect("it says on which port it is");
            if let Some((_, port)) = line.split_once("successfully on port ") {
                break port.trim_end_matches('.').to_owned();
            }
        };
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let profile = tempfile::tempdir().unwrap();
        let mut wanted = ChromeCapabilities::new();
        for flag in FLAGS {
            wanted.add_arg(flag).unwrap();
        }
        wanted.add_arg(&format!("--user-data-dir={}", profile.path().display())).unwrap();
        wanted
            .insert_base_capability("goog:loggingPrefs".to_owned(), json!({ "browser": "ALL", "performance": "ALL" }));
        let driver = WebDriver::new(format!("http://127.0.0.1:{port}"), wanted).await.unwrap();
        Self { driver, _chromedriver: chromedriver, _profile: profile }
    }

    pub async fn open(&self, url: &str) {
        self.driver.goto(url).await.unwrap();
    }

    pub async fn run(&self, script: &str) -> Value {
        self.driver.execute(script, Vec::new()).await.unwrap().json().clone()
    }

    pub async fn run_with(&self, script: &str, argument: Value) -> Value {
        self.driver.execute(script, vec![argument]).await.unwrap().json().clone()
    }

    /// Waits until the script returns true.
    pub async fn until(&self, what: &str, script: &str) {
        self.until_with(what, script, Value::Null).await;
    }

    pub async fn until_with(&self, what: &str, script: &str, argument: Value) {
        for _ in 0..600 {
            if self.run_with(script, argument.clone()).await == Value::Bool(true) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("never happened: {what}: {script}");
    }

    async fn tell(&self, command: &str, parameters: Value) -> Value {
        ChromeDevTools::new(self.driver.handle.clone()).execute_cdp_with_params(command, parameters).await.unwrap()
    }

    /// Whether the browser asks for less motion.
    pub async fn set_reduced_motion(&self, is_reduced: bool) {
        let value = if is_reduced { "reduce" } else { "no-preference" };
        let features = json!({ "features": [{ "name": "prefers-reduced-motion", "value": value }] });
        self.tell("Emulation.setEmulatedMedia", features).await;
    }

    /// Presses and releases a key.
    pub async fn press(&self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, None),
            "Enter" => (13, Some("\r")),
            " " => (32, Some(" ")),
            _ => panic!("no such key here: {key}"),
        };
        let event = |kind: &str| json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code });
        let mut down = event("keyDown");
        if let Some(text) = text {
            down["text"] = text.into();
        }
        self.tell("Input.dispatchKeyEvent", down).await;
        self.tell("Input.dispatchKeyEvent", event("keyUp")).await;
    }

    /// The processor time that all processes of the browser have taken.
    pub fn cpu_time(&self) -> Duration {
        let driver = self._chromedriver.id().expect("it runs");
        let mut times = BTreeMap::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Ok(id) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
            let Ok(text) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
            // After the name, which may contain spaces: the state, the parent, and at 11 and 12 the times in ticks.
            let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
            let number = |place: usize| fields[place].parse::<u64>().unwrap();
            times.insert(id, (number(1) as u32, number(11) + number(12)));
        }
        let is_below = |id: u32| {
            std::iter::successors(Some(id), |id| times.get(id).map(|(parent, _)| *parent)).any(|id| id == driver)
        };
        let ticks: u64 = times.iter().filter(|(id, _)| **id != driver && is_below(**id)).map(|(_, time)| time.1).sum();
        // Linux reports 100 ticks a second.
        Duration::from_millis(ticks * 10)
    }

    pub async fn resize(&self, width: u32, height: u32, scheme: &str, is_phone: bool) {
        let ratio = if is_phone { 2 } else { 1 };
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": ratio, "mobile": is_phone });
        self.tell("Emulation.setDeviceMetricsOverride", size).await;
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.tell("Emulation.setEmulatedMedia", features).await;
    }

    /// A picture of the whole page, also of the part below the visible one.
    pub async fn picture(&self, path: &Path) {
        let taken =
            self.tell("Page.captureScreenshot", json!({ "captureBeyondViewport": true, "format": "png" })).await;
        std::fs::write(path, BASE64_STANDARD.decode(taken["data"].as_str().unwrap()).unwrap()).unwrap();
    }

    /// The addresses of all requests of the browser.
    pub async fn requests(&self) -> Vec<String> {
        let events =
            self.log("performance").await.into_iter().map(|entry| {
                serde_json::from_str::<Value>(entry["message"].as_str().unwrap()).unwrap()["message"].clone()
            });
        let urls = events.filter_map(|event| match event["method"].as_str() {
            Some("Network.requestWillBeSent") => Some(event["params"]["request"]["url"].clone()),
            Some("Network.webSocketCreated") => Some(event["params"]["url"].clone()),
            _ => None,
        });
        // The browser's own start page.
        urls.map(|url| url.as_str().unwrap().to_owned()).filter(|url| !url.starts_with("chrome")).collect()
    }

    /// The errors and warnings of the console.
    pub async fn complaints(&self) -> Vec<String> {
        let entries = self.log("browser").await.into_iter();
        let bad = entries.filter(|entry| entry["level"] != "INFO" && entry["level"] != "DEBUG");
        bad.map(|entry| entry.to_string()).collect()
    }

    async fn log(&self, kind: &'static str) -> Vec<Value> {
        let command = WebDriverCommand::ExtensionCommand(Box::new(Log(kind)));
        self.driver.handle.cmd(command).await.unwrap().value().unwrap()
    }

    pub async fn close(self) {
        self.driver.quit().await.unwrap();
    }
}

/// The entries of chromedriver's log of `browser` or `performance` since the last call.
#[derive(Debug)]
struct Log(&'static str);

impl ExtensionCommand for Log {
    fn parameters_json(&self) -> Option<Value> {
        Some(json!({ "type": self.0 }))
    }

    fn method(&self) -> reqwest::Method {
        reqwest::Method::POST
    }

    fn endpoint(&self) -> Arc<str> {
        "/se/log".into()
    }
}
