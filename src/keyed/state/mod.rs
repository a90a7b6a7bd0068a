//! The state of a keyed limiter: its format, its public types, and restoring.
//!
//! After the head of every state follow, each in a frame:
//!
//! | frame | contents |
//! |---|---|
//! | the first | `0`, the common quotas, the overflow bucket, when the state was saved by the map's time and by the wall clock |
//! | each shard with keys | `1`, the number of the frame, its instant, its pause, its quotas, its keys |
//! | the last | `2`, the number of frames, the number of keys |
//!
//! A key is its bytes and, for each of its quotas, the units that are missing to a full bucket. That is a small number
//! for most keys, and does not depend on any clock.
//!
//! All frames are read and checked before the first key is restored. They are kept as bytes, so that a state in memory
//! is no larger than in the file.

mod reading;
mod restoring;
mod saving;

pub use reading::KeyedState;
pub(super) use restoring::Restore;
pub use saving::KeyedSave;

use super::map::Map;
use super::quotas::Quotas;
use super::rates::{Levels, Rates};
use crate::saved::WallTime;
use crate::saved::bytes::{Contents, Put};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::SystemTime;

/// The first byte of a frame.
const FIRST: u8 = 0;
const SHARD: u8 = 1;
const LAST: u8 = 2;

/// Bits of the first number of a key, below the index of its quotas.
const PAUSED: u64 = 1;
const PINNED: u64 = 2;
const INDEX: u32 = 2;

/// The contents of the first frame.
#[derive(Clone, Debug)]
struct First {
    /// The common quotas; `None` if they come from `quota_by`.
    common: Option<Quotas>,
    /// The quotas of the overflow bucket and its levels, if there is one.
    overflow: Option<(Arc<Rates>, Levels)>,
    /// When the state was saved, by the map's time.
    at: u64,
    saved_at: WallTime,
}

impl First {
    fn of<K: Hash + Eq + Clone, S: BuildHasher>(map: &Map<K, S>, wall_clock: SystemTime) -> Self {
        let at = map.now();
        let overflow = map.overflow.as_ref().zip(map.saved_overflow());
        Self {
            common: map.common_quotas(),
            overflow: overflow.map(|(core, levels)| (Arc::new(super::live::rates_of(core)), levels)),
            at,
            saved_at: WallTime::of(wall_clock),
        }
    }

    fn contents(&self) -> Vec<u8> {
        let mut contents = vec![FIRST];
        let common = self.common.clone().unwrap_or_default();
        put_quotas(&mut contents, &common);
        contents.put(self.overflow.is_some().into());
        if let Some((rates, levels)) = &self.overflow {
            put_quotas(&mut contents, &rates.quotas);
            contents.put(levels.at.into());
            contents.put(levels.gate.into());
            rates.missing(levels).for_each(|missing| contents.put_signed(missing));
        }
        contents.put(self.at.into());
        contents.put(self.saved_at.0.into());
        contents
    }

    fn read(contents: &[u8]) -> Option<Self> {
        let mut contents = Contents(contents);
        if contents.number()? != FIRST.into() {
            return None;
        }
        let common = Some(read_quotas(&mut contents)?).filter(|common| !common.is_empty());
        common.as_ref().map_or(Some(()), |common| common.check().ok())?;
        let overflow = if contents.number()? == 0 {
            None
        } else {
            let rates = read_rates(&mut contents)?;
            let (at, gate) = (contents.small()?, contents.small()?);
            let levels = rates.with_missing(at, || contents.signed())?.paused_until(gate);
            Some((rates, levels))
        };
        let (at, saved_at) = (contents.small()?, WallTime(contents.small()?));
        contents.is_empty().then_some(Self { common, overflow, at, saved_at })
    }
}

fn put_quotas(contents: &mut Vec<u8>, quotas: &Quotas) {
    contents.put(quotas.len() as u128);
    for (name, quota) in quotas.named() {
        contents.put(name.is_some().into());
        if let Some(name) = name {
            contents.put_bytes(name.as_bytes());
        }
        contents.put_quota(quota);
    }
}

fn read_quotas(contents: &mut Contents<'_>) -> Option<Quotas> {
    let count: usize = contents.small()?;
    let mut quotas = Quotas::default();
    for _ in 0..count {
        let name = if contents.number()? == 0 { None } else { Some(contents.text()?.into()) };
        quotas = quotas.and((name, contents.quota()?));
    }
    Some(quotas)
}

fn read_rates(contents: &mut Contents<'_>) -> Option<Arc<Rates>> {
    let quotas = read_quotas(contents)?;
    quotas.check().ok().map(|()| Arc::new(Rates::new(quotas)))
}
