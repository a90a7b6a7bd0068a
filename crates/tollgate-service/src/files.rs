//! The files of the configuration.

use crate::problem::{Problem, Source};
use crate::yaml::MOST_BYTES;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads all files: each path is a file, or a directory whose `*.yaml` and `*.yml` files count.
///
/// # Errors
///
/// Returns a [`Problem`] for each path that cannot be read.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Arc<Source>>, Vec<Problem>> {
    let (mut sources, mut problems) = (Vec::new(), Vec::new());
    for path in paths {
        match read_path(path) {
            Ok(read) => sources.extend(read),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(sources) } else { Err(problems) }
}

fn read_path(path: &Path) -> Result<Vec<Arc<Source>>, Problem> {
    let problem = |error: &std::io::Error| Problem::nowhere(format!("cannot read {}: {}", path.display(), why(error)));
    let metadata = fs::metadata(path).map_err(|error| problem(&error))?;
    if !metadata.is_dir() {
        return Ok(vec![read_file(path)?]);
    }
    let entries = fs::read_dir(path).map_err(|error| problem(&error))?;
    let mut files: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_config(path)).collect();
    files.sort();
    files.iter().map(|file| read_file(file)).collect()
}

/// Kubernetes keeps the files of a volume in hidden directories, to which the visible names are links.
fn is_config(path: &Path) -> bool {
    let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let is_yaml = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
    // A link to nothing is a problem: without its file the requests of a domain would pass.
    is_yaml && !is_hidden && !path.is_dir()
}

fn read_file(path: &Path) -> Result<Arc<Source>, Problem> {
    let problem = |why: &str| Problem::nowhere(format!("cannot read {}: {why}", path.display()));
    let length = fs::metadata(path).map_err(|error| problem(&why(&error)))?.len();
    if length > MOST_BYTES as u64 {
        return Err(problem(&format!("it is {length} bytes long, and the most is {MOST_BYTES}: split it")));
    }
    let text = fs::read_to_string(path).map_err(|error| problem(&why(&error)))?;
    Ok(Arc::new(Source { name: path.display().to_string(), text }))
}

fn why(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file or directory: check the path".to_owned(),
        ErrorKind::PermissionDenied => "its permissions forbid it: make it readable for this user".to_owned(),
        ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
        _ => error.to_string(),
    }
}
