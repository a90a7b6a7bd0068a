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

/// A file that is looked at.
pub(crate) struct Watch {
    path: PathBuf,
    taken: Taken,
    hang_up: Signal,
}

impl Watch {
    /// Of a file whose `text` is in force. From now on SIGHUP does not end the process.
    pub(crate) fn new(path: PathBuf, text: String) -> io::Result<Self> {
        Ok(Self { path, taken: Taken::new(Ok(text)), hang_up: signal(SignalKind::hangup())? })
    }

    /// Goes on until it is dropped.
    pub(crate) async fn run(self, limits: Arc<Limits>, status: Arc<Status>) {
        let Self { path, mut taken, mut hang_up } = self;
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_told = tokio::select! {
                _ = looks.tick() => false,
                _ = hang_up.recv() => true,
            };
            if let Some(seen) = taken.take(read(&path).await, is_told) {
                put_in_force(&path, seen, &limits, &status);
            }
        }
    }
}

type Seen = Result<String, Problem>;

/// What was taken of a file, and what was seen of it last.
struct Taken {
    last: Seen,
    seen: Seen,
}

impl Taken {
    fn new(last: Seen) -> Self {
        Self { seen: last.clone(), last }
    }

    /// `seen`, if it is new and was seen twice, or if somebody says that it is whole.
    fn take(&mut self, seen: Seen, is_told: bool) -> Option<Seen> {
        let is_settled = seen == self.seen && seen != self.last;
        self.seen = seen;
        if is_told || is_settled {
            self.last = self.seen.clone();
        }
        (is_told || is_settled).then(|| self.seen.clone())
    }
}

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

#[test]
fn what_is_half_written_is_not_taken() {
    let mut taken = Taken::new(Ok("old".to_owned()));
    let mut look = |text: &str, is_told| taken.take(Ok(text.to_owned()), is_told).map(Result::unwrap);
    for (text, expected) in
        [("old", None), ("ne", None), ("new", None), ("new", Some("new")), ("new", None), ("old", None)]
    {
        assert_eq!(look(text, false).as_deref(), expected, "{text}");
    }
    assert_eq!(look("told", true).as_deref(), Some("told"));
    assert_eq!(look("told", false), None);
    assert_eq!(look("told", true).as_deref(), Some("told"), "read again, though it is the same");
}
