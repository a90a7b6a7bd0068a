//! The map: which room a key is in, and what happens when a room says that it cannot go on by itself.
//!
//! The shape of every verb: hash the key and read the time, lock the key's room, act on its level; or, if it has a
//! [seat](super::seat), leave the room and act on that. At most one room is locked at a time, and nothing but `Eq`,
//! `Hash` and `Clone` of keys runs under its lock (see [`room`](super::room)). The verbs are in `map/`.

mod changing;
mod looking;
mod paying;
mod taking;

use super::bound::Bound;
use super::hub::{Hub, Landlord};
use super::rate::{Left, Level, Rate};
use super::room::{Ask, House, Locked, Room, Stop, Trash};
use super::seat::Seating;
use super::top::Top;
use crate::Quota;
use crate::error::ConsumeError;
use crate::grant::Permit;
use crate::shared::{Shared, Tenant};
use crate::sync::{AtomicU64, Mutex, RoomMutex};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How far debts may go, as in a line.
const MOST_SPAN: i64 = 1 << 62;

/// How many slots of tables a newcomer goes through at most before it is turned away, beside those of the last room: no more
/// than one room has in a map without a bound on its keys, of which there are a million.
const MOST_SLOTS: usize = 4_096;
/// A room costs its lock, however few slots it has.
const LEAST_SLOTS: usize = 64;

pub(super) type QuotaBy<K> = Box<dyn Fn(&K) -> Quota + Send + Sync>;

pub(super) struct Map<K, S> {
    hasher: S,
    pub(super) rooms: Box<[Locked<K>]>,
    pub(super) bound: Bound,
    pub(super) seating: Seating,
    quota_by: Option<QuotaBy<K>>,
    /// What quotas were asked for lately, so that keys of one quota share it.
    known: Mutex<Vec<Arc<Rate>>>,
    /// Where newcomers go when the map is full, if not away.
    pub(super) overflow: Option<Arc<Shared>>,
    pub(super) hub: Arc<Hub>,
    /// A limiter above all keys, which has to grant too.
    pub(super) roof: Option<Arc<Shared>>,
    /// Counts the quotas for all.
    versions: AtomicU64,
    pub(super) top: RoomMutex<Top<K>>,
}

impl<K, S> fmt::Debug for Map<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("rooms", &self.rooms.len()).finish_non_exhaustive()
    }
}

/// What the builder has checked.
pub(super) struct Parts<K, S> {
    pub(super) hasher: S,
    pub(super) rate: Arc<Rate>,
    pub(super) quota_by: Option<QuotaBy<K>>,
    pub(super) rooms: usize,
    pub(super) max_keys: Option<u64>,
    pub(super) seating: Seating,
    pub(super) overflow: Option<Arc<Rate>>,
    pub(super) hub: Arc<Hub>,
}

/// What a room did.
enum Entered<R> {
    Done(R),
    /// The key has a seat, or a newcomer gets that of the overflow.
    Seat(Arc<Shared>),
    Full,
}

/// Tokens that were taken, and what is left behind them.
pub(super) enum Taken {
    /// From the key's level.
    Level { left: Left },
    /// From a seat.
    Seat(Permit<Arc<Shared>>),
}

impl Taken {
    fn whole(remaining: u64) -> Self {
        Self::Level { left: Left::whole(remaining) }
    }
}

/// How a claim begins.
pub(super) enum Arrival {
    Taken(Taken),
    /// Stand in this line.
    Wait(Arc<Shared>),
    Refused(ConsumeError),
}

enum Verdict {
    Taken(u64),
    Refused(ConsumeError),
    Wait,
}

impl<K, S> Map<K, S> {
    pub(super) fn new(parts: Parts<K, S>) -> Self {
        let Parts { hasher, rate, quota_by, rooms, max_keys, seating, overflow, hub } = parts;
        let by_key = quota_by.is_some();
        let full = |rate: Arc<Rate>| seating.seat(&rate, Level { units: rate.full(), at: 0 }, 0, 0);
        Self {
            hasher,
            rooms: (0..rooms).map(|_| Locked::new(Arc::clone(&rate), by_key)).collect(),
            bound: Bound::new(max_keys, rooms),
            overflow: overflow.map(full),
            roof: seating.roof.clone(),
            seating,
            quota_by,
            known: Mutex::new(Default::default()),
            hub,
            versions: AtomicU64::new(0),
            top: RoomMutex::new(Top::default()),
        }
    }

    /// The room of a hash. By its upper bits mixed: tables use the others, and hashes of a fast hasher may have few.
    #[inline]
    fn room_of(&self, hash: u64) -> usize {
        ((super::mix(hash) as u128 * self.rooms.len() as u128) >> 64) as usize
    }

    pub(super) fn now(&self) -> u64 {
        self.seating.time.now()
    }

    /// A seat of this key may not be needed any more.
    pub(super) fn may_be_idle(&self, hash: u64) {
        self.bound.idle_now(self.room_of(hash));
    }

    /// A seat of this key was let go of, or its tokens have landed.
    pub(super) fn let_go(&self, hash: u64, seat: Arc<Shared>) {
        drop(seat);
        self.bound.idle_now(self.room_of(hash));
    }
}

impl<K, S> Map<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    pub(super) fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Acts in the room of `number`, whose trash is dropped after its lock.
    pub(super) fn in_room<R>(
        &self,
        number: usize,
        act: impl FnOnce(&mut Room<K>, &House<'_, K>, &mut Trash<K>) -> R,
    ) -> R {
        let mut trash = Trash::default();
        let hash_of = |key: &K| self.hasher.hash_one(key);
        let house = House { bound: &self.bound, number, seating: &self.seating, hash_of: &hash_of };
        let mut room = self.rooms[number].lock();
        act(&mut room, &house, &mut trash)
    }

    /// Acts on `key` in its room, again if something had to be asked or made room for first.
    fn enter<R>(
        &self,
        key: &K,
        hash: u64,
        must: bool,
        act: impl Fn(&mut Room<K>, &Ask<'_, K>, &House<'_, K>, &mut Trash<K>) -> Result<R, Stop>,
    ) -> Entered<R> {
        let number = self.room_of(hash);
        let mut ask = Ask { key, hash, now: self.now(), offered: None, must };
        loop {
            let (result, synced) =
                self.in_room(number, |room, house, trash| (act(room, &ask, house, trash), room.synced()));
            match result {
                Ok(result) => return Entered::Done(result),
                Err(Stop::Seat(seat)) => return Entered::Seat(seat),
                Err(Stop::AskQuota) => ask.offered = Some(self.ask_quota(key)),
                // By the room's time: a clock that stepped back has nobody owe again.
                Err(Stop::NoRoom) if self.make_room(number, synced) => {}
                Err(Stop::NoRoom) => return self.overflow.clone().map_or(Entered::Full, Entered::Seat),
            }
            ask.now = self.now();
        }
    }

    /// What `quota_by` says of a key.
    ///
    /// # Panics
    /// If no limiter could be built from it.
    fn ask_quota(&self, key: &K) -> Arc<Rate> {
        let quota_by = self.quota_by.as_ref().expect("only asked for if there is one");
        let quota = quota_by(key);
        if let Err(error) = super::builder::check(&quota) {
            panic!("quota_by gave a key a quota that makes no sense: {error}");
        }
        self.rate(quota)
    }

    /// The rate of a checked quota; the same one for those who ask for the same.
    fn rate(&self, quota: Quota) -> Arc<Rate> {
        const REMEMBERED: usize = 16;
        let mut known = self.known.lock();
        if let Some(rate) = known.iter().find(|rate| rate.quota == quota) {
            return Arc::clone(rate);
        }
        let rate = Arc::new(Rate::new(quota));
        if known.len() == REMEMBERED {
            known.remove(0);
        }
        known.push(Arc::clone(&rate));
        rate
    }

    /// Forgets somebody who is full, in whatever room. False if everybody owes, or if nobody who does not was found in the
    /// [`MOST_SLOTS`] that one call goes through: the next call goes on where this one ended.
    fn make_room(&self, from: usize, now: u64) -> bool {
        let mut slots = 0;
        while slots < MOST_SLOTS
            && let Some(number) = self.bound.find_idle(from, now)
        {
            slots += self.in_room(number, |room, house, trash| {
                room.sweep_at(now, house, trash);
                room.slots().max(LEAST_SLOTS)
            });
            if self.bound.has_place() {
                return true;
            }
        }
        self.bound.has_place()
    }
}

impl<K, S> Landlord for Map<K, S>
where
    K: Hash + Eq + Clone + Send + Sync,
    S: BuildHasher + Send + Sync,
{
    fn retire(&self, seat: *const Shared, hash: u64, now: u64) -> bool {
        let retire =
            || self.in_room(self.room_of(hash), |room, house, trash| room.retire(hash, seat, now, house, trash));
        // A key's `Hash` that panics where the room catches up must not end the attendant: it comes again later.
        catch_unwind(AssertUnwindSafe(retire)).unwrap_or(false)
    }

    fn seats(&self) -> Vec<Arc<Shared>> {
        let rooms = (0..self.rooms.len())
            .flat_map(|number| self.in_room(number, |room, _, _| room.seats().cloned().collect::<Vec<_>>()));
        rooms.chain(self.overflow.clone()).collect()
    }

    fn let_go(&self, hash: u64) {
        self.may_be_idle(hash);
    }
}

impl<K, S> Tenant for Map<K, S>
where
    K: Hash + Eq + Clone + Send + Sync,
    S: BuildHasher + Send + Sync,
{
    fn close(&self) {
        Map::close(self);
    }
}

impl<K, S> Drop for Map<K, S> {
    fn drop(&mut self) {
        self.hub.close();
    }
}

/// How long it is until `at`. What could pass by now need not wait until a clock that stepped back has caught up.
fn wait(at: u64, level: Level, now: u64) -> Duration {
    Duration::from_nanos(if at <= level.at { 0 } else { at.saturating_sub(now) })
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::Landlord;
    use crate::{KeyedLimiter, Limiter, ManualClock, Quota};
    use tokio_test::task::spawn;

    #[test]
    fn a_seat_knows_the_limiter_above() {
        let clock = ManualClock::new();
        let above = Limiter::builder().quota(Quota::per_second(1)).clock(clock.clone()).build().unwrap();
        let builder = KeyedLimiter::builder().quota(Quota::per_second(1)).clock(clock);
        let keyed = builder.within_limiter(&above).build().unwrap();
        drop(keyed.try_acquire(&1, 1).unwrap());
        let mut waiting = spawn(keyed.consume(&1, 1));
        assert!(waiting.poll().is_pending());
        let seats = keyed.map.seats();
        assert!(seats[0].above().is_some_and(|limiter| std::ptr::eq(&**limiter, above.shared())));
    }
}
