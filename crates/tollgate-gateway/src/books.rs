//! What happened to requests, counted.
//!
//! Threads that count in one place wait for each other: so each writes on a page that few others write on, and whoever looks
//! adds them up.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

use super::busiest::{Busiest, Place};
use super::who::Who;

/// What became of a request. Each is counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The upstream responded.
    Answered,
    /// Refused by the limit of who asked.
    RefusedEach,
    /// Refused by the limit of all.
    RefusedAll,
    /// Nobody who is let in.
    Unknown,
    /// Forwarded, and the upstream did not respond: 502, 504.
    Failed,
    /// Given up by its client before there was an answer.
    Left,
}

impl Fate {
    pub(crate) const ALL: [(Fate, &'static str); 6] = [
        (Fate::Answered, "answered"),
        (Fate::RefusedEach, "refused_each"),
        (Fate::RefusedAll, "refused_all"),
        (Fate::Unknown, "unknown"),
        (Fate::Failed, "failed"),
        (Fate::Left, "left"),
    ];
}

/// As many threads as these write each on a page of its own.
const PAGES: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Books([CachePadded<Page>; PAGES]);

#[derive(Debug, Default)]
struct Page {
    came: AtomicU64,
    fates: [AtomicU64; Fate::ALL.len()],
    busiest: Mutex<Busiest>,
}

/// What the books say at one moment; all only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Counts {
    pub(crate) came: u64,
    pub(crate) answered: u64,
    pub(crate) refused_each: u64,
    pub(crate) refused_all: u64,
    pub(crate) unknown: u64,
    pub(crate) failed: u64,
    pub(crate) left: u64,
}

impl Counts {
    pub(crate) fn of(&self, fate: Fate) -> u64 {
        match fate {
            Fate::Answered => self.answered,
            Fate::RefusedEach => self.refused_each,
            Fate::RefusedAll => self.refused_all,
            Fate::Unknown => self.unknown,
            Fate::Failed => self.failed,
            Fate::Left => self.left,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { came, answered, refused_each, refused_all, unknown, failed, left } = self;
        write!(
            f,
            "came={came} answered={answered} refused_each={refused_each} refused_all={refused_all} unknown={unknown} \
             failed={failed} left={left}"
        )
    }
}

impl Books {
    /// Somebody came; what comes of it is counted in the end, whatever happens.
    pub(crate) fn open(&self) -> Visit<'_> {
        self.own_page().came.fetch_add(1, Ordering::Relaxed);
        Visit { books: self, fate: Fate::Left }
    }

    pub(crate) fn asked(&self, who: &Who, is_admitted: bool) {
        self.own_page().busiest().count(who, is_admitted);
    }

    /// The `count` who asked most, on all pages together.
    pub(crate) fn busiest(&self, count: usize) -> Vec<Place> {
        Busiest::top(self.0.iter().map(|page| page.busiest().clone()), count)
    }

    /// Once a second: what was asked long ago counts less.
    pub(crate) fn fade(&self) {
        self.0.iter().for_each(|page| page.busiest().fade());
    }

    pub(crate) fn counts(&self) -> Counts {
        // Those that ended first: who comes meanwhile is not yet answered.
        let of = |fate: Fate| self.sum(|page| &page.fates[fate as usize]);
        Counts {
            answered: of(Fate::Answered),
            refused_each: of(Fate::RefusedEach),
            refused_all: of(Fate::RefusedAll),
            unknown: of(Fate::Unknown),
            failed: of(Fate::Failed),
            left: of(Fate::Left),
            came: self.sum(|page| &page.came),
        }
    }

    fn sum(&self, word: impl Fn(&Page) -> &AtomicU64) -> u64 {
        self.0.iter().map(|page| word(page).load(Ordering::Relaxed)).sum()
    }

    fn own_page(&self) -> &Page {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static OWN: Cell<Option<usize>> = const { Cell::new(None) };
        }
        let number = OWN.get().unwrap_or_else(|| {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            OWN.set(Some(number));
            number
        });
        &self.0[number % PAGES]
    }
}

impl Page {
    fn busiest(&self) -> MutexGuard<'_, Busiest> {
        self.busiest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request, until its response's head is there.
pub(crate) struct Visit<'a> {
    books: &'a Books,
    fate: Fate,
}

impl Visit<'_> {
    pub(crate) fn end(mut self, fate: Fate) {
        self.fate = fate;
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.books.own_page().fates[self.fate as usize].fetch_add(1, Ordering::Relaxed);
    }
}
