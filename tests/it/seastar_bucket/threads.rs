//! Many threads on one bucket, which move its time themselves. Each test fails unless the threads really contended.

use super::{bucket, capped, nanos, secs};
use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use tollgate::{Bucket, Quota};

const GRABBERS: u64 = 4;
const TIMERS: u64 = 2;
/// Not a multiple of a token's microsecond, so that fractions are always carried.
const STEP: u64 = 700;
/// The timers stop this many tokens ahead of the grants: the bucket is nearly empty all the time, and never full.
const AHEAD: u64 = 4;
/// A thread that has yielded this often while spinning has lost its grant.
const MOST_YIELDS: u64 = 1 << 20;

fn spin_until(what: impl Fn() -> bool) {
    for _ in 0..MOST_YIELDS {
        // Most threads succeed while spinning; yielding is for machines with fewer cores than threads.
        for _ in 0..100 {
            if what() {
                return;
            }
            hint::spin_loop();
        }
        thread::yield_now();
    }
    panic!("stranded");
}

/// Starts threads together, more closely than a `Barrier` does.
#[derive(Default)]
struct Gate {
    arrived: AtomicU64,
}

impl Gate {
    fn pass(&self, threads: u64) {
        let turn = self.arrived.fetch_add(1, Ordering::SeqCst) / threads;
        spin_until(|| self.arrived.load(Ordering::SeqCst) >= (turn + 1) * threads);
    }
}

/// A time that several threads move on and replenish with, at a token each microsecond.
#[derive(Default)]
struct Timers {
    now: AtomicU64,
    granted: AtomicU64,
    stop: AtomicBool,
}

impl Timers {
    fn run<C>(&self, bucket: &Bucket<C>) {
        while !self.stop.load(Ordering::SeqCst) {
            if self.minted() < self.granted.load(Ordering::SeqCst) + AHEAD {
                // Moved before the replenish: the published tokens are never ahead of a later reading of `now`.
                self.now.fetch_add(STEP, Ordering::SeqCst);
            }
            bucket.replenish(nanos(self.now.load(Ordering::SeqCst)));
            thread::yield_now();
        }
    }

    /// The most that can have been minted so far.
    fn minted(&self) -> u64 {
        self.now.load(Ordering::SeqCst) / 1_000
    }

    /// Grabs, and spins until granted; returns how many tokens others got meanwhile.
    fn take<C>(&self, bucket: &Bucket<C>, cost: u64) -> u64 {
        let before = self.granted.load(Ordering::SeqCst);
        let ticket = bucket.grab(cost);
        spin_until(|| bucket.deficiency(ticket) == 0);
        let total = self.granted.fetch_add(cost, Ordering::SeqCst) + cost;
        let minted = self.minted();
        assert!(total <= minted, "{total} tokens granted when {minted} were minted");
        total - before - cost
    }

    /// Runs `grabber` on some threads and the timers on others, and returns the results of the grabbers.
    fn with<C, T: Send>(&self, bucket: &Bucket<C>, grabber: &(impl Fn(u64) -> T + Sync)) -> Vec<T> {
        thread::scope(|scope| {
            let grabbers: Vec<_> = (0..GRABBERS).map(|index| scope.spawn(move || grabber(index))).collect();
            for _ in 0..TIMERS {
                scope.spawn(|| self.run(bucket));
            }
            // The timers are stopped also if a grabber panicked; otherwise this would never end.
            let answers: Vec<_> = grabbers.into_iter().map(|grabber| grabber.join()).collect();
            self.stop.store(true, Ordering::SeqCst);
            answers.into_iter().map(|answer| answer.expect("a grabber panicked, see above")).collect()
        })
    }
}

#[test]
fn threads_that_grab_and_spin_get_all_that_time_brought_and_no_more() {
    const TURNS: u64 = 1_500;
    let bucket = bucket(Quota::new(1, nanos(1_000)).burst(1_000).initial(0));
    let (timers, gate) = (Timers::default(), Gate::default());
    let others = timers.with(&bucket, &|index| {
        gate.pass(GRABBERS);
        (0..TURNS).map(|turn| timers.take(&bucket, 1 + (turn + index) % 3)).sum::<u64>()
    });
    assert!(others.iter().sum::<u64>() > 0, "no claim was granted while another waited: there was no contention");
    // Costs cycle through 1, 2, 3. Minted tokens that were not granted are still there, and the bucket was never full.
    let granted = GRABBERS * TURNS * 2;
    bucket.replenish(nanos(timers.now.load(Ordering::SeqCst)));
    assert_eq!(bucket.deficiency(bucket.grab(1_000)), granted + 1_000 - timers.minted());
}

#[test]
fn threads_never_have_more_in_flight_than_the_cap() {
    const CAP: u64 = 3;
    const TURNS: u64 = 800;
    let bucket = capped(Quota::new(1, nanos(1_000)).burst(1_000).initial(0), CAP);
    let (timers, in_flight, peak) = (Timers::default(), AtomicU64::new(0), AtomicU64::new(0));
    timers.with(&bucket, &|_| {
        for _ in 0..TURNS {
            timers.take(&bucket, 1);
            peak.fetch_max(in_flight.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // The first threads keep their tokens in flight until the cap is reached: the fourth thread finds a closed
            // ceiling.
            spin_until(|| peak.load(Ordering::SeqCst) >= CAP);
            in_flight.fetch_sub(1, Ordering::SeqCst);
            bucket.release(1);
        }
    });
    assert_eq!(peak.into_inner(), CAP);
}

/// With a head that never moves, the deficiency of a ticket is its position in the queue.
#[test]
fn grabs_that_race_never_share_a_token() {
    const ROUNDS: u64 = 1_000;
    let mut switches = 0;
    for _ in 0..ROUNDS {
        let mut claims = race_for_places(500);
        claims.sort_unstable();
        let mut end = 0;
        for &(ticket, cost, _) in &claims {
            assert_eq!(ticket, end + cost, "positions must be consecutive");
            end = ticket;
        }
        switches += claims.windows(2).filter(|pair| pair[0].2 != pair[1].2).count();
        if switches > 1_000 {
            return;
        }
    }
    panic!("the threads ran one after the other, {switches} switches: there was no contention");
}

/// Ticket, cost and thread of each of `turns` grabs by several threads.
fn race_for_places(turns: u64) -> Vec<(u64, u64, u64)> {
    let (bucket, gate) = (bucket(Quota::manual(1).initial(0)), Gate::default());
    let grabber = |index: u64| {
        gate.pass(GRABBERS);
        let costs = (0..turns).map(|turn| 1 + (turn + index) % 3);
        costs.map(|cost| (bucket.deficiency(bucket.grab(cost)), cost, index)).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let grabber = &grabber;
        let grabbers: Vec<_> = (0..GRABBERS).map(|index| scope.spawn(move || grabber(index))).collect();
        grabbers.into_iter().flat_map(|grabber| grabber.join().unwrap()).collect()
    })
}

#[test]
fn of_threads_that_race_for_a_full_bucket_exactly_the_burst_is_granted() {
    const ROUNDS: u64 = 200;
    const GRABS: u64 = 10;
    let (bucket, gate, granted) = (bucket(Quota::per_second(10).burst(15)), Gate::default(), AtomicU64::new(0));
    let racer = |index: u64| {
        for round in 0..ROUNDS {
            // Long after the last round every thread replenishes at once: served, full, and full only once.
            for at in [100, 200, 300] {
                bucket.replenish(secs(round * 1_000 + at + index));
            }
            gate.pass(GRABBERS);
            bucket.replenish(secs(round * 1_000 + 900));
            gate.pass(GRABBERS);
            let served = (0..GRABS).filter(|_| bucket.deficiency(bucket.grab(1)) == 0).count();
            granted.fetch_add(served as u64, Ordering::SeqCst);
            gate.pass(GRABBERS);
            assert_eq!(granted.load(Ordering::SeqCst), 15 * (round + 1), "in round {round}");
            gate.pass(GRABBERS);
        }
    };
    thread::scope(|scope| {
        for index in 0..GRABBERS {
            let racer = &racer;
            scope.spawn(move || racer(index));
        }
    });
}

/// Seastar moves the stamp and the head in two steps: two callers can each see space for ten tokens and both fill it.
#[test]
fn replenish_calls_that_race_never_fill_the_bucket_beyond_its_burst() {
    const ROUNDS: u64 = 3_000;
    let buckets: Vec<_> = (0..ROUNDS).map(|_| bucket(Quota::per_second(10).initial(0))).collect();
    let gate = Gate::default();
    let racer = |index: u64| {
        for bucket in &buckets {
            gate.pass(GRABBERS);
            for turn in 0..4 {
                bucket.replenish(secs(1 + turn * GRABBERS + index));
            }
        }
    };
    thread::scope(|scope| {
        for index in 0..GRABBERS {
            let racer = &racer;
            scope.spawn(move || racer(index));
        }
    });
    for (round, bucket) in buckets.iter().enumerate() {
        let (full, beyond) = (bucket.grab(10), bucket.grab(1));
        assert_eq!((bucket.deficiency(full), bucket.deficiency(beyond)), (0, 1), "in round {round}");
    }
}
