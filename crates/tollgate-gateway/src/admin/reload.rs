//! Reads the file of limits again whenever it changes, and on SIGHUP.
//!
//! The task reads the contents twice a second. That works on every file system, through links that are replaced (as by
//! Kubernetes), and for editors that replace the file or write in place. A new text is applied only if two reads in a
//! row agree, so that a half-written file is never applied. The files that it names, like the certificate, are read with
//! it, and a change of one of them is a change of the configuration.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

use super::status::Status;
use crate::config::Config;
use crate::config::problem::Problem;
use crate::limits::Limits;

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Watches the file of limits.
pub(crate) struct FileWatcher {
    /// `None` if the limits come from the command line.
    file: Option<WatchedFile>,
    hang_up: Signal,
}

struct WatchedFile {
    path: PathBuf,
    named: NamedFiles,
    taken: Debounce,
}

impl FileWatcher {
    /// Watches a file that has this text. Called before the text is applied: what changes in the files that it names from
    /// then on is a change. From now on SIGHUP does not end the process.
    pub(crate) async fn new(file: Option<(PathBuf, String)>) -> io::Result<Self> {
        let hang_up = signal(SignalKind::hangup())?;
        let Some((path, text)) = file else { return Ok(Self { file: None, hang_up }) };
        let mut named = NamedFiles::default();
        let contents = named.read(&text).await;
        let taken = Debounce::new(Ok(FileContents { text, contents }));
        Ok(Self { file: Some(WatchedFile { path, named, taken }), hang_up })
    }

    /// Runs until it is dropped.
    pub(crate) async fn run(self, limits: Arc<Limits>, status: Arc<Status>) {
        let Self { file, mut hang_up } = self;
        let Some(WatchedFile { path, mut named, mut taken }) = file else { return std::future::pending().await };
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_forced = tokio::select! {
                _ = looks.tick() => false,
                _ = hang_up.recv() => true,
            };
            if let Some(seen) = taken.take(read(&path, &mut named).await, is_forced) {
                apply(&path, seen, &limits, &status);
            }
        }
    }
}

type Seen = Result<FileContents, Problem>;

/// The text of the file, and the contents of the files that it names.
#[derive(Clone, Debug, PartialEq, Default)]
struct FileContents {
    text: String,
    /// `None` for a file that cannot be read.
    contents: Vec<Option<Vec<u8>>>,
}

/// The files that a text names.
#[derive(Default)]
struct NamedFiles {
    text: String,
    files: Vec<PathBuf>,
}

impl NamedFiles {
    async fn read(&mut self, text: &str) -> Vec<Option<Vec<u8>>> {
        if self.text != text {
            *self = Self { text: text.to_owned(), files: Config::named_files(text) };
        }
        let mut contents = Vec::new();
        for file in &self.files {
            contents.push(tokio::fs::read(file).await.ok());
        }
        contents
    }
}

/// The text that was taken last, and the text that was read last.
struct Debounce {
    last: Seen,
    seen: Seen,
}

impl Debounce {
    fn new(last: Seen) -> Self {
        Self { seen: last.clone(), last }
    }

    /// Returns `seen` if it is new and was read twice, or if a signal says that the file is complete.
    fn take(&mut self, seen: Seen, is_forced: bool) -> Option<Seen> {
        let is_settled = seen == self.seen && seen != self.last;
        self.seen = seen;
        if is_forced || is_settled {
            self.last = self.seen.clone();
        }
        (is_forced || is_settled).then(|| self.seen.clone())
    }
}

async fn read(path: &Path, named: &mut NamedFiles) -> Seen {
    let text = tokio::fs::read_to_string(path).await.map_err(|error| Problem::unreadable(path, &error))?;
    let contents = named.read(&text).await;
    Ok(FileContents { text, contents })
}

fn apply(path: &Path, seen: Seen, limits: &Limits, status: &Status) {
    let done = seen.and_then(|seen| Config::parse(path, &seen.text)).and_then(|config| limits.change(config, path));
    match &done {
        Ok(()) => eprintln!("gateway: applied the limits of {}", path.display()),
        Err(problem) => eprintln!("gateway: {problem:#}\ngateway: the limits are unchanged"),
    }
    status.loaded(done);
}

#[tokio::test]
async fn what_changes_after_the_watch_began_is_a_change() {
    let file = |name: &str| std::env::temp_dir().join(format!("tollgate-reload-{}-{name}", std::process::id()));
    let [path, certificate, key] = ["toml", "crt", "key"].map(file);
    let text = format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nupstream = \"http://127.0.0.1:1\"\nquota = \"1/s\"\n\
         max_wait = \"1s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"1/s\"\n[tls]\ncertificate = {certificate:?}\nkey = {key:?}\n"
    );
    std::fs::write(&path, &text).unwrap();
    [&certificate, &key].into_iter().for_each(|file| std::fs::write(file, "old").unwrap());
    let watch = FileWatcher::new(Some((path.clone(), text))).await.unwrap();
    std::fs::write(&certificate, "new").unwrap();
    let WatchedFile { mut named, mut taken, .. } = watch.file.unwrap();
    let mut is_taken = Vec::new();
    for _ in 0..3 {
        is_taken.push(taken.take(read(&path, &mut named).await, false).is_some());
    }
    assert_eq!(is_taken, [false, true, false]);
    [path, certificate, key].iter().for_each(|file| std::fs::remove_file(file).unwrap());
}

#[test]
fn what_is_half_written_is_not_taken() {
    let texts = |text: &str| Ok(FileContents { text: text.to_owned(), ..FileContents::default() });
    let mut taken = Debounce::new(texts("old"));
    let mut look = |text: &str, is_forced| taken.take(texts(text), is_forced).map(|taken| taken.unwrap().text);
    for (text, expected) in
        [("old", None), ("ne", None), ("new", None), ("new", Some("new")), ("new", None), ("old", None)]
    {
        assert_eq!(look(text, false).as_deref(), expected, "{text}");
    }
    assert_eq!(look("told", true).as_deref(), Some("told"));
    assert_eq!(look("told", false), None);
    assert_eq!(look("told", true).as_deref(), Some("told"), "a signal reads the same text again");
}
