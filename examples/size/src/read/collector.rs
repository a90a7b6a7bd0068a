//! Collects the records that the readers of all formats find.

use super::Collected;
use crate::Failure;
use crate::event::Event;
use crate::malformed::Malformed;
use crate::trace::Trace;
use std::borrow::Cow;
use std::collections::HashMap;

/// One line of a trace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record<'l> {
    pub(super) at: u64,
    pub(super) key: Cow<'l, str>,
    pub(super) cost: u64,
}

#[derive(Default)]
pub(super) struct Collector {
    events: Vec<Event>,
    /// The numbers of the keys.
    keys: HashMap<Box<str>, u32>,
    malformed: Malformed,
}

impl Collector {
    pub(super) fn take(&mut self, line: u64, record: Result<Record<'_>, String>) {
        match record {
            Ok(Record { at, key, cost }) => {
                let key = self.number(&key);
                self.events.push(Event { at, key, cost });
            }
            Err(reason) => self.malformed.note(line, reason),
        }
    }

    fn number(&mut self, key: &str) -> u32 {
        if let Some(number) = self.keys.get(key) {
            return *number;
        }
        let number = u32::try_from(self.keys.len()).expect("fewer than 2^32 keys fit into memory");
        self.keys.insert(key.into(), number);
        number
    }

    /// If there is a `doubt` about the keys, the calls get none.
    pub(super) fn finish(mut self, doubt: Option<String>) -> Result<Collected, Failure> {
        if self.events.is_empty() && self.malformed.count > 0 {
            return Err(format!("no line of the trace can be read: {}", self.malformed).into());
        }
        if doubt.is_some() {
            self.events.iter_mut().for_each(|event| event.key = 0);
            self.keys = HashMap::from([(Box::default(), 0)]);
        }
        let mut keys: Vec<_> = self.keys.into_iter().collect();
        keys.sort_by_key(|(_, number)| *number);
        let keys = keys.into_iter().map(|(key, _)| key).collect();
        Ok(Collected { trace: Trace::new(self.events, keys)?, malformed: self.malformed, doubt })
    }
}
