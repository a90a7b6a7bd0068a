//! Finds `usage` in JSON that comes in pieces.
//!
//! The scanner keeps a few bytes, whatever the length and the depth of the JSON. It looks at `usage` at the top level, and
//! within `response` (OpenAI's events) and `message` (Anthropic's events) there. Everything else is skipped by its
//! brackets and quotes, so that what a model writes, or passes to a tool, is never taken for its usage.

use super::usage::Usage;

/// Longer than all names and types that are looked for.
const MAX_LEN: usize = 32;

#[derive(Clone, Debug, Default)]
pub(crate) struct UsageScanner {
    pub(crate) usage: Usage,
    /// Whether the upstream said that this is the last of its events.
    pub(crate) is_last: bool,
    /// Of the objects around the next byte, those with fields that are looked at, from the outside to the inside.
    open: [Option<Object>; 3],
    /// How many arrays and objects are open that are skipped, inside of those.
    skipped: u64,
    string: Option<Text>,
    /// The name before the last colon, or of the string that may become one.
    name: Word,
    /// The value of `type`.
    value: Word,
    is_value: bool,
    number: Option<Number>,
}

/// An object with fields that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Object {
    Root,
    /// `response` or `message`.
    Wrapper,
    Usage,
}

/// A string that has not ended yet.
#[derive(Clone, Copy, Debug, Default)]
struct Text {
    is_escaped: bool,
}

/// The beginning of a string: enough to recognize what is looked for.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    bytes: [u8; MAX_LEN],
    /// More than `MAX_LEN` if the string is longer, or has an escape: then it is nothing that is looked for.
    length: usize,
}

/// A number that has not ended yet; `None` if it is no whole number of tokens.
#[derive(Clone, Copy, Debug)]
struct Number(Option<u64>);

impl UsageScanner {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match self.string {
                Some(text) => self.in_string(text, *byte),
                None => self.outside(*byte),
            }
        }
    }

    /// Begins a new JSON text. The usage stays.
    pub(crate) fn restart(&mut self) {
        *self = Self { usage: self.usage, is_last: self.is_last, ..Self::default() };
    }

    fn in_string(&mut self, text: Text, byte: u8) {
        let is_end = byte == b'"' && !text.is_escaped;
        if is_end {
            self.string = None;
            self.check_type();
            return;
        }
        self.string = Some(Text { is_escaped: byte == b'\\' && !text.is_escaped });
        if self.skipped == 0 {
            let word = if self.is_value { &mut self.value } else { &mut self.name };
            word.push(byte);
        }
    }

    fn outside(&mut self, byte: u8) {
        if !byte.is_ascii_digit() {
            self.end_number(byte);
        }
        match byte {
            b'"' => self.begin_string(),
            b'{' | b'[' => self.open(byte),
            b'}' | b']' => self.close(),
            b':' if self.skipped == 0 => self.is_value = true,
            b',' if self.skipped == 0 => self.is_value = false,
            b'0'..=b'9' if self.skipped == 0 => self.digit(byte),
            _ => {}
        }
    }

    fn begin_string(&mut self) {
        self.string = Some(Text::default());
        if self.skipped == 0 {
            let word = if self.is_value { &mut self.value } else { &mut self.name };
            *word = Word::default();
        }
    }

    fn open(&mut self, byte: u8) {
        let inner = self.inner();
        let child = match (inner, self.name.as_bytes()) {
            _ if self.skipped > 0 || byte == b'[' => None,
            (None, _) => Some(Object::Root),
            (Some(Object::Root | Object::Wrapper), b"usage") => Some(Object::Usage),
            (Some(Object::Root), b"response" | b"message") => Some(Object::Wrapper),
            (Some(_), _) => None,
        };
        match (child, self.open.iter_mut().find(|slot| slot.is_none())) {
            (Some(child), Some(slot)) => {
                *slot = Some(child);
                self.is_value = false;
                self.name = Word::default();
            }
            _ => self.skipped = self.skipped.saturating_add(1),
        }
    }

    fn close(&mut self) {
        if self.skipped > 0 {
            self.skipped -= 1;
        } else if let Some(slot) = self.open.iter_mut().rev().find(|slot| slot.is_some()) {
            *slot = None;
            self.name = Word::default();
        }
    }

    fn inner(&self) -> Option<Object> {
        self.open.iter().rev().copied().flatten().next()
    }

    fn digit(&mut self, byte: u8) {
        let digit = u64::from(byte - b'0');
        self.number = Some(match self.number {
            None => Number(Some(digit)),
            Some(Number(tokens)) => Number(tokens.and_then(|tokens| tokens.checked_mul(10)?.checked_add(digit))),
        });
    }

    /// A number ends at what may follow a value. A sign, a point or an exponent make it one that is not understood.
    fn end_number(&mut self, byte: u8) {
        match byte {
            b'-' | b'+' | b'.' | b'e' | b'E' if self.skipped == 0 => self.number = Some(Number(None)),
            b',' | b'}' | b' ' | b'\t' | b'\r' | b'\n' => {
                if let Some(Number(Some(tokens))) = self.number.take()
                    && self.skipped == 0
                    && self.is_value
                    && self.inner() == Some(Object::Usage)
                {
                    self.usage.set(self.name.as_bytes(), tokens);
                }
            }
            _ => {}
        }
    }

    /// Anthropic and OpenAI's responses name the type of each event.
    fn check_type(&mut self) {
        let is_type = self.skipped == 0
            && std::mem::take(&mut self.is_value)
            && self.inner() == Some(Object::Root)
            && self.name.as_bytes() == b"type";
        let value = self.value.as_bytes();
        self.is_last |= is_type
            && [&b"message_stop"[..], b"response.completed", b"response.incomplete", b"response.failed"]
                .contains(&value);
    }
}

impl Word {
    fn push(&mut self, byte: u8) {
        if byte == b'\\' {
            self.length = MAX_LEN + 1;
        }
        if let Some(slot) = self.bytes.get_mut(self.length) {
            *slot = byte;
        }
        self.length = (self.length + 1).min(MAX_LEN + 1);
    }

    /// Empty if it is nothing that is looked for.
    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}
