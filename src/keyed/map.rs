//! The map: which room a key is in, and what happens when a room says that it cannot go on by itself.
//!
//! The shape of every verb: hash the key and read the time, lock the key's room, act on its level; or, if it has a
//! [seat](super::seat), leave the room and act on that. At most one room is locked at a time, and nothing but `Eq`,
//! `Hash` and `Clone` of keys runs under its lock (see [`room`](super::room)).

use super::bound::Bound;
use super::hub::{Hub, Landlord};
use super::rate::{Level, Rate};
use super::room::{Ask, House, Locked, Quick, Room, Stop, Trash};
use super::seat::{self, Seating};
use super::top::Top;
use crate::Quota;
use crate::error::{Bound as By, ConsumeError, Denied, ReleaseError, TryAcquireError};
use crate::grant::Permit;
use crate::shared::Shared;
use crate::state::MOST_COST;
use crate::sync::{AtomicU64, Mutex, Ordering, RoomMutex};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

/// How far debts may go, as in a line.
const MOST_SPAN: i64 = 1 << 62;

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
    Level { remaining: u64 },
    /// From a seat.
    Seat(Permit<Arc<Shared>>),
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
        let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed as u128 * self.rooms.len() as u128) >> 64) as usize
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

    /// Acts in the room of `number`, whose trash is emptied after its lock.
    pub(super) fn in_room<R>(
        &self,
        number: usize,
        act: impl FnOnce(&mut Room<K>, &House<'_, K>, &mut Trash<K>) -> R,
    ) -> R {
        let mut trash = Trash::default();
        let hash_of = |key: &K| self.hasher.hash_one(key);
        let house = House { bound: &self.bound, number, seating: &self.seating, hash_of: &hash_of };
        let mut room = self.rooms[number].lock();
        let result = act(&mut room, &house, &mut trash);
        drop(room);
        trash.empty();
        result
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
            match self.in_room(number, |room, house, trash| act(room, &ask, house, trash)) {
                Ok(result) => return Entered::Done(result),
                Err(Stop::Seat(seat)) => return Entered::Seat(seat),
                Err(Stop::AskQuota) => ask.offered = Some(self.ask_quota(key)),
                Err(Stop::NoRoom) if self.make_room(number, ask.now) => {}
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

    /// Forgets somebody who is full, in whatever room. False if everybody owes.
    fn make_room(&self, from: usize, now: u64) -> bool {
        while let Some(number) = self.bound.find_idle(from, now) {
            let has_place = self.in_room(number, |room, house, trash| {
                room.sweep_at(now, house, trash);
                self.bound.has_place()
            });
            if has_place {
                return true;
            }
        }
        self.bound.has_place()
    }

    // ---- taking ---------------------------------------------------------------------------------------------------

    pub(super) fn try_acquire(&self, key: &K, hash: u64, cost: u64) -> Result<Taken, TryAcquireError> {
        let result = self.try_acquire_uncounted(key, hash, cost);
        if let Err(error) = &result {
            self.count_refusal(key, hash);
            self.seating.audience.refused(cost, *error);
        }
        result
    }

    /// What nearly every call does: a key is there, and so are its tokens.
    #[inline]
    fn take_quickly(&self, key: &K, hash: u64, cost: u64) -> Option<Quick> {
        let now = self.now();
        self.rooms[self.room_of(hash)].lock().take_quickly(key, hash, cost, now)
    }

    fn try_acquire_uncounted(&self, key: &K, hash: u64, cost: u64) -> Result<Taken, TryAcquireError> {
        match self.take_quickly(key, hash, cost) {
            Some(Quick::Taken(remaining)) => Ok(Taken::Level { remaining }),
            Some(Quick::Seat(seat)) => self.try_seat(hash, seat, cost),
            None => self.try_acquire_slowly(key, hash, cost),
        }
    }

    #[inline(never)]
    fn try_acquire_slowly(&self, key: &K, hash: u64, cost: u64) -> Result<Taken, TryAcquireError> {
        let entered = self.enter(key, hash, false, |room, ask, house, trash| {
            if room.closed {
                return Ok(Err(TryAcquireError::Closed));
            }
            if self.seating.cap.is_some() {
                // What is in flight is told by a seat only.
                return room.seat(ask, house, trash).and_then(|seat| Err(Stop::Seat(seat)));
            }
            room.at_level(ask, house, trash, |rate, level| try_take(rate, level, cost, ask.now))
        });
        match entered {
            Entered::Done(result) => result.map(|remaining| Taken::Level { remaining }),
            Entered::Seat(seat) => self.try_seat(hash, seat, cost),
            Entered::Full => Err(TryAcquireError::TooManyKeys { most: self.bound.most().unwrap_or(0) }),
        }
    }

    fn try_seat(&self, hash: u64, seat: Arc<Shared>, cost: u64) -> Result<Taken, TryAcquireError> {
        match seat.try_acquire_untold(cost) {
            Ok(remaining) => Ok(self.taken(hash, Permit::new(seat, cost, remaining))),
            Err(error) => {
                self.let_go(hash, seat);
                Err(error)
            }
        }
    }

    /// Grants at once, refuses at once, or says in which line to stand.
    pub(super) fn arrive(&self, key: &K, hash: u64, cost: u64, allowed: Option<u64>) -> Arrival {
        match self.take_quickly(key, hash, cost) {
            Some(Quick::Taken(remaining)) => return Arrival::Taken(Taken::Level { remaining }),
            Some(Quick::Seat(seat)) => {
                self.hub.welcome(&seat);
                return Arrival::Wait(seat);
            }
            None => {}
        }
        let entered = self.enter(key, hash, false, |room, ask, house, trash| {
            if room.closed {
                return Ok(Verdict::Refused(ConsumeError::Closed));
            }
            if self.seating.cap.is_none() {
                let verdict =
                    room.at_level(ask, house, trash, |rate, level| self.begin(rate, level, cost, allowed, ask.now))?;
                if !matches!(verdict, Verdict::Wait) {
                    return Ok(verdict);
                }
            }
            room.seat(ask, house, trash).and_then(|seat| Err(Stop::Seat(seat)))
        });
        match entered {
            Entered::Done(Verdict::Taken(remaining)) => Arrival::Taken(Taken::Level { remaining }),
            Entered::Done(Verdict::Refused(error)) => Arrival::Refused(error),
            Entered::Done(Verdict::Wait) => unreachable!("who has to wait gets a seat"),
            Entered::Seat(seat) => {
                self.hub.welcome(&seat);
                Arrival::Wait(seat)
            }
            Entered::Full => Arrival::Refused(ConsumeError::TooManyKeys { most: self.bound.most().unwrap_or(0) }),
        }
    }

    /// What becomes of a claim on a key on which nobody waits, in the order in which a line decides.
    fn begin(&self, rate: &Rate, level: &mut Level, cost: u64, allowed: Option<u64>, now: u64) -> Verdict {
        let most = MOST_COST.min((MOST_SPAN + rate.tokens(level.units)).max(0) as u64);
        if cost > most {
            return Verdict::Refused(ConsumeError::TooLarge { cost, most });
        }
        if let Some(remaining) = take(rate, level, cost) {
            return Verdict::Taken(remaining);
        }
        if self.seating.max_waiting == 0 {
            return Verdict::Refused(ConsumeError::LineFull { waiting: 0 });
        }
        if let Some(allowed) = allowed {
            let estimate = rate.reached(*level, cost).map_or(Duration::ZERO, |at| wait(at, *level, now));
            let allowed = Duration::from_nanos(allowed);
            if estimate > allowed {
                return Verdict::Refused(ConsumeError::TooLate { estimate, allowed });
            }
        }
        Verdict::Wait
    }

    /// A permit holds its seat only where tokens are in flight, or where there is no level to settle it with.
    pub(super) fn taken(&self, hash: u64, permit: Permit<Arc<Shared>>) -> Taken {
        let is_overflow = self.overflow.as_ref().is_some_and(|overflow| Arc::ptr_eq(overflow, permit.shared()));
        if self.seating.cap.is_some() || is_overflow {
            return Taken::Seat(permit);
        }
        let remaining = permit.remaining;
        let seat = Arc::clone(permit.shared());
        drop(permit);
        self.let_go(hash, seat);
        Taken::Level { remaining }
    }

    pub(super) fn count_refusal(&self, key: &K, hash: u64) {
        self.rooms[self.room_of(hash)].lock().refused += 1;
        // Under a storm of refusals by many threads a few go uncounted, rather than have the threads wait for this.
        let lost = self.top.try_lock().and_then(|mut top| top.count(key, hash));
        drop(lost);
    }

    // ---- afterwards -----------------------------------------------------------------------------------------------

    /// Changes what a grant of `key` cost, and says what it costs now.
    pub(super) fn resettle(&self, key: &K, hash: u64, cost: u64, actual: u64) -> u64 {
        let entered = self.enter(key, hash, true, |room, ask, house, trash| {
            room.at_level(ask, house, trash, |rate, level| {
                if actual < cost {
                    refund(rate, level, cost - actual);
                    return actual;
                }
                let room = (MOST_SPAN + rate.tokens(level.units)).max(0) as u64;
                let more = (actual - cost).min(MOST_COST).min(room);
                level.units -= rate.units(more);
                cost + more
            })
        });
        match entered {
            Entered::Done(cost) => cost,
            Entered::Seat(seat) => {
                let cost = seat.resettle(cost, actual);
                self.let_go(hash, seat);
                cost
            }
            Entered::Full => cost,
        }
    }

    pub(super) fn release(&self, key: &K, tokens: u64) -> Result<(), ReleaseError> {
        if self.seating.cap.is_none() {
            return Err(ReleaseError::NotCapped);
        }
        let hash = self.hash(key);
        let ask = Ask { key, hash, now: 0, offered: None, must: false };
        let result = match self.in_room(self.room_of(hash), |room, _, _| room.find_seat(&ask)) {
            Some(seat) => {
                let result = seat.release_owed(tokens);
                self.let_go(hash, seat);
                result
            }
            None if tokens == 0 => Ok(()),
            None => Err(ReleaseError::TooMuch { asked: tokens, owed: 0 }),
        };
        match &self.overflow {
            // It may have been granted while the map was full.
            Some(overflow) if result.is_err() && overflow.release_owed(tokens).is_ok() => Ok(()),
            _ => result,
        }
    }

    // ---- to look at -----------------------------------------------------------------------------------------------

    /// Looks at a level or at a seat; `closed` is what a closed limiter shows instead. A newcomer's level is a full one, and
    /// is not kept.
    fn look<R>(
        &self,
        key: &K,
        at_level: impl Fn(&Rate, Level, u64) -> R,
        at_seat: impl Fn(&Shared) -> R,
        closed: Option<R>,
    ) -> R {
        let hash = self.hash(key);
        let entered = self.enter(key, hash, false, |room, ask, house, trash| {
            let level = room.at_level(ask, house, trash, |rate, level| at_level(rate, *level, ask.now))?;
            Ok((level, room.closed))
        });
        match entered {
            Entered::Done((level, is_closed)) => closed.filter(|_| is_closed).unwrap_or(level),
            Entered::Seat(seat) => {
                let result = at_seat(&seat);
                self.let_go(hash, seat);
                result
            }
            Entered::Full => unreachable!("who looks is not kept"),
        }
    }

    pub(super) fn available(&self, key: &K) -> u64 {
        let cap = self.seating.cap.unwrap_or(u64::MAX);
        let at_level = |rate: &Rate, level: Level, _| (rate.tokens(level.units).max(0) as u64).min(cap);
        self.look(key, at_level, |seat| seat.look_at(|state, rovers, _| state.available(rovers)), Some(0))
    }

    pub(super) fn deficiency(&self, key: &K) -> u64 {
        let at_level = |rate: &Rate, level: Level, _| rate.tokens(level.units).min(0).unsigned_abs();
        self.look(key, at_level, |seat| seat.look_at(|state, rovers, _| state.deficiency(rovers)), None)
    }

    pub(super) fn quota(&self, key: &K) -> Quota {
        let at_seat = |seat: &Shared| seat.look_at(|state, _, _| state.supply.quotas()[0].quota);
        self.look(key, |rate: &Rate, _, _| rate.quota, at_seat, None)
    }

    pub(super) fn estimate(&self, key: &K, cost: u64) -> Option<Duration> {
        let most = MOST_COST.min(self.seating.cap.unwrap_or(u64::MAX));
        let at_level = |rate: &Rate, level: Level, now| {
            if cost > most {
                return None;
            }
            if cost == 0 {
                return Some(Duration::ZERO);
            }
            rate.reached(level, cost).map(|at| wait(at, level, now))
        };
        let at_seat = |seat: &Shared| seat.look_at(|state, rovers, sample| state.estimate(rovers, cost, sample.now));
        self.look(key, at_level, at_seat, Some(None))
    }

    // ---- changes --------------------------------------------------------------------------------------------------

    /// One room after the other gets the new quota, a checked one.
    pub(super) fn set_quota(&self, quota: Quota) {
        let rate = self.rate(quota);
        let version = self.versions.fetch_add(1, Ordering::AcqRel) as u32 + 1;
        for number in 0..self.rooms.len() {
            let now = self.now();
            let (seats, edition) = self.in_room(number, |room, house, trash| {
                let seats = room.set_quota(Arc::clone(&rate), version, now, house, trash);
                (seats, room.edition())
            });
            for seat in seats {
                seat::set_quota(&seat, &rate, edition);
            }
            self.bound.idle_now(number);
        }
    }

    /// Gives `key` a quota of its own; or the common one, with `None`. False if the map is full.
    pub(super) fn set_quota_for(&self, key: &K, quota: Option<Quota>) -> bool {
        let own = quota.map(|quota| self.rate(quota));
        let hash = self.hash(key);
        let entered = self.enter(key, hash, false, |room, ask, house, trash| {
            let rate = match &own {
                Some(rate) => Arc::clone(rate),
                None => room.common_rate(ask)?,
            };
            let seat = room.set_quota_for(ask, Arc::clone(&rate), own.is_some(), house, trash)?;
            Ok(seat.map(|seat| (seat, rate, room.edition())))
        });
        match entered {
            Entered::Done(Some((seat, rate, edition))) => {
                seat::set_quota(&seat, &rate, edition);
                self.let_go(hash, seat);
                true
            }
            Entered::Done(None) => true,
            Entered::Seat(_) | Entered::Full => false,
        }
    }

    pub(super) fn close(&self) {
        for number in 0..self.rooms.len() {
            let seats: Vec<Arc<Shared>> = self.in_room(number, |room, _, _| {
                room.closed = true;
                room.seats().cloned().collect()
            });
            seats.iter().for_each(|seat| seat.with(|state, rovers, _| state.close(rovers)));
            drop(seats);
            self.bound.idle_now(number);
        }
        if let Some(overflow) = &self.overflow {
            overflow.with(|state, rovers, _| state.close(rovers));
        }
    }

    /// Serves all lines and forgets who may be forgotten: what the attendants and the calls do, for the user's own hands.
    pub(super) fn tick(&self) {
        for number in 0..self.rooms.len() {
            let seats: Vec<Arc<Shared>> = self.in_room(number, |room, _, _| room.seats().cloned().collect());
            seats.iter().for_each(|seat| seat.tick());
            drop(seats);
            let now = self.now();
            self.in_room(number, |room, house, trash| room.sweep_at(now, house, trash));
        }
        if let Some(overflow) = &self.overflow {
            overflow.tick();
        }
    }
}

impl<K, S> Landlord for Map<K, S>
where
    K: Hash + Eq + Clone + Send + Sync,
    S: BuildHasher + Send + Sync,
{
    fn retire(&self, seat: *const Shared, hash: u64, now: u64) -> bool {
        self.in_room(self.room_of(hash), |room, house, trash| room.retire(hash, seat, now, house, trash))
    }

    fn seats(&self) -> Vec<Arc<Shared>> {
        let rooms = (0..self.rooms.len())
            .flat_map(|number| self.in_room(number, |room, _, _| room.seats().cloned().collect::<Vec<_>>()));
        rooms.chain(self.overflow.clone()).collect()
    }
}

impl<K, S> Drop for Map<K, S> {
    fn drop(&mut self) {
        self.hub.close();
    }
}

// ---- levels -------------------------------------------------------------------------------------------------------

/// Takes `cost` tokens if they are there, and says what remains.
#[inline]
fn take(rate: &Rate, level: &mut Level, cost: u64) -> Option<u64> {
    let left = level.units - rate.units(cost);
    if left < 0 && cost > 0 {
        return None;
    }
    level.units = left;
    Some(rate.tokens(left).max(0) as u64)
}

fn try_take(rate: &Rate, level: &mut Level, cost: u64, now: u64) -> Result<u64, TryAcquireError> {
    let most = rate.burst();
    if cost > most {
        return Err(TryAcquireError::TooLarge { cost, most });
    }
    take(rate, level, cost).ok_or_else(|| {
        let retry_after = rate.reached(*level, cost).map(|at| wait(at, *level, now));
        let remaining = rate.tokens(level.units).max(0) as u64;
        TryAcquireError::Denied(Denied { retry_after, remaining, by: By::Quota(0) })
    })
}

/// `tokens` go back, as far as the burst.
fn refund(rate: &Rate, level: &mut Level, tokens: u64) {
    let room = (rate.burst() as i64).wrapping_sub(rate.tokens(level.units)).max(0) as u64;
    level.units = rate.clip(level.units + rate.units(tokens.min(room)));
}

/// How long it is until `at`. What could pass by now need not wait until a clock that stepped back has caught up.
fn wait(at: u64, level: Level, now: u64) -> Duration {
    Duration::from_nanos(if at <= level.at { 0 } else { at.saturating_sub(now) })
}
