//! The fields of a map in a configuration file, with a problem for each that is wrong.

use crate::problem::{Place, Problem};
use crate::yaml::{Node, Value, scalar};
use std::time::Duration;

/// The fields of one map.
#[derive(Debug)]
pub struct Fields<'n> {
    place: &'n Place,
    entries: Vec<(&'n str, &'n Node)>,
}

impl<'n> Fields<'n> {
    /// Reads a map. Keys that are not in `known`, are not text or come twice are problems.
    pub fn of(node: &'n Node, what: &str, known: &[&str], problems: &mut Vec<Problem>) -> Self {
        let mut fields = Self { place: &node.place, entries: Vec::new() };
        let Value::Map(entries) = &node.value else {
            let text = format!("{what} is a map of {}, and this is {}", listed(known), node.kind());
            problems.push(Problem::at(&node.place, text));
            return fields;
        };
        for (name, value) in entries {
            match scalar(name) {
                Some(text) if !known.contains(&text) => {
                    problems.push(Problem::at(&name.place, unknown(what, text, known)))
                }
                Some(text) if fields.entries.iter().any(|(have, _)| *have == text) => {
                    problems.push(Problem::at(&name.place, format!("`{text}` is set twice here: remove one")));
                }
                Some(text) => fields.entries.push((text, value)),
                None => problems.push(Problem::at(&name.place, format!("a key is text, and this is {}", name.kind()))),
            }
        }
        fields
    }

    /// Returns where the map begins.
    pub fn place(&self) -> &'n Place {
        self.place
    }

    /// Returns where a field is, or the map if it lacks the field.
    pub fn place_of(&self, name: &str) -> &'n Place {
        self.get(name).map_or(self.place, |node| &node.place)
    }

    /// Returns a field, if it is there and has a value.
    pub fn get(&self, name: &str) -> Option<&'n Node> {
        let (_, node) = self.entries.iter().find(|(have, _)| *have == name)?;
        (scalar(node) != Some("")).then_some(*node)
    }

    /// Returns a text.
    pub fn text(&self, name: &str, problems: &mut Vec<Problem>) -> Option<&'n str> {
        self.parsed(name, "a text", problems, Some)
    }

    /// Returns a whole number that fits 32 bits.
    pub fn whole(&self, name: &str, problems: &mut Vec<Problem>) -> Option<u32> {
        let what = format!("a whole number from 0 to {}", u32::MAX);
        self.parsed(name, &what, problems, |text| text.replace('_', "").parse().ok())
    }

    /// Returns true or false; false if the field is not there.
    pub fn flag(&self, name: &str, problems: &mut Vec<Problem>) -> bool {
        self.parsed(name, "`true` or `false`", problems, |text| match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "y" => Some(true),
            "false" | "no" | "off" | "n" => Some(false),
            _ => None,
        })
        .unwrap_or(false)
    }

    /// Returns a time.
    pub fn time(&self, name: &str, problems: &mut Vec<Problem>) -> Option<Duration> {
        self.parsed(name, "a time such as `500ms`, `2s` or `1m`", problems, parse_time)
    }

    /// Returns the items of a list; none if the field is not there.
    pub fn list(&self, name: &str, problems: &mut Vec<Problem>) -> &'n [Node] {
        match self.get(name).map(|node| (node, &node.value)) {
            None => &[],
            Some((_, Value::List(items))) => items,
            Some((node, _)) => {
                problems.push(Problem::at(&node.place, format!("`{name}` is a list, and this is {}", node.kind())));
                &[]
            }
        }
    }

    /// Returns a value that `parse` knows. Any other is a problem, which says `what` the field is.
    pub fn parsed<T>(
        &self,
        name: &str,
        what: &str,
        problems: &mut Vec<Problem>,
        parse: impl Fn(&'n str) -> Option<T>,
    ) -> Option<T> {
        let node = self.get(name)?;
        let value = scalar(node).and_then(parse);
        if value.is_none() {
            let found = scalar(node).map_or_else(|| node.kind().to_owned(), |text| format!("`{}`", shortened(text)));
            problems.push(Problem::at(&node.place, format!("`{name}` is {what}, and this is {found}")));
        }
        value
    }
}

/// Parses a time with its unit.
pub fn parse_time(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u32 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim() {
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        "m" => Duration::from_secs(60),
        "h" => Duration::from_secs(3_600),
        _ => return None,
    };
    Some(unit * number)
}

/// Returns a text from the outside as messages show it.
pub fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(60).is_some() {
        shown.push_str("...");
    }
    shown
}

fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let near = |candidate: &&&str| strsim::osa_distance(&name.to_lowercase().replace('-', "_"), candidate) <= 2;
    let name = shortened(name);
    match known.iter().find(near) {
        Some(meant) => format!("{what} has no key `{name}`: did you mean `{meant}`?"),
        None => format!("{what} has no key `{name}`, only {}", listed(known)),
    }
}

fn listed(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}
