//! What the classes of nodes report to a store: how many tokens they need.

use std::fmt;

/// The demand of one class: on one node in a [`ClassReport`], and on all nodes together in the answer.
///
/// Classes are known by number: a hash of the names on their path. 0 is the limiter itself, for claims made in no class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassDemand {
    /// The class.
    pub class: u64,
    /// The class that it is in; 0 if it is in no class.
    pub parent: u64,
    /// Its weight. In an answer, that of the last report.
    pub weight: u64,
    /// How many nodes have more claims of the class itself than their part lets pass: 0 or 1 in a report.
    pub heavy: u64,
    /// How many nodes have fewer claims of the class itself: 0 or 1 in a report.
    pub light: u64,
    /// What claims of the class itself need on these nodes, in thousandths of a token per share time.
    pub millis: u64,
}

impl ClassDemand {
    /// Builds the demand of a class from its numbers, in the order of the fields.
    pub fn from_numbers([class, parent, weight, heavy, light, millis]: [u64; 6]) -> Self {
        Self { class, parent, weight, heavy, light, millis }
    }

    /// Parses the text of several classes, as [`to_text`](Self::to_text) writes it.
    pub fn from_text(text: &str) -> Option<Vec<Self>> {
        text.split(',').filter(|row| !row.is_empty()).map(Self::from_row).collect()
    }

    fn from_row(row: &str) -> Option<Self> {
        let mut words = row.split(' ');
        let mut number = |radix| u64::from_str_radix(words.next()?, radix).ok();
        let numbers = [number(16)?, number(16)?, number(10)?, number(10)?, number(10)?, number(10)?];
        words.next().is_none().then(|| Self::from_numbers(numbers))
    }

    /// Writes several classes as text, with commas between them: each as its numbers with spaces between them, the first
    /// two in 16 hexadecimal digits.
    pub fn to_text(classes: &[Self]) -> String {
        let rows: Vec<String> = classes.iter().map(Self::to_string).collect();
        rows.join(",")
    }
}

impl fmt::Display for ClassDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, parent, weight, heavy, light, millis } = self;
        write!(f, "{class:016x} {parent:016x} {weight} {heavy} {light} {millis}")
    }
}

/// The demand of the classes of one node, which replaces that of its report before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassReport {
    /// The reporting node.
    pub node: u128,
    /// For how long the report counts, in microseconds: at most a minute.
    pub ttl: u64,
    /// The classes in which claims wait, and the classes that these are in. Empty if no claim waits.
    pub classes: Vec<ClassDemand>,
}

impl ClassReport {
    /// Creates a report that counts for `ttl` microseconds.
    pub fn new(node: u128, ttl: u64, classes: Vec<ClassDemand>) -> Self {
        Self { node, ttl, classes }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read_back_as_they_were_written() {
        let classes = vec![
            ClassDemand::from_numbers([u64::MAX, 0, 1_000_000, 3, 2, 1 << 40]),
            ClassDemand::from_numbers([0, 0, 1, 0, 1, 7]),
        ];
        let text = ClassDemand::to_text(&classes);
        let expected =
            "ffffffffffffffff 0000000000000000 1000000 3 2 1099511627776,0000000000000000 0000000000000000 1 0 1 7";
        assert_eq!(text, expected);
        assert_eq!(ClassDemand::from_text(&text), Some(classes));
        assert_eq!(ClassDemand::from_text(""), Some(Vec::new()));
        for text in ["1 2 3 4 5", "1 2 3 4 5 6 7", "g 2 3 4 5 6", "1 2 3 4 5 -6"] {
            assert_eq!(ClassDemand::from_text(text), None, "{text}");
        }
    }
}
