//! A service that refuses requests again and again: other tasks of its runtime must run meanwhile.

use crate::cooperation::{PAID, yields};
use std::time::Duration;
use tollgate::{Limiter, Quota};
use tollgate_tower::{Admission, MaxWait};

#[test]
fn refused_requests_let_other_tasks_run() {
    let empty = Limiter::new(Quota::new(1, Duration::from_secs(86_400)).initial(0)).unwrap();
    yields(PAID, async || assert!(Admission::new(empty.clone(), 1, MaxWait::None).await.is_err()));
}
