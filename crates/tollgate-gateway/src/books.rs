//! Counters of the requests and of their outcomes.
//!
//! Threads that increment the same counter slow each other down. So each thread writes to a page that few other threads
//! write to, and a reader adds up all pages.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

use super::busiest::{Busiest, Place};
use super::who::Who;

/// The outcome of a request. Each request is counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The upstream responded.
    Answered,
    /// Refused by the limit of its own key.
    RefusedEach,
    /// Refused by the limit of all requests.
    RefusedAll,
    /// Its client is not admitted at all.
    Unknown,
    /// Forwarded, and the upstream did not respond: 502, 504.
    Failed,
    /// Its client hung up before there was a response.
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

/// The number of pages. Up to this many threads each write to a page of their own.
const PAGES: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Books([CachePadded<Page>; PAGES]);

#[derive(Debug, Default)]
struct Page {
    came: AtomicU64,
    fates: [AtomicU64; Fate::ALL.len()],
    busiest: Mutex<Busiest>,
}

/// The sums of all pages at one moment. Each of them only grows.
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
    /// Counts a new request. Its outcome is counted when the `Visit` is dropped, whatever happens.
    pub(crate) fn open(&self) -> Visit<'_> {
        self.own_page().came.fetch_add(1, Ordering::Relaxed);
        Visit { books: self, fate: Fate::Left }
    }

    pub(crate) fn asked(&self, who: &Who, is_admitted: bool) {
        self.own_page().busiest().count(who, is_admitted);
    }

    /// The `count` clients with the most requests, over all pages.
    pub(crate) fn busiest(&self, count: usize) -> Vec<Place> {
        Busiest::top(self.0.iter().map(|page| page.busiest().clone()), count)
    }

    /// Called once a second: older requests count less.
    pub(crate) fn fade(&self) {
        self.0.iter().for_each(|page| page.busiest().fade());
    }

    pub(crate) fn counts(&self) -> Counts {
        // The outcomes first: a request that arrives meanwhile has no outcome yet.
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

/// One request, until the head of its response is there.
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
