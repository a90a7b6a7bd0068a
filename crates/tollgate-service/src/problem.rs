//! What is wrong in a configuration file, and where.

use std::fmt;
use std::sync::Arc;

/// A file of the configuration.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// The path, as problems name it.
    pub name: String,
    /// The contents.
    pub text: String,
}

/// A place in a file: where a problem begins, and for how many characters it goes on in that line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub source: Arc<Source>,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The number of characters to mark, at least 1.
    pub length: usize,
}

/// One thing that is wrong, or worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong, and what to write instead.
    pub text: String,
    /// Where; `None` for what concerns no place in a file.
    pub place: Option<Place>,
}

impl Problem {
    /// Creates a problem at a place.
    pub fn at(place: &Place, text: impl Into<String>) -> Self {
        Self { text: text.into(), place: Some(place.clone()) }
    }

    /// Creates a problem that no line of a file has.
    pub fn nowhere(text: impl Into<String>) -> Self {
        Self { text: text.into(), place: None }
    }

    /// Returns the problem in one line, for logs.
    pub fn line(&self) -> String {
        match &self.place {
            Some(place) => format!("{}:{}:{}: {}", place.source.name, place.line, place.column, self.text),
            None => self.text.clone(),
        }
    }
}

/// The longest part of a line that is shown, in characters before and after the place.
const SHOWN: usize = 100;

impl fmt::Display for Problem {
    /// Prints the text, the place, the line of the file and a caret under the place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        let Some(Place { source, line, column, length }) = &self.place else { return Ok(()) };
        let digits = line.to_string().len();
        write!(f, "\n{:digits$}--> {}:{line}:{column}", "", source.name)?;
        let Some(shown) = source.text.lines().nth(line - 1) else { return Ok(()) };
        let skipped = (column - 1).saturating_sub(SHOWN);
        // A tab or a control character would put the caret elsewhere.
        let shown = shown.chars().map(|c| if c.is_control() { ' ' } else { c });
        let shown: String = shown.skip(skipped).take(2 * SHOWN).collect();
        let indent = column - 1 - skipped;
        let carets = "^".repeat((*length).clamp(1, (2 * SHOWN - indent).max(1)));
        write!(f, "\n{:digits$} |\n{line} | {shown}\n{:digits$} | {:indent$}{carets}", "", "", "")
    }
}
