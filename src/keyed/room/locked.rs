//! A room's lock.

use super::Room;
use crate::keyed::rate::Rate;
use crate::sync::{RoomGuard, RoomMutex};
use std::hint::spin_loop;
use std::ops::DerefMut;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A room and its lock, on cache lines of their own.
#[repr(align(128))]
pub(in crate::keyed) struct Locked<K>(RoomMutex<Room<K>>);

impl<K> Locked<K> {
    pub(in crate::keyed) fn new(rate: Arc<Rate>, by_key: bool) -> Self {
        Self(RoomMutex::new(Room::new(rate, by_key)))
    }

    #[inline]
    pub(in crate::keyed) fn lock(&self) -> impl DerefMut<Target = Room<K>> + '_ {
        self.0.try_lock().unwrap_or_else(|| self.lock_patiently())
    }

    /// Who finds the lock taken stays away from it for as long as some forty calls take, and longer the next time: a lock that
    /// changes hands with each call has its lines travel with each call, which costs several times as much as the call. By the
    /// clock: a pause is 20 ns on one processor and 50 on the next.
    #[cold]
    fn lock_patiently(&self) -> RoomGuard<'_, Room<K>> {
        for away in AWAY {
            let since = Instant::now();
            while since.elapsed() < away {
                // Some time, and much less than `away`, whatever the processor makes of it.
                (0..8).for_each(|_| spin_loop());
            }
            if let Some(room) = self.0.try_lock() {
                return room;
            }
        }
        self.0.lock()
    }
}

/// Then the thread is put to sleep. None under loom, which knows no time.
#[cfg(not(tollgate_loom))]
const AWAY: [Duration; 3] = [Duration::from_micros(2), Duration::from_micros(4), Duration::from_micros(8)];
#[cfg(tollgate_loom)]
const AWAY: [Duration; 0] = [];

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_two_cache_lines_and_what_a_call_writes_is_on_the_first() {
        assert_eq!(size_of::<Locked<String>>(), 128);
        let lock = size_of::<RoomMutex<u64>>() - size_of::<u64>();
        assert!(lock + std::mem::offset_of!(Room<String>, granted) + size_of::<u64>() <= 64);
    }
}
