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
    /// The line itself, with a caret below the value.
    excerpt: Option<String>,
}

/// The alternate form shows the line too.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        self.line.map_or(Ok(()), |line| write!(f, ", line {line}"))?;
        write!(f, ": {}", self.what)?;
        match &self.excerpt {
            Some(excerpt) if f.alternate() => write!(f, "\n{excerpt}"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}

impl Problem {
    pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        let what = format!(
            "cannot be read: {error}; write one with `tollgate-gateway init {}`, or name another with --config",
            path.display()
        );
        Self { file: path.to_owned(), line: None, what, excerpt: None }
    }

    pub(crate) fn at_line(path: &Path, line: usize, what: String) -> Self {
        Self { file: path.to_owned(), line: Some(line), what, excerpt: None }
    }

    /// A setting that only a restart can change.
    pub(crate) fn fixed(path: &Path, name: &str, line: usize) -> Self {
        let what = format!("`{name}` is read at the start only: restart the gateway, or restore the old value");
        Self::at_line(path, line, what)
    }
}

/// A value, and its line in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Located<T> {
    pub(crate) value: T,
    pub(crate) line: usize,
}

impl<T> Located<T> {
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Located<U> {
        Located { value: change(self.value), line: self.line }
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
        let (line, excerpt) = (span.clone().map(|span| self.line(&span)), span.and_then(|span| self.excerpt(&span)));
        Problem { file: self.path.to_owned(), line, what: what.to_string(), excerpt }
    }

    /// The line at the start of the span, and carets below as much of the span as is in it.
    fn excerpt(&self, span: &Range<usize>) -> Option<String> {
        let begin = self.text.get(..span.start)?.rfind('\n').map_or(0, |at| at + 1);
        let line = self.text.get(begin..)?.lines().next()?;
        let before = self.text.get(begin..span.start)?;
        let marked = self.text.get(span.start..span.end.min(begin + line.len())).unwrap_or_default();
        let number = self.line(span).to_string();
        let (margin, carets) = (" ".repeat(number.len()), "^".repeat(marked.chars().count().max(1)));
        // Tabs stay, so that the carets are below what they mark.
        let indent: String = before.chars().map(|letter| if letter == '\t' { '\t' } else { ' ' }).collect();
        Some(format!("{margin} |\n{number} | {line}\n{margin} | {indent}{carets}"))
    }

    pub(crate) fn at<T>(&self, value: Spanned<T>) -> Located<T> {
        let line = self.line(&value.span());
        Located { value: value.into_inner(), line }
    }
}
