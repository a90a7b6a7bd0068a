use super::*;
use crate::{Limiter, Quota};
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
struct Keys(AtomicBool);

impl ChildLimiter for Keys {
    fn close(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn add_child(limiter: &Limiter, child: &Arc<Keys>) -> bool {
    let child: Weak<Keys> = Arc::downgrade(child);
    limiter.core().add_child(ROOT, child)
}

#[test]
fn all_children_are_closed_and_dropped_ones_take_no_memory() {
    let limiter = Limiter::new(Quota::per_second(1)).unwrap();
    let children = [(); 3].map(|()| Arc::new(Keys::default()));
    assert!(children.iter().all(|child| add_child(&limiter, child)));
    assert!((0..100).all(|_| add_child(&limiter, &Arc::default())));
    assert!(limiter.core().state.lock().rare().children.len() <= 8);
    limiter.close();
    assert!(children.iter().all(|child| child.0.load(Ordering::Relaxed)));
    assert!(!add_child(&limiter, &children[0]), "it is closed");
}
