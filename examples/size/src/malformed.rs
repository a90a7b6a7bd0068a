//! Lines of a trace that cannot be read: counted, and the first ones kept to be shown.

use std::fmt;

const SHOWN: usize = 5;

#[derive(Debug, Default)]
pub struct Malformed {
    pub count: u64,
    /// The first ones: line number and reason.
    first: Vec<(u64, String)>,
}

impl Malformed {
    pub fn note(&mut self, line: u64, reason: String) {
        self.count += 1;
        if self.first.len() < SHOWN {
            self.first.push((line, reason));
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.count == 1 { "line is" } else { "lines are" };
        write!(f, "{} {verb} malformed", self.count)?;
        for (line, reason) in &self.first {
            write!(f, "\n  line {line}: {reason}")?;
        }
        match self.count - self.first.len() as u64 {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}
