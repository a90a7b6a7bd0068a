//! Where the access log goes.

use std::path::PathBuf;

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Stdout,
    File(PathBuf),
}
