//! Open files: how many the system allows, and some in reserve.

use std::fs::File;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, getrlimit, setrlimit};

/// The number of connections if the file does not say it.
const DEFAULT_CONNECTIONS: usize = 10_000;
/// A connection of a client, and the one to the upstream that its request uses.
const PER_CONNECTION: u64 = 2;
/// The connections of the operator, the listeners, the configuration file, the files in reserve, and the runtime's.
const OTHERS: u64 = 200;

/// Raises the limit of open files to what `connections` need, as far as the system allows. Returns the number of
/// connections: `connections`, or by default as many as fit. The error is what to tell the operator.
pub(crate) fn raise_limit(connections: Option<usize>) -> Result<usize, String> {
    let wanted = connections.unwrap_or(DEFAULT_CONNECTIONS);
    let needed = PER_CONNECTION * wanted as u64 + OTHERS;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
        // If this fails, the old limit counts.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    let Some(allowed) = getrlimit(Resource::Nofile).current.filter(|allowed| *allowed < needed) else {
        return Ok(wanted);
    };
    let fitting = (allowed.saturating_sub(OTHERS) / PER_CONNECTION) as usize;
    let raise = "raise the limit (`ulimit -n`, or `LimitNOFILE=` of systemd)";
    if connections.is_some() || fitting == 0 {
        return Err(format!(
            "`max_connections` is {wanted}, which needs {needed} open files, and the system allows {allowed}: write at most \
             {fitting}, or {raise}"
        ));
    }
    eprintln!("gateway: `max_connections` is {fitting}, which fits {allowed} open files; write a number, or {raise}");
    Ok(fitting)
}

/// Files that are closed when no more can be opened, so that a connection can be accepted nevertheless.
#[derive(Debug)]
pub(crate) struct FdReserve {
    files: Mutex<Vec<File>>,
    size: usize,
}

impl FdReserve {
    pub(crate) fn new(size: usize) -> Self {
        let reserve = Self { files: Mutex::default(), size };
        reserve.refill();
        reserve
    }

    /// Closes one. Returns false if there is none.
    pub(crate) fn close_one(&self) -> bool {
        self.lock().pop().is_some()
    }

    /// Opens those that are missing, as far as possible.
    pub(crate) fn refill(&self) {
        let mut files = self.lock();
        while files.len() < self.size {
            let Ok(file) = File::open("/dev/null") else { break };
            files.push(file);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<File>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
