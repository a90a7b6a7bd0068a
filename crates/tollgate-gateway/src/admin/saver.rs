//! Writes the state file every `state_every` and at the shutdown: to a temporary file beside it, which is synced and then
//! renamed. So the file is the old state or the new one, whenever the process or the machine stops.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::limits::Limits;
use crate::limits::state::write;
use crate::telemetry::log;

/// Saves the state of the limits to a file.
#[derive(Clone)]
pub(crate) struct Saver {
    limits: Arc<Limits>,
    path: Arc<Path>,
    /// Locked while the file is written: two writers would share the temporary file.
    one_at_a_time: Arc<Mutex<()>>,
}

impl Saver {
    pub(crate) fn new(limits: Arc<Limits>, path: &Path) -> Self {
        Self { limits, path: path.into(), one_at_a_time: Arc::default() }
    }

    /// Saves now. Returns when the file is on the disk.
    pub(crate) fn save(&self) -> io::Result<()> {
        let _one_at_a_time = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let temporary = temporary(&self.path);
        // It contains addresses, and digests of keys with their secret.
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        let mut file = BufWriter::new(file);
        write(&mut file, &self.limits)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }

    /// Saves every `every`, until it is dropped. A failure is logged, and the file stays as it is.
    pub(crate) async fn run(self, every: Duration) {
        let mut turns = tokio::time::interval(every);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        turns.tick().await;
        loop {
            turns.tick().await;
            let saver = self.clone();
            if let Ok(Err(error)) = tokio::task::spawn_blocking(move || saver.save()).await {
                log::STATE.line(format_args!("{}", self.failed(&error)));
            }
        }
    }

    pub(crate) fn failed(&self, error: &io::Error) -> String {
        format!("the state cannot be saved to {}: {error}", self.path.display())
    }
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}
