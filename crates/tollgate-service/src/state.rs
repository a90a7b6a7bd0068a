//! Levels that survive a restart, in a file.

use crate::bucket::Saved;
use crate::rule::Level;
use crate::service::Service;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The levels of one rule.
#[derive(Serialize, Deserialize)]
struct SavedRule {
    domain: String,
    levels: Vec<Level>,
    bucket: Saved,
}

/// Writes the levels of all rules. It never leaves a partial file.
///
/// # Errors
///
/// Returns one line that names the file.
pub fn save(path: &Path, service: &Service) -> Result<usize, String> {
    let rules = service.rules.load_full();
    let saved: Vec<SavedRule> = rules
        .all
        .iter()
        .filter_map(|rule| {
            let bucket = rule.made_bucket()?.save().ok()?;
            Some(SavedRule { domain: rule.domain.to_string(), levels: rule.levels.clone(), bucket })
        })
        .collect();
    let bytes = postcard::to_allocvec(&saved).map_err(|error| unsaved(path, &error))?;
    let write = || {
        let mut file = File::create(partial(path))?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(partial(path), path)
    };
    write().map_err(|error| unsaved(path, &error))?;
    Ok(saved.len())
}

fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

fn unsaved(path: &Path, error: &dyn Display) -> String {
    format!("the levels cannot be saved in {}: {error}", path.display())
}

/// Continues from the levels of a file, and removes it: levels count once. Rules with other limits begin anew.
///
/// # Errors
///
/// Returns one line that names the file and what is wrong with it.
pub fn restore(path: &Path, service: &Service) -> Result<usize, String> {
    let failed = |error: &dyn Display| format!("the levels of {} are lost: {error}", path.display());
    // A place where nothing can be saved, or removed, is told at the start.
    File::create(partial(path)).and_then(|_| fs::remove_file(partial(path))).map_err(|error| unsaved(path, &error))?;
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(failed(&error)),
    };
    let saved: Vec<SavedRule> = postcard::from_bytes(&bytes).map_err(|error| failed(&error))?;
    let rules = service.rules.load_full();
    let known: HashMap<_, _> = rules.all.iter().map(|rule| ((&*rule.domain, &rule.levels), rule)).collect();
    let mut restored = 0;
    for SavedRule { domain, levels, bucket } in saved {
        if let Some(rule) = known.get(&(&*domain, &levels)) {
            restored += usize::from(rule.restore(bucket, &service.maker));
        }
    }
    fs::remove_file(path).map_err(|error| failed(&error))?;
    Ok(restored)
}
