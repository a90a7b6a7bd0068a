//! The file of limits, read again whenever it changes, and on SIGHUP.
//!
//! It is looked at twice a second, by its contents: that works on every file system, through links that are exchanged (as
//! Kubernetes does) and for editors that write anew or in place. What was read is taken only if the next look sees the
//! same, so that nobody's half-written file is.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

use super::config::Config;
use super::limits::Limits;
use super::problem::Problem;
use super::status::Status;

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A file, and what was last read of it.
pub(crate) struct Watch {
    path: PathBuf,
    judged: Seen,
    hang_up: Signal,
}

impl Watch {
    /// Of a file whose `text` is in force. From now on SIGHUP does not end the process.
    pub(crate) fn new(path: PathBuf, text: String) -> io::Result<Self> {
        Ok(Self { path, judged: Ok(text), hang_up: signal(SignalKind::hangup())? })
    }

    /// Goes on until it is dropped.
    pub(crate) async fn run(self, limits: Arc<Limits>, status: Arc<Status>) {
        let Self { path, mut judged, mut hang_up } = self;
        let mut before = judged.clone();
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_told = tokio::select! {
                _ = looks.tick() => false,
                _ = hang_up.recv() => true,
            };
            let seen = read(&path).await;
            let is_settled = seen == before && seen != judged;
            before = seen.clone();
            if is_told || is_settled {
                judged = seen.clone();
                put_in_force(&path, seen, &limits, &status);
            }
        }
    }
}

type Seen = Result<String, Problem>;

async fn read(path: &Path) -> Seen {
    tokio::fs::read_to_string(path).await.map_err(|error| Problem::unreadable(path, &error))
}

fn put_in_force(path: &Path, seen: Seen, limits: &Limits, status: &Status) {
    let done = seen.and_then(|text| Config::parse(path, &text)).and_then(|config| limits.change(config, path));
    match &done {
        Ok(()) => eprintln!("gateway: the limits of {} are in force", path.display()),
        Err(problem) => eprintln!("gateway: {problem}\ngateway: the limits stay as they were"),
    }
    status.loaded(done);
}
