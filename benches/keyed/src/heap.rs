//! An allocator that counts the live bytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

pub struct Counting;

static ALIVE: AtomicI64 = AtomicI64::new(0);

pub fn alive() -> i64 {
    ALIVE.load(Relaxed)
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALIVE.fetch_add(layout.size() as i64, Relaxed);
        // SAFETY: the caller fulfils the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALIVE.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: the caller fulfils the contract of `dealloc`, and all memory is from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
}
