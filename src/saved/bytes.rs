//! The bytes of a saved state.
//!
//! A state begins with `tollgate`, the version and the type, and is a sequence of *frames*: the length of the contents,
//! the contents, and their checksum. Numbers in the contents have a variable length: seven bits in each byte, the lowest
//! first, and the top bit in all bytes but the last.

use super::StateError;
use crate::Quota;
use std::io::{self, Read as _};

const MAGIC: [u8; 8] = *b"tollgate";
const VERSION: u16 = 1;
const HEAD: usize = MAGIC.len() + size_of::<u16>() + 1;

/// The type of the limiter that a state belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Limiter = 1,
    KeyedLimiter = 2,
}

impl Type {
    fn name(self) -> &'static str {
        match self {
            Self::Limiter => "Limiter",
            Self::KeyedLimiter => "KeyedLimiter",
        }
    }
}

/// The first bytes of a state.
pub(crate) fn head(of: Type) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..MAGIC.len()].copy_from_slice(&MAGIC);
    head[MAGIC.len()..HEAD - 1].copy_from_slice(&VERSION.to_le_bytes());
    head[HEAD - 1] = of as u8;
    head
}

/// Reads the first bytes of a state, which must be one of this type.
pub(crate) fn read_head(from: &mut impl io::Read, expected: Type) -> Result<(), StateError> {
    let mut head = Vec::new();
    from.by_ref().take(HEAD as u64).read_to_end(&mut head).map_err(unreadable)?;
    let seen = head.len().min(MAGIC.len());
    if head[..seen] != MAGIC[..seen] {
        return Err(StateError::Foreign);
    }
    if head.len() < HEAD {
        return Err(StateError::Truncated);
    }
    let found = u16::from_le_bytes([head[MAGIC.len()], head[MAGIC.len() + 1]]);
    if found > VERSION {
        return Err(StateError::Version { found, known: VERSION });
    }
    match [Type::Limiter, Type::KeyedLimiter].into_iter().find(|each| *each as u8 == head[HEAD - 1]) {
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(StateError::OtherType { found: found.name() }),
        None => Err(StateError::Damaged { part: "its type" }),
    }
}

fn read_exactly(from: &mut impl io::Read, to: &mut [u8]) -> Result<(), StateError> {
    from.read_exact(to).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => StateError::Truncated,
        _ => unreadable(error),
    })
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn unreadable(error: io::Error) -> StateError {
    StateError::Read { kind: error.kind(), message: error.to_string() }
}

/// Puts `contents` into a frame.
pub(crate) fn frame(contents: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(contents.len() + size_of::<u32>() + size_of::<u64>());
    let length = u32::try_from(contents.len()).expect("a frame holds a small part of a state");
    frame.extend(length.to_le_bytes());
    frame.extend(contents);
    frame.extend(checksum(contents).to_le_bytes());
    frame
}

/// Reads the contents of a frame.
pub(crate) fn read_frame(from: &mut impl io::Read) -> Result<Vec<u8>, StateError> {
    let mut length = [0; size_of::<u32>()];
    read_exactly(from, &mut length)?;
    let (length, mut contents) = (u32::from_le_bytes(length), Vec::new());
    // Allocates for the bytes that are read, and not for `length`, which may be damaged.
    let read = from.by_ref().take(length.into()).read_to_end(&mut contents);
    read.map_err(unreadable)?;
    let mut sum = [0; size_of::<u64>()];
    if contents.len() < length as usize {
        return Err(StateError::Truncated);
    }
    read_exactly(from, &mut sum)?;
    if checksum(&contents) == u64::from_le_bytes(sum) {
        Ok(contents)
    } else {
        Err(StateError::Damaged { part: "a checksum" })
    }
}

/// FNV-1a with 64 bits, over the length too. Any change of one byte changes it.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().chain(&bytes.len().to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, step)
}

/// Appends values to the contents of a frame.
pub(crate) trait Put {
    fn put(&mut self, number: u128);
    /// A number that may be negative, with its sign in the lowest bit.
    fn put_signed(&mut self, number: i128);
    fn put_bytes(&mut self, bytes: &[u8]);
    fn put_optional(&mut self, number: Option<u64>);
    fn put_quota(&mut self, quota: &Quota);
}

impl Put for Vec<u8> {
    fn put(&mut self, mut number: u128) {
        while number >= 0x80 {
            self.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.push(number as u8);
    }

    fn put_signed(&mut self, number: i128) {
        self.put(((number << 1) ^ (number >> 127)) as u128);
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put(bytes.len() as u128);
        self.extend(bytes);
    }

    fn put_optional(&mut self, number: Option<u64>) {
        self.put(number.map_or(0, |number| u128::from(number) + 1));
    }

    fn put_quota(&mut self, quota: &Quota) {
        self.put_bytes(quota.to_string().as_bytes());
    }
}

/// Reads values from the contents of a frame. `None`: they end too early, or a value is impossible.
#[derive(Clone, Debug)]
pub(crate) struct Contents<'a>(pub(crate) &'a [u8]);

impl<'a> Contents<'a> {
    #[inline]
    pub(crate) fn number(&mut self) -> Option<u128> {
        let mut number = 0;
        for shift in (0..u128::BITS).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let part = u128::from(byte & 0x7f);
            let placed = part << shift;
            if placed >> shift != part {
                return None;
            }
            number |= placed;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn small<N: TryFrom<u128>>(&mut self) -> Option<N> {
        N::try_from(self.number()?).ok()
    }

    #[inline]
    pub(crate) fn signed(&mut self) -> Option<i128> {
        let number = self.number()?;
        Some((number >> 1) as i128 ^ -((number & 1) as i128))
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.small()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn optional(&mut self) -> Option<Option<u64>> {
        match self.number()? {
            0 => Some(None),
            number => Some(Some(u64::try_from(number - 1).ok()?)),
        }
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(crate) fn quota(&mut self) -> Option<Quota> {
        self.text()?.parse().ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        let numbers = [0, 1, 127, 128, 300, u64::MAX.into(), u128::MAX - 1, u128::MAX];
        let signed = [0, -1, 1, 63, -64, 64, i128::MIN, i128::MAX, i64::MIN.into()];
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| bytes.put(*number));
        signed.iter().for_each(|number| bytes.put_signed(*number));
        let mut contents = Contents(&bytes);
        assert!(numbers.iter().all(|number| contents.number() == Some(*number)));
        assert!(signed.iter().all(|number| contents.signed() == Some(*number)));
        assert!(contents.is_empty() && contents.number().is_none());
        assert_eq!(Contents(&[0xff; 20]).number(), None, "more bits than a number has");
    }

    #[test]
    fn a_changed_or_shortened_frame_is_refused() {
        let framed = frame(b"some contents");
        assert_eq!(read_frame(&mut &framed[..]).unwrap(), b"some contents");
        for length in 0..framed.len() {
            assert_eq!(read_frame(&mut &framed[..length]), Err(StateError::Truncated), "{length} bytes");
        }
        for at in 0..framed.len() {
            let mut changed = framed.clone();
            changed[at] ^= 0x10;
            assert!(read_frame(&mut &changed[..]).is_err(), "byte {at}");
        }
    }
}
