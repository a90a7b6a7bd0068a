//! Keys as bytes.

use super::bytes::{Contents, Put};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// A key that [`KeyedLimiter::save`](crate::KeyedLimiter::save) can write and read.
///
/// Implemented for integers, text, bytes, addresses and pairs. The bytes of a key must mean the same in the next
/// version of the program: do not write an index into a table that may change.
///
/// # Examples
///
/// ```
/// use tollgate::state::StateKey;
///
/// #[derive(Debug, PartialEq)]
/// struct User(u64);
///
/// impl StateKey for User {
///     fn write(&self, to: &mut Vec<u8>) {
///         self.0.write(to);
///     }
///
///     fn read(from: &[u8]) -> Option<Self> {
///         u64::read(from).map(Self)
///     }
/// }
///
/// let mut bytes = Vec::new();
/// User(7).write(&mut bytes);
/// assert_eq!(User::read(&bytes), Some(User(7)));
/// ```
pub trait StateKey: Sized {
    /// Appends the bytes of the key.
    fn write(&self, to: &mut Vec<u8>);

    /// Reads the key from its bytes; `None` if they are those of no key. The state is then refused as damaged.
    fn read(from: &[u8]) -> Option<Self>;
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl StateKey for $integer {
            fn write(&self, to: &mut Vec<u8>) {
                to.extend(self.to_le_bytes());
            }

            fn read(from: &[u8]) -> Option<Self> {
                from.try_into().ok().map(Self::from_le_bytes)
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128);

macro_rules! texts {
    ($($text:ty)*) => {$(
        impl StateKey for $text {
            fn write(&self, to: &mut Vec<u8>) {
                to.extend(self.as_bytes());
            }

            fn read(from: &[u8]) -> Option<Self> {
                std::str::from_utf8(from).ok().map(Self::from)
            }
        }
    )*};
}

texts!(String Box<str> Arc<str>);

impl StateKey for Vec<u8> {
    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self);
    }

    fn read(from: &[u8]) -> Option<Self> {
        Some(from.to_vec())
    }
}

impl<const N: usize> StateKey for [u8; N] {
    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self);
    }

    fn read(from: &[u8]) -> Option<Self> {
        from.try_into().ok()
    }
}

impl StateKey for Ipv4Addr {
    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.octets());
    }

    fn read(from: &[u8]) -> Option<Self> {
        <[u8; 4]>::read(from).map(Self::from)
    }
}

impl StateKey for Ipv6Addr {
    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.octets());
    }

    fn read(from: &[u8]) -> Option<Self> {
        <[u8; 16]>::read(from).map(Self::from)
    }
}

impl StateKey for IpAddr {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::V4(address) => address.write(to),
            Self::V6(address) => address.write(to),
        }
    }

    fn read(from: &[u8]) -> Option<Self> {
        Ipv4Addr::read(from).map(Self::V4).or_else(|| Ipv6Addr::read(from).map(Self::V6))
    }
}

impl<A: StateKey, B: StateKey> StateKey for (A, B) {
    fn write(&self, to: &mut Vec<u8>) {
        let mut first = Vec::new();
        self.0.write(&mut first);
        to.put_bytes(&first);
        self.1.write(to);
    }

    fn read(from: &[u8]) -> Option<Self> {
        let mut contents = Contents(from);
        let first = A::read(contents.bytes()?)?;
        Some((first, B::read(contents.0)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    fn is_kept<K: StateKey + PartialEq + Debug>(key: K) {
        let mut bytes = Vec::new();
        key.write(&mut bytes);
        assert_eq!(K::read(&bytes), Some(key));
    }

    #[test]
    fn keys_are_read_as_they_were_written() {
        is_kept(u64::MAX - 3);
        is_kept(-7_i32);
        is_kept("ann \u{e9}".to_owned());
        is_kept(Arc::<str>::from(""));
        is_kept(vec![0_u8, 255]);
        is_kept([9_u8; 5]);
        is_kept(IpAddr::from([127, 0, 0, 1]));
        is_kept(IpAddr::from([1, 2, 3, 4, 5, 6, 7, 8]));
        is_kept(("tenant".to_owned(), (7_u8, "user".to_owned())));
        assert_eq!(u64::read(&[1; 7]), None);
        assert_eq!(String::read(&[0xff]), None);
        assert_eq!(IpAddr::read(&[1; 5]), None);
    }
}
