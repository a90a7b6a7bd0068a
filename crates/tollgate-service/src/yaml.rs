//! A YAML file as a tree whose nodes know their places.

use crate::problem::{Place, Problem, Source};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};
use std::collections::HashMap;
use std::sync::Arc;

/// The largest file. A rule takes some 100 bytes, so this is room for 300,000.
pub const MOST_BYTES: usize = 32 << 20;
/// The most nodes of a file, with all that its aliases stand for.
const MOST_NODES: usize = 2_000_000;
/// How deep lists and maps nest at most. A descriptor takes two levels.
const DEEPEST: usize = 80;

/// A value with its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it begins.
    pub place: Place,
    /// What it is.
    pub value: Value,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum Value {
    /// Text, a number, true or false; empty if nothing is there.
    Scalar(String),
    /// A list.
    List(Vec<Node>),
    /// Keys with their values, in the order of the file.
    Map(Vec<(Node, Node)>),
}

impl Node {
    /// Returns the nodes right in this one.
    fn inner(&self) -> impl Iterator<Item = &Self> {
        let (items, entries): (&[Self], &[(Self, Self)]) = match &self.value {
            Value::Scalar(_) => (&[], &[]),
            Value::List(items) => (items, &[]),
            Value::Map(entries) => (&[], entries),
        };
        items.iter().chain(entries.iter().flat_map(|(key, value)| [key, value]))
    }

    /// Returns the number of nodes in this one, with itself.
    fn size(&self) -> usize {
        1 + self.inner().map(Self::size).sum::<usize>()
    }

    /// Returns how many nodes are in each other at most, below this one.
    fn depth(&self) -> usize {
        self.inner().map(|node| 1 + node.depth()).max().unwrap_or(0)
    }

    /// Returns what the node is, for messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar(text) if text.is_empty() => "nothing",
            Value::Scalar(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }
}

/// Reads all documents of a file. An empty file is a document with nothing in it.
///
/// # Errors
///
/// Returns a [`Problem`] if the file is not valid YAML, has more than 2,000,000 values, or nests deeper than 80 levels.
/// Values that an alias repeats count each time.
pub fn read(source: &Arc<Source>) -> Result<Vec<Node>, Problem> {
    let mut builder = Builder { source, open: Vec::new(), documents: Vec::new(), anchors: HashMap::new(), nodes: 0 };
    for event in Parser::new_from_str(&source.text) {
        let (event, span) = event.map_err(|error| {
            let place = builder.place(*error.marker(), *error.marker());
            Problem::at(&place, format!("this is not valid YAML: {}", error.info()))
        })?;
        builder.event(event, span)?;
    }
    if builder.documents.is_empty() {
        let place = Place { source: Arc::clone(source), line: 1, column: 1, length: 1 };
        builder.documents.push(Node { place, value: Value::Scalar(String::new()) });
    }
    Ok(builder.documents)
}

/// A list or map that is not complete.
struct Open {
    node: Node,
    anchor: usize,
    /// The key of a map whose value comes next.
    key: Option<Node>,
}

struct Builder<'a> {
    source: &'a Arc<Source>,
    open: Vec<Open>,
    documents: Vec<Node>,
    /// The nodes that aliases can name.
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Problem> {
        let place = self.place(span.start, span.end);
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_nothing = style == ScalarStyle::Plain && matches!(&*text, "~" | "null" | "Null" | "NULL");
                let text = if is_nothing { String::new() } else { text.into_owned() };
                self.add(Node { place, value: Value::Scalar(text) }, anchor)
            }
            Event::SequenceStart(anchor, _) => self.begin(Node { place, value: Value::List(Vec::new()) }, anchor),
            Event::MappingStart(anchor, _) => self.begin(Node { place, value: Value::Map(Vec::new()) }, anchor),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(mut open) => {
                    if let Value::Map(entries) = &mut open.node.value {
                        merge(entries);
                    }
                    self.add(open.node, open.anchor)
                }
                None => Ok(()),
            },
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                // Functions that walk a deeper tree would overflow the stack.
                Some(node) if self.open.len() + node.depth() > DEEPEST => Err(too_deep(&place)),
                Some(node) => {
                    let node = Node { place, value: node.value.clone() };
                    self.nodes += node.size();
                    self.add(node, 0)
                }
                None => Err(Problem::at(&place, "this alias names no value before it")),
            },
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {
                Ok(())
            }
        }
    }

    fn begin(&mut self, node: Node, anchor: usize) -> Result<(), Problem> {
        if self.open.len() == DEEPEST {
            return Err(too_deep(&node.place));
        }
        self.open.push(Open { node, anchor, key: None });
        Ok(())
    }

    fn add(&mut self, node: Node, anchor: usize) -> Result<(), Problem> {
        self.nodes += 1;
        if self.nodes > MOST_NODES {
            let text = format!("a file has at most {MOST_NODES} values, with all that aliases repeat: split it");
            return Err(Problem::at(&node.place, text));
        }
        if anchor != 0 {
            self.nodes += node.size();
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            None => self.documents.push(node),
            Some(Open { node: Node { value: Value::List(items), .. }, .. }) => items.push(node),
            Some(Open { node: Node { value: Value::Map(entries), .. }, key, .. }) => match key.take() {
                None => *key = Some(node),
                Some(name) => entries.push((name, node)),
            },
            Some(_) => {}
        }
        Ok(())
    }

    fn place(&self, start: Marker, end: Marker) -> Place {
        let length = if start.line() == end.line() { end.col().saturating_sub(start.col()) } else { 1 };
        Place { source: Arc::clone(self.source), line: start.line(), column: start.col() + 1, length: length.max(1) }
    }
}

fn too_deep(place: &Place) -> Problem {
    Problem::at(place, format!("lists and maps nest at most {DEEPEST} deep"))
}

/// Replaces each entry `<<` by those entries of its map, or of its list of maps, that the map itself does not have.
fn merge(entries: &mut Vec<(Node, Node)>) {
    let is_merge = |(name, _): &(Node, Node)| scalar(name) == Some("<<");
    if !entries.iter().any(is_merge) {
        return;
    }
    let (merges, mut own): (Vec<_>, Vec<_>) = entries.drain(..).partition(is_merge);
    let maps = merges.into_iter().flat_map(|(_, value)| match value.value {
        Value::List(maps) => maps,
        _ => vec![value],
    });
    for map in maps {
        let Value::Map(others) = map.value else { continue };
        for (name, value) in others {
            if !own.iter().any(|(have, _)| scalar(have) == scalar(&name)) {
                own.push((name, value));
            }
        }
    }
    *entries = own;
}

/// Returns the text of a single value.
pub fn scalar(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar(text) => Some(text),
        Value::List(_) | Value::Map(_) => None,
    }
}
