//! Errors in a configuration file, and the lines on which its values stand.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;

/// An error in a configuration file: its place, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    file: PathBuf,
    pub(crate) line: Option<usize>,
    what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        self.line.map_or(Ok(()), |line| write!(f, ", line {line}"))?;
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for Problem {}

impl Problem {
    pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        let what = format!("cannot be read: {error}; put it back, or name another with --config");
        Self { file: path.to_owned(), line: None, what }
    }

    pub(crate) fn at_line(path: &Path, line: usize, what: String) -> Self {
        Self { file: path.to_owned(), line: Some(line), what }
    }

    /// A setting that only a restart can change.
    pub(crate) fn fixed(path: &Path, name: &str, line: usize) -> Self {
        let what = format!("`{name}` is read at the start only: restart the gateway, or restore the old value");
        Self::at_line(path, line, what)
    }
}

/// A value, and its line in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) line: usize,
}

impl<T> At<T> {
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> At<U> {
        At { value: change(self.value), line: self.line }
    }
}

/// The text of a file, to find the line of a span.
pub(crate) struct Source<'a> {
    pub(crate) path: &'a Path,
    pub(crate) text: &'a str,
}

impl Source<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.get(..span.start.min(self.text.len())).unwrap_or(self.text);
        before.matches('\n').count() + 1
    }

    pub(crate) fn problem(&self, span: Option<Range<usize>>, what: impl fmt::Display) -> Problem {
        Problem { file: self.path.to_owned(), line: span.map(|span| self.line(&span)), what: what.to_string() }
    }

    pub(crate) fn at<T>(&self, value: Spanned<T>) -> At<T> {
        let line = self.line(&value.span());
        At { value: value.into_inner(), line }
    }
}
