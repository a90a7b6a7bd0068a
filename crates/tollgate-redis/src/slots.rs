//! The slots of a cluster: which master keeps which key.

use redis::Value;

/// The number of slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;

/// The master at `address` keeps the slots from `first` to `last`.
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) address: String,
}

/// Parses the answer to `CLUSTER SLOTS`. Invalid entries are skipped.
pub(super) fn ranges(answer: &Value) -> Vec<Range> {
    let Value::Array(entries) = answer else { return Vec::new() };
    entries.iter().filter_map(range).collect()
}

fn range(entry: &Value) -> Option<Range> {
    let Value::Array(parts) = entry else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &parts[..] else { return None };
    let [host, Value::Int(port), ..] = &master[..] else { return None };
    let host: String = redis::from_redis_value(host.clone()).ok()?;
    let slot = |number: i64| u16::try_from(number).ok().filter(|slot| *slot < SLOTS);
    Some(Range { first: slot(*first)?, last: slot(*last)?, address: format!("{host}:{port}") })
}

/// The slot of a key: the hash of the text in its first braces, or of the whole key if there are none or they are
/// empty.
pub(super) fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % SLOTS
}

/// CRC-16/XMODEM, as in the cluster's specification.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot("foo"), 12_182);
        assert_eq!(slot("tollgate:{foo}"), 12_182);
        assert_eq!(slot("{}foo"), crc16(b"{}foo") % SLOTS);
    }
}
