//! Finds `usage` in server-sent events that come in pieces.
//!
//! The format is that of the HTML standard, 9.2: lines that end with LF, CR or both; the lines `data:` of an event are one
//! text, and an empty line ends the event.

use super::usage_scanner::UsageScanner;

const DATA: &[u8] = b"data:";
/// The text of the last event of OpenAI's chat completions, which is no JSON.
const DONE: &[u8] = b"[DONE]";

#[derive(Clone, Debug, Default)]
pub(crate) struct EventScanner {
    pub(crate) json: UsageScanner,
    line: Line,
    /// Whether the last byte was a CR, so that an LF does not end another line.
    is_after_cr: bool,
    /// How many events with data have ended.
    pub(crate) events: u64,
    has_data: bool,
    /// How many bytes of `[DONE]` the text of the event begins with.
    done: usize,
}

/// What is known about the line of the next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// It begins with this many bytes of `data:`.
    Name(usize),
    Data,
    Other,
}

impl Default for Line {
    fn default() -> Self {
        Self::Name(0)
    }
}

impl EventScanner {
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            let is_second_half = std::mem::take(&mut self.is_after_cr) && *first == b'\n';
            bytes = match self.line {
                _ if is_second_half => rest,
                Line::Data if !is_end(*first) => {
                    let length = bytes.iter().position(|byte| is_end(*byte)).unwrap_or(bytes.len());
                    let (data, after) = bytes.split_at(length);
                    self.data(data);
                    after
                }
                _ => {
                    self.outside_data(*first);
                    rest
                }
            };
        }
    }

    fn outside_data(&mut self, byte: u8) {
        if is_end(byte) {
            self.is_after_cr = byte == b'\r';
            match std::mem::take(&mut self.line) {
                Line::Name(0) => self.end_event(),
                // A line break within the text is a space to JSON.
                Line::Data => self.json.feed(b"\n"),
                Line::Name(_) | Line::Other => {}
            }
            return;
        }
        self.line = match self.line {
            Line::Name(length) if DATA.get(length) == Some(&byte) => {
                if length + 1 == DATA.len() {
                    Line::Data
                } else {
                    Line::Name(length + 1)
                }
            }
            _ => Line::Other,
        };
    }

    fn data(&mut self, data: &[u8]) {
        self.has_data = true;
        self.json.feed(data);
        for byte in data.iter().filter(|byte| **byte != b' ') {
            self.done = if DONE.get(self.done) == Some(byte) { self.done + 1 } else { DONE.len() + 1 };
            if self.done > DONE.len() {
                break;
            }
        }
        self.json.is_last |= self.done == DONE.len();
    }

    fn end_event(&mut self) {
        self.json.restart();
        self.done = 0;
        self.events += u64::from(std::mem::take(&mut self.has_data));
    }
}

fn is_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}
