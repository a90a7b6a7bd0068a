//! What stands for the calendar of a quota without the feature `calendar`: no quota has one.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Calendar {}

impl Calendar {
    pub(crate) fn number(self, _length: u64, _wall: u64) -> i64 {
        match self {}
    }

    pub(crate) fn start(self, _length: u64, _number: i64, _near: u64) -> Option<u64> {
        match self {}
    }

    pub(crate) fn longest(self, _length: u64) -> u64 {
        match self {}
    }

    pub(crate) fn most_days(self) -> Option<u8> {
        match self {}
    }

    pub(crate) fn is_counted_from_1970(self) -> bool {
        match self {}
    }

    pub(crate) fn day(self) -> u8 {
        match self {}
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}
